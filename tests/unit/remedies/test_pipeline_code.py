"""Changes of a pipeline, written out for the caller."""

from __future__ import annotations

import pytest

from tests.synthetic import analysed, pipeline
from tfdiag.model.quantity import Missing
from tfdiag.remedies.pipeline_code import diff, written

CHAIN = ["from_tensor_slices(…)", "map(f)", "batch(32)"]

GOLDEN = {
    "nothing changes": (
        CHAIN,
        CHAIN,
        """\
  dataset = (
      tf.data.Dataset.from_tensor_slices(…)
      .map(f)
      .batch(32)
  )""",
    ),
    "one more at the end": (
        CHAIN,
        [*CHAIN, "prefetch(tf.data.AUTOTUNE)"],
        """\
  dataset = (
      tf.data.Dataset.from_tensor_slices(…)
      .map(f)
      .batch(32)
+     .prefetch(tf.data.AUTOTUNE)
  )""",
    ),
    "one changes": (
        CHAIN,
        ["from_tensor_slices(…)", "map(f, num_parallel_calls=tf.data.AUTOTUNE)", "batch(32)"],
        """\
  dataset = (
      tf.data.Dataset.from_tensor_slices(…)
-     .map(f)
+     .map(f, num_parallel_calls=tf.data.AUTOTUNE)
      .batch(32)
  )""",
    ),
    "the last changes": (
        CHAIN,
        ["from_tensor_slices(…)", "map(f)", "batch(64)"],
        """\
  dataset = (
      tf.data.Dataset.from_tensor_slices(…)
      .map(f)
-     .batch(32)
+     .batch(64)
  )""",
    ),
    "two change places": (
        CHAIN,
        ["from_tensor_slices(…)", "batch(32)", "map(f)"],
        """\
  dataset = (
      tf.data.Dataset.from_tensor_slices(…)
-     .map(f)
      .batch(32)
+     .map(f)
  )""",
    ),
    "one goes": (
        CHAIN,
        ["from_tensor_slices(…)", "batch(32)"],
        """\
  dataset = (
      tf.data.Dataset.from_tensor_slices(…)
-     .map(f)
      .batch(32)
  )""",
    ),
    "the source is a class": (
        ["TFRecordDataset(…)", "map(f)"],
        ["TFRecordDataset(…)", "cache()", "map(f)"],
        """\
  dataset = (
      tf.data.TFRecordDataset(…)
+     .cache()
      .map(f)
  )""",
    ),
    "there are several sources": (
        ["2 sources", "zip()"],
        ["2 sources", "zip()", "prefetch(2)"],
        """\
  dataset = (
      2 sources
      .zip()
+     .prefetch(2)
  )""",
    ),
}


@pytest.mark.parametrize("case", sorted(GOLDEN))
def test_diff(case: str):
    """What goes stands above what takes its place, and the rest is as the caller wrote it."""
    before, after, text = GOLDEN[case]
    assert diff(before, after) == text


@pytest.mark.parametrize("case", sorted(GOLDEN))
def test_a_diff_can_be_applied(case: str):
    """Its lines without those that go are the new chain, without those that come the old one."""
    before, after, _ = GOLDEN[case]
    lines = diff(before, after).splitlines()[1:-1]

    def side(sign: str) -> list[str]:
        chain = [line[6:] for line in lines if line[0] in (" ", sign)]
        return [chain[0].removeprefix("tf.data.").removeprefix("Dataset."), *(c[1:] for c in chain[1:])]

    assert side("-") == before
    assert side("+") == after


def test_written_is_what_python_knows():
    """The caller's chain, or nothing where there is none."""
    assert written(analysed(pipeline=pipeline(*CHAIN))) == CHAIN
    assert written(analysed(pipeline=Missing("no pipeline"))) == []

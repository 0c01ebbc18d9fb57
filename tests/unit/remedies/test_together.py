"""The best combination of changes: what shows when the first is made."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, analysed, sampled
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies import together

READER = Part("TFRecord", "TFRecordDataset(8 files)", 1 * MS, 0.1, {"files": (8, 1000)}, streams=(8, 5.0))
BATCH = Part("Batch", "batch(10)", 0.0, 1.0, {"size": 10})


def decode(parallel: float = 2.0) -> Part:
    """Give a map that takes 40 ms for a batch."""
    return Part("Map", "map(decode)", 4 * MS, 1.0, {"function": Function("decode")}, parallel=parallel)


def asked(*edits: Edit) -> Suggestion:
    """Give what a check suggests."""
    return Suggestion("check/remedy", "check", "text", "+ code", Quantity(1.5, "x"), edits=edits)


def suggested(of: Pipeline, *suggestions: Suggestion, **parts: Any) -> Suggestion | None:
    """Combine the changes of a job that waits 50 ms and computes for 10."""
    step = {"wait": 50 * MS, "compute": 9 * MS, "dispatch": 1 * MS, "cores": 2, "replay_cpu": 10 * MS}
    return together.suggest(analysed(**{**step, **parts}, pipeline=of), suggestions)


def test_one_after_the_other():
    """Without a prefetch input and step alternate; then the map is the limit, then the cores."""
    found = suggested(
        sampled(READER, decode(), BATCH, prefetch_injected=False),
        asked(Edit("prefetch")),
        asked(Edit("x", 9)),  # type: ignore[arg-type]  # a stranger
    )
    assert found is not None
    assert (found.id, found.check) == ("check/together", "check")
    assert found.edits[:2] == (Edit("prefetch"), Edit("parallel", 1))
    assert found.text.index("prefetch") < found.text.index("map(decode)")
    assert "num_parallel_calls=tf.data.AUTOTUNE" in found.code
    assert "prefetch(tf.data.AUTOTUNE)" in found.code
    assert isinstance(found.predicted, Quantity)
    assert found.predicted.value > 60 / 50


def test_each_is_counted_on_top_of_those_before():
    """What is said of the last is what all of them give."""
    found = suggested(sampled(READER, decode(), BATCH, prefetch_injected=False), asked(Edit("prefetch")))
    assert found is not None
    assert isinstance(found.predicted, Quantity)
    assert f"({found.predicted.value:.2f}x so far)." in found.text


@pytest.mark.parametrize(
    ("of", "edit"),
    [
        (sampled(decode(), BATCH), Edit("parallel", 0)),
        (sampled(READER, decode(1.0), BATCH, prefetch_injected=False), Edit("prefetch")),
        (sampled(READER, decode(), BATCH, prefetch_injected=False), Edit("cache_after", 1)),
    ],
    ids=["one change does it", "the next one gives nothing", "nobody asked for these"],
)
def test_silent(of: Pipeline, edit: Edit):
    """A single change speaks for itself, and what no finding asks for is not advised."""
    assert suggested(of, asked(edit)) is None

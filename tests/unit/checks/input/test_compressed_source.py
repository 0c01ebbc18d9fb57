"""compressed-source: unpacking is what the step waits for."""

from __future__ import annotations

import pytest

from tests.synthetic import MS, Part, chain, sampled
from tests.unit.checks.running import not_run, only, results, value, with_wait
from tfdiag.checks.input.compressed_source import CHECK
from tfdiag.model.pipeline import Edit, Node, Pipeline
from tfdiag.model.quantity import Missing, Quantity


def packed(cpu: float = 0.9, compression: str = "GZIP", files: int = 1, size: float = 1e5) -> Pipeline:
    """Give a pipeline that takes 100 ms to read a batch of ten."""
    node = {"files": (files, 1000), "compression": compression}
    return sampled(
        Part("TFRecord", "TFRecordDataset(…)", 10 * MS, cpu, node),
        Part("Batch", "batch(10)", 0.0, node={"size": 10}),
        bytes_each=size,
    )


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """Unpacking that keeps up is no finding."""
    assert bool(results(CHECK, **with_wait(share), pipeline=packed())) is fires


@pytest.mark.parametrize(("cpu", "fires"), [(0.49, False), (0.51, True)])
def test_fires_when_the_reader_computes(cpu: float, fires: bool):
    """A reader that waits is held up by storage, which larger files would make worse."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=packed(cpu))) is fires


@pytest.mark.parametrize(("compression", "fires"), [("", False), ("ZLIB", True)])
def test_fires_for_compressed_files(compression: str, fires: bool):
    """Plain files need no unpacking."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=packed(compression=compression))) is fires


def test_predicts_from_bytes():
    """A megabyte at 1 GB/s is a millisecond; the interval is wide."""
    found = only(CHECK, **with_wait(0.4), pipeline=packed(size=8e6))
    assert value(found, "part of its time in which TFRecordDataset(…) computes") == pytest.approx(0.9)
    (suggestion,) = found.suggestions
    assert suggestion.edits == ()
    gain = suggestion.predicted
    assert isinstance(gain, Quantity)
    assert gain.low is not None
    # 80 MB take 80 ms; on slow storage no less than now.
    assert gain.value == pytest.approx(100 / 80)
    assert gain.low < 1.0 + 1e-9


def test_nothing_is_predicted_without_bytes():
    """An unknown size is not taken for none."""
    found = packed()
    bare = Pipeline(
        **{name: getattr(found, name) for name in ("written", "sample_threads", "samples_missing", "graph")},
        samples=tuple(
            type(s)(s.kind, s.node, s.elements, s.wall_s, s.cpu_s, s.first_s) for s in found.samples
        ),
    )
    from tests.synthetic import analysed

    (result,) = CHECK.run(analysed(**with_wait(0.4), pipeline=bare))
    assert isinstance(result.suggestions[0].predicted, Missing)


@pytest.mark.parametrize(("files", "count"), [(1, 1), (2, 2)])
def test_suggests_an_interleave_of_several_files(files: int, count: int):
    """Several files can be unpacked side by side."""
    found = only(CHECK, **with_wait(0.4), pipeline=packed(files=files))
    assert len(found.suggestions) == count
    if count > 1:
        assert found.suggestions[1].edits == (Edit("interleave", 0, 2),)


def test_undecided_without_samples():
    """Whether a reader computes is known from running it alone."""
    graph = (Node(0, "TFRecordDataset", "TFRecordDataset(…)", compression="GZIP"),)
    assert "alone" in not_run(CHECK, **with_wait(0.4), pipeline=chain(("TFRecord", 100 * MS), graph=graph))

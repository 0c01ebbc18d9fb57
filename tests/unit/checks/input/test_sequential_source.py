"""sequential-source: files are read one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, chain, sampled
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.sequential_source import CHECK
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Missing, Quantity

READ = Function("read", datasets=("TFRecordDatasetV2",))


def reading(
    op: str = "TFRecord",
    *,
    part: float = 0.9,
    cpu: float = 0.2,
    cache: bool = False,
    streams: tuple[int, float] | None = None,
    **node: Any,
) -> Pipeline:
    """Give a pipeline that takes 100 ms for a batch of ten, this part of it in a reader of eight files."""
    label = "flat_map(read)" if op == "FlatMap" else f"{op}Dataset(…)"
    return sampled(
        Part("TensorSlice", "from_tensor_slices(…)", 1e-9, node={"cardinality": 8}),
        Part(op, label, part * 10 * MS, cpu, {"files": (8, 10**9), **node}, streams=streams),
        *([Part("Cache", "cache()", 1e-9)] if cache else []),
        Part("Map", "map(decode)", (1 - part) * 10 * MS, 1.0, {"function": Function("decode")}),
        Part("Batch", "batch(10)", 0.0, node={"size": 10}),
    )


@pytest.mark.parametrize(("share", "fires"), [(0.05, False), (0.06, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """A reader that keeps up is no finding; nine tenths of the wait are its own."""
    assert bool(results(CHECK, **with_wait(share), pipeline=reading())) is fires


@pytest.mark.parametrize(("files", "fires"), [(1, False), (2, True)])
def test_fires_for_several_files(files: int, fires: bool):
    """A single file can't be read side by side with another."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=reading(files=(files, 1000)))) is fires


@pytest.mark.parametrize(
    ("op", "fires"),
    [("TFRecord", True), ("TextLine", True), ("FixedLengthRecord", True), ("Range", False)],
)
def test_fires_for_readers(op: str, fires: bool):
    """Other sources read no files."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=reading(op))) is fires


@pytest.mark.parametrize(
    ("function", "fires"),
    [
        (READ, True),
        (Function("f", datasets=("RangeDataset",)), True),
        (Function("f"), False),
        (Function("f", datasets=("GeneratorDataset",)), False),
        (Function("f", datasets=("TFRecordDataset",), python=True), False),
    ],
)
def test_fires_for_functions_that_make_datasets(function: Function, fires: bool):
    """Generators and Python functions are other checks' business."""
    of = reading("FlatMap", files=None, function=function)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


@pytest.mark.parametrize(("op", "fires"), [("Interleave", True), ("ParallelInterleave", False)])
def test_fires_for_a_serial_interleave(op: str, fires: bool):
    """An interleave without parallel calls reads one file at a time too."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=reading(op, function=READ))) is fires


@pytest.mark.parametrize(
    ("cores", "cpu", "fires"), [(1, 0.4, True), (1, 0.6, False), (2, 0.6, True), (2, 0.4, True)]
)
def test_needs_cores_or_waits(cores: int, cpu: float, fires: bool):
    """On one core only waits overlap."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=reading(cpu=cpu), cores=cores)) is fires


def test_leaves_compressed_files_to_their_own_check():
    """Unpacking has a cause of its own."""
    assert not results(CHECK, **with_wait(0.4), pipeline=reading(compression="GZIP"))


def test_is_silent_below_a_cache():
    """What a cache keeps is not read again."""
    assert not results(CHECK, **with_wait(0.4), pipeline=reading(cache=True))


def test_is_silent_when_the_map_is_slower():
    """The step waits for the other stage then."""
    assert not results(CHECK, **with_wait(0.4), pipeline=reading(part=0.4))


def test_shows_its_numbers():
    """Wait, time, files and waits; the cost is the reader's part of the wait."""
    found = only(CHECK, **with_wait(0.4), pipeline=reading())
    assert value(found, "time of TFRecordDataset(…) for a batch") == pytest.approx(90 * MS)
    files = evidence(found, "files or datasets that it reads")
    assert files.threshold is not None
    assert (value(found, files.name), files.threshold.value) == (8, 2)
    assert value(found, "part of its time in which TFRecordDataset(…) waits") == pytest.approx(0.8)
    assert found.finding.cost.value == pytest.approx(0.4 * 0.9)


def test_suggests_an_interleave():
    """The number of streams is written out, and no larger than the number of files."""
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=reading()).suggestions
    assert suggestion.edits == (Edit("interleave", 1, 8),)
    assert (
        "+     .interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=8)" in suggestion.code
    )
    assert isinstance(suggestion.predicted, Quantity)
    # 90 ms of reading: 72 / 8 of waits and 18 / 4 of computing are hidden behind 60 ms of step.
    assert suggestion.predicted.value == pytest.approx(100 / 60)


def test_suggests_an_interleave_with_the_callers_function():
    """A flat_map becomes an interleave of the same function."""
    of = reading("FlatMap", function=READ, files=None)
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=of).suggestions
    assert "-     .flat_map(read)\n+     .interleave(read, cycle_length=8" in suggestion.code


@pytest.mark.parametrize("of", [Missing("gone"), Pipeline()])
def test_undecided_without_stages(of: Pipeline | Missing):
    """A pipeline that nobody knows is not called fine."""
    assert not_run(CHECK, **with_wait(0.4), pipeline=of)


def test_the_runtimes_model_is_enough():
    """Without samples a reader is known, but not its files."""
    assert not results(CHECK, **with_wait(0.4), pipeline=chain(("TFRecord", 100 * MS), ("BatchV2", 1 * MS)))


def test_predicts_what_was_sampled():
    """90 ms of reading took 18 with eight files at a time, so 10 ms of map are what the step waits for."""
    parts = {"wait": 60 * MS, "compute": 39 * MS, "dispatch": 1 * MS, "cores": 8}
    found = only(CHECK, **parts, pipeline=reading(streams=(8, 5.0)))
    (suggestion,) = found.suggestions
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 40)
    assert "sampled alone" in suggestion.predicted.source
    assert suggestion.edits[0].value == 8


@pytest.mark.parametrize(("faster", "id"), [(1.12, "interleave"), (1.1, "fewer-files")])
def test_does_not_advise_what_was_seen_to_give_nothing(faster: float, id: str):  # noqa: A002
    """Where several at a time are hardly faster, files themselves are what costs."""
    found = only(CHECK, **with_wait(0.4), pipeline=reading(streams=(8, faster)))
    (suggestion,) = found.suggestions
    assert suggestion.id == f"sequential-source/{id}"
    if id == "fewer-files":
        assert suggestion.edits == ()
        assert isinstance(suggestion.predicted, Missing)
        assert "8 files" in suggestion.text


def test_functions_that_wait_in_readers_get_threads():
    """Functions share as many threads as there are cores, however many files are read at a time."""
    inner = Function("read", datasets=("RangeDataset", "MapDataset"))
    of = reading("FlatMap", function=inner, files=None, streams=(8, 5.0))
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=of).suggestions
    assert suggestion.edits[1] == Edit("threads", value=8)
    assert "private_threadpool_size = 8" in suggestion.code

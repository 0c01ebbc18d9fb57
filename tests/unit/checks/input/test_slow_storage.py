"""slow-storage: the input waits for its files."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, chain, sampled
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.slow_storage import CHECK
from tfdiag.model.pipeline import Edit, Function, Node, Pipeline
from tfdiag.model.quantity import Quantity

LOAD = Function("load", reads_files=True)


def loading(cpu: float = 0.1, function: Function = LOAD, op: str = "Map", count: int = 1000) -> Pipeline:
    """Give a pipeline whose map takes 100 ms for a batch of ten."""
    return sampled(
        Part("TensorSlice", "from_tensor_slices(…)", 1e-9, node={"cardinality": count}),
        Part(op, "map(load)", 10 * MS, cpu, {"function": function, "cardinality": count}),
        Part("Batch", "batch(10)", 0.0, node={"size": 10}),
    )


def one_file(cpu: float = 0.1, files: int = 1, **node: Any) -> Pipeline:
    """Give a pipeline that reads a file."""
    return sampled(
        Part("TFRecord", "TFRecordDataset(…)", 10 * MS, cpu, {"files": (files, 1000), **node}),
        Part("Batch", "batch(10)", 0.0, node={"size": 10}),
    )


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """Storage that keeps up is no finding."""
    assert bool(results(CHECK, **with_wait(share), pipeline=one_file())) is fires


@pytest.mark.parametrize(("cpu", "fires"), [(0.49, True), (0.51, False)])
@pytest.mark.parametrize("of", [loading, one_file])
def test_fires_when_the_stage_waits(of: Any, cpu: float, fires: bool):
    """A stage that computes for half of its time does not wait for storage."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of(cpu))) is fires


@pytest.mark.parametrize(("files", "fires"), [(1, True), (2, False)])
def test_leaves_several_files_to_sequential_source(files: int, fires: bool):
    """Several files that are read one by one have another cure."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=one_file(files=files))) is fires


@pytest.mark.parametrize(
    ("function", "fires"),
    [(LOAD, True), (Function("f"), False), (Function("f", reads_files=True, python=True), False)],
)
def test_fires_for_maps_that_read_files(function: Function, fires: bool):
    """Python functions wait for other things too."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=loading(function=function))) is fires


def test_shows_its_numbers():
    """Waits and bytes a second."""
    found = only(CHECK, **with_wait(0.4), pipeline=loading())
    waits = evidence(found, "part of its time in which map(load) waits")
    assert value(found, waits.name) == pytest.approx(0.9)
    assert value(found, "what one thread reads") == pytest.approx(10 * 1000 / 0.1)
    assert found.finding.cost.value == pytest.approx(0.4)


def test_suggests_more_reads_than_cores_and_a_cache():
    """Who waits needs no core; what fits can be kept."""
    reads, cache = only(CHECK, **with_wait(0.4), pipeline=loading(), cores=2).suggestions
    assert reads.edits == (Edit("parallel", 1, 16), Edit("threads", value=16))
    assert "+ options.threading.private_threadpool_size = 16" in reads.code
    assert "+     .map(load, num_parallel_calls=16)" in reads.code
    assert isinstance(reads.predicted, Quantity)
    assert reads.predicted.value == pytest.approx(100 / 60)
    assert cache.edits == (Edit("cache_after", 2),)


@pytest.mark.parametrize(("count", "cached"), [(4 * 2**20, True), (5 * 2**20, False)])
def test_suggests_a_cache_only_where_it_fits(count: int, cached: bool):
    """Half of the 8 GiB is what a cache may take: 1 kB each."""
    found = only(CHECK, **with_wait(0.4), pipeline=loading(count=count), epoch_known=False)
    assert any(s.id.endswith("/cache") for s in found.suggestions) is cached


def test_suggests_more_streams_for_a_parallel_interleave():
    """What is parallel already may be more so."""
    read = Function("read", datasets=("TFRecordDataset",))
    node = {"function": read, "files": (100, 10**6), "parallelism": 4}
    of = sampled(
        Part("TensorSlice", "from_tensor_slices(…)", 1e-9),
        Part("ParallelInterleave", "interleave(read)", 40 * MS, 0.05, node),
        Part("Batch", "batch(10)", 0.0, node={"size": 10}),
    )
    suggestion = only(CHECK, **with_wait(0.4), pipeline=of, epoch_known=False).suggestions[0]
    assert suggestion.edits == (Edit("interleave", 1, 16),)


def test_undecided_without_samples():
    """Whether a stage waits is known from running it alone."""
    graph = (Node(0, "TFRecordDataset", "TFRecordDataset(…)", files=(1, 10)),)
    of = chain(("TFRecord", 100 * MS), graph=graph)
    assert "alone" in not_run(CHECK, **with_wait(0.4), pipeline=of)

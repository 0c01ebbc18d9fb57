"""python-function-in-map: a Python function that threads don't make faster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, chain, sampled, stage
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.python_function_in_map import CHECK
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Missing, Quantity

PYTHON = Function("f", python=True, stateful=True)


def mapped(
    function: Function = PYTHON, *, op: str = "Map", parallel: float | None = 1.0,
    before: dict[str, Any] | None = None, **node: Any,
) -> Pipeline:  # fmt: skip
    """Give a sampled map of 40 ms a batch, this many times as fast on two threads as on one."""
    return sampled(
        Part("Range", "range(…)", node=before or {}),
        Part(op, "map(f)", 4 * MS, 1.0, {"function": function, **node}, parallel=parallel),
        Part("Batch", "batch(10)", 0.0, 1.0, {"size": 10}),
    )


def running(threads: float, seconds: float = 40 * MS, name: str = "ParallelMapV2") -> Pipeline:
    """Give what the runtime tells about a parallel map of a Python function."""
    return Pipeline(
        (stage(1, "Range", 0.0), stage(2, name, seconds, threads=threads), stage(3, "Prefetch", 0.0)),
        3,
        ("range(…)", "map(f)"),
        python_functions=("f",),
    )


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """A Python function that keeps up is no finding."""
    assert bool(results(CHECK, **with_wait(share), pipeline=mapped())) is fires


@pytest.mark.parametrize(("faster", "fires"), [(1.0, True), (1.32, True), (1.35, False), (2.0, False)])
@pytest.mark.parametrize("op", ["Map", "ParallelMap"])
def test_fires_when_half_of_it_is_locked(op: str, faster: float, fires: bool):
    """Half locked: two threads are 4/3 as fast as one. Whether it runs in parallel now does not matter."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=mapped(op=op, parallel=faster))) is fires


@pytest.mark.parametrize(("function", "fires"), [(PYTHON, True), (Function("f"), False)])
def test_fires_for_python_only(function: Function, fires: bool):
    """A lock that is not the interpreter's has another cure."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=mapped(function))) is fires


def test_a_generator_has_its_own_check():
    """Only maps are looked at."""
    assert not results(CHECK, **with_wait(0.4), pipeline=mapped(op="Filter"))


@pytest.mark.parametrize(("busy", "fires"), [(0.49, False), (0.51, True), (1.49, True), (1.51, False)])
def test_without_a_sample_the_busy_cores_tell(busy: float, fires: bool):
    """One core busy although four threads are there: they take turns."""
    parts = {"pipeline": running(4, 160 * MS), "input_alone": 40 * MS, "input_cpu": busy}
    assert bool(results(CHECK, **with_wait(0.4), **parts)) is fires


def test_without_a_sample_a_serial_map_is_another_check():
    """Nobody tried threads, so they are tried first."""
    of = running(1, name="Map")
    assert not results(CHECK, **with_wait(0.4), pipeline=of, input_alone=40 * MS, input_cpu=1.0)


@pytest.mark.parametrize("of", [running(1), running(4, 160 * MS)])
def test_undecided_without_sample_and_processor_time(of: Pipeline):
    """Neither threads nor the cores that they keep busy were seen."""
    assert "map(f)" in not_run(CHECK, **with_wait(0.4), pipeline=of)


def test_undecided_without_times_of_stages():
    """Without times no stage can be called the slowest."""
    assert "time" in not_run(CHECK, **with_wait(0.4), pipeline=chain(("Map", 0.0)))


def test_undecided_without_the_pipeline():
    """A pipeline that nobody knows is not called fine."""
    assert "gone" in not_run(CHECK, **with_wait(0.4), pipeline=Missing("gone"))


def test_shows_its_numbers():
    """The wait, the map's time, and the part that only one thread can do."""
    found = only(CHECK, **with_wait(0.4), pipeline=mapped(parallel=1.25))
    assert value(found, "time of map(f) for a batch") == pytest.approx(40 * MS)
    locked = evidence(found, "part of map(f) that only one thread at a time can do")
    assert locked.threshold is not None
    assert (locked.threshold.value, locked.relation) == (0.5, "above")
    # Two threads do it in 0.8 of the time: 0.6 is locked, and the other 0.4 is shared.
    assert value(found, locked.name) == pytest.approx(0.6)
    assert found.finding.where == "map(f)"


def test_predicts_a_function_without_a_lock():
    """80 ms on four cores are 20, twice that 40, a quarter 5; beside 10 ms of step."""
    of = sampled(
        Part("Range", "range(…)"), Part("Map", "map(f)", 80 * MS, 0.1, {"function": PYTHON}, parallel=1.0)
    )
    parts = {"wait": 70 * MS, "compute": 9 * MS, "dispatch": 1 * MS}
    first, second = only(CHECK, **parts, cores=4, pipeline=of).suggestions
    gain = first.predicted
    assert isinstance(gain, Quantity)
    assert gain.value == pytest.approx(80 / 20)
    assert gain.low == pytest.approx(80 / (40 * 1.1))
    assert gain.high == pytest.approx(80 / 10)
    assert "twice the work to a quarter" in gain.source
    assert isinstance(second.predicted, Quantity)
    assert second.predicted.value == pytest.approx(80 / 10, rel=0.01)


@pytest.mark.parametrize(
    ("node", "before", "tried"),
    [
        ({"cardinality": 10_000}, {}, True),
        ({"cardinality": 10_000}, {"random": True}, False),
        ({"cardinality": -1}, {}, False),
        ({}, {}, False),
        ({"cardinality": 2**22 - 2**19}, {}, True),  # of 1000 bytes each: a bit below half of 8 GiB
        ({"cardinality": 2**22 + 2**18}, {}, False),
    ],
)
def test_results_are_kept_only_where_they_fit(node: dict[str, Any], before: dict[str, Any], tried: bool):
    """A trial keeps them in memory, so it must be known that there is room, and that the order may repeat."""
    _, kept = only(CHECK, **with_wait(0.4), pipeline=mapped(before=before, **node)).suggestions
    assert kept.edits == ((Edit("cache_after", 1),) if tried else ())
    assert ".cache()" in kept.code
    assert "same for the same element" in kept.risk


def test_a_random_function_is_not_worked_out_beforehand():
    """Its results must differ from epoch to epoch."""
    function = Function("f", python=True, random=True)
    found = only(CHECK, **with_wait(0.4), pipeline=mapped(function))
    assert [one.id for one in found.suggestions] == ["python-function-in-map/tensorflow-ops"]

"""python-dataset-workers: a PyDataset with too few workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.python_dataset_workers import CHECK
from tfdiag.model.pipeline import Edit, Pipeline, PyInput
from tfdiag.model.quantity import Missing, Quantity

JOB: dict[str, Any] = {"job": {"input": "PyDataset"}}


def asked(
    item: float = 100 * MS,
    *,
    cpu: float = 0.1,
    together: float | None = 0.25,
    workers: int = 1,
    processes: bool = False,
    picklable: str = "",
) -> Pipeline:
    """Give a PyDataset whose calls take so long, and this part of it for each batch on four threads."""
    threads = () if together is None else (item * together,) * 5
    return Pipeline(
        py_input=PyInput(
            workers, processes, 10, (item,) * 10, 10 * item * cpu, threads, 100, picklable
        )
    )  # fmt: skip


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """One worker that keeps up is no finding."""
    assert bool(results(CHECK, **with_wait(share), pipeline=asked(), **JOB)) is fires


@pytest.mark.parametrize(("kind", "fires"), [("PyDataset", True), ("generator", False)])
def test_fires_for_a_py_dataset(kind: str, fires: bool):
    """Other inputs have no workers."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=asked(), job={"input": kind})) is fires


@pytest.mark.parametrize(("item", "fires"), [(19.9 * MS, False), (20.1 * MS, True)])
def test_fires_when_batches_are_what_it_waits_for(item: float, fires: bool):
    """A wait of 40 ms is not explained by calls of less than half of it."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=asked(item), **JOB)) is fires


@pytest.mark.parametrize(("workers", "fires"), [(1, True), (3, True), (4, False)])
def test_fires_for_fewer_threads_than_cores(workers: int, fires: bool):
    """With a thread for each core there is nothing to add."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=asked(workers=workers), **JOB)) is fires


@pytest.mark.parametrize(("together", "fires"), [(0.62, False), (0.63, True)])
def test_fires_for_enough_threads_where_the_lock_binds(together: float, fires: bool):
    """On four threads 0.625 of the time for a batch means that half of it is locked."""
    of = asked(cpu=1.0, together=together, workers=4)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of, **JOB)) is fires


@pytest.mark.parametrize(("workers", "fires"), [(3, True), (4, False)])
def test_fires_for_fewer_processes_than_cores(workers: int, fires: bool):
    """Processes have no lock in common."""
    of = asked(cpu=1.0, together=1.0, workers=workers, processes=True)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of, **JOB)) is fires


@pytest.mark.parametrize(("cores", "fires"), [(1, False), (2, True)])
def test_needs_cores_for_what_computes(cores: int, fires: bool):
    """Processes on one core compute no faster."""
    of = asked(cpu=1.0, together=1.0)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of, cores=cores, **JOB)) is fires


def test_suggests_threads_for_what_waits():
    """The time of a call over the threads."""
    found = only(CHECK, **with_wait(0.4), pipeline=asked(), **JOB)
    assert value(found, "time of __getitem__ for a batch") == pytest.approx(100 * MS)
    faster = evidence(found, "how much faster batches are made with the workers suggested")
    assert value(found, faster.name) == pytest.approx(4)
    (suggestion,) = found.suggestions
    assert suggestion.edits == (Edit("workers", value=4),)
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 60)


def test_suggests_processes_where_the_lock_binds():
    """Only processes share what computes in Python; nobody tries that in the caller's program."""
    of = asked(cpu=1.0, together=1.0, picklable="TypeError: no")
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=of, **JOB).suggestions
    assert suggestion.edits == ()
    assert "use_multiprocessing=True" in suggestion.code
    assert "TypeError: no" in suggestion.risk


def test_without_threads_all_that_computes_may_be_locked():
    """The processor time is the most that can hold the lock."""
    found = only(CHECK, **with_wait(0.4), pipeline=asked(cpu=0.8, together=None), **JOB)
    assert value(found, "part of __getitem__ that only one thread at a time can do") == pytest.approx(0.8)
    assert found.suggestions[0].id.endswith("/processes")


@pytest.mark.parametrize(
    "of", [Missing("gone"), Pipeline(), Pipeline(py_input=PyInput(1, False, 10, (), 0.0))]
)
def test_undecided_without_calls(of: Pipeline | Missing):
    """Nobody knows why a PyDataset is slow that was not asked."""
    assert "not asked" in not_run(CHECK, **with_wait(0.4), pipeline=of, **JOB)

"""oversubscribed-threads: more threads want to run than there are cores, at a cost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_host import host
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.checks.environment.oversubscribed_threads import CHECK
from tfdiag.model.host import HostProcess
from tfdiag.model.quantity import Missing

JOB: dict[str, Any] = {"compute": 10 * MS, "dispatch": 1 * MS, "cores": 4}
FULL: dict[str, Any] = {"machine_busy": 4.0, "runnable": 9.0}


def beside(
    cores: float, tensorflow: bool = True, own: float | None = None, **readings: Any
) -> dict[str, Any]:
    """Give a full machine with another process that takes so many cores."""
    other = HostProcess(4242, "python", cores, tensorflow)
    rest = 4.0 - cores if own is None else own
    return {**JOB, **host(own=rest, fields={"processes": (other,)}, **(FULL | readings))}


def told(threads: int, kernel: float, **readings: Any) -> dict[str, Any]:
    """Give a job with a pool of so many threads that spends so many cores in the kernel."""
    return {
        **JOB, "environment": {"intra_op_threads": threads},
        **host(own=3.9, **(FULL | {"system_cpu": kernel} | readings)),
    }  # fmt: skip


@pytest.mark.parametrize(("cores", "fires"), [(0.2, False), (0.22, True)])
def test_fires_on_what_another_job_takes(cores: float, fires: bool):
    """Of four cores a fifth of one is five percent."""
    assert bool(results(CHECK, **beside(cores))) is fires


@pytest.mark.parametrize(("kernel", "fires"), [(0.2, False), (0.22, True)])
def test_fires_on_what_switching_takes(kernel: float, fires: bool):
    """Threads beyond the cores cost what the job spends in the kernel."""
    assert bool(results(CHECK, **told(64, kernel))) is fires


@pytest.mark.parametrize(("threads", "fires"), [(0, False), (4, False), (5, True)])
def test_threads_up_to_the_cores_are_none_too_many(threads: int, fires: bool):
    """As many threads as cores, or as TensorFlow chooses, are right; the kernel has other work too."""
    assert bool(results(CHECK, **told(threads, 1.0))) is fires


@pytest.mark.parametrize(("queue", "fires"), [(5.9, False), (6.1, True)])
def test_fires_when_threads_wait_for_cores(queue: float, fires: bool):
    """Half as many again as there are cores."""
    assert bool(results(CHECK, **beside(2.0, runnable=queue))) is fires


@pytest.mark.parametrize(("busy", "fires"), [(3.55, False), (3.65, True)])
def test_idle_cores_are_taken_from_nobody(busy: float, fires: bool):
    """Nine tenths of the cores are busy, or there was room for all."""
    assert bool(results(CHECK, **beside(2.0, own=1.5, machine_busy=busy))) is fires


def test_threads_of_ones_own_leave_cores_idle():
    """They wait for each other: what they cost is seen without a full machine."""
    assert value(only(CHECK, **told(64, 0.8, machine_busy=2.9)), "cores that were busy") == pytest.approx(2.9)


def test_other_processes_are_another_matter():
    """Without TensorFlow in it, another process is no thread too many of a training."""
    assert results(CHECK, **beside(2.0, tensorflow=False)) == []


def test_names_the_other_job():
    """Who it is, what it takes, and how many threads each should have."""
    found = only(CHECK, **beside(2.0))
    assert "python (process 4242)" in found.finding.title
    assert found.finding.cost.value == pytest.approx(0.5)
    assert value(found, "cores that python (process 4242) kept busy") == 2.0
    (share,) = found.suggestions
    assert "set_intra_op_parallelism_threads(2)" in share.code
    assert isinstance(share.predicted, Missing)


def test_nobody_took_more_than_there_was():
    """What another process used at other times does not count."""
    assert only(CHECK, **beside(3.0, own=3.0)).finding.cost.value == pytest.approx(0.25)


def test_names_the_setting():
    """The number of threads that TensorFlow was told, against the cores."""
    found = only(CHECK, **told(64, 1.0))
    assert "64 threads on 4 cores" in found.finding.title
    assert evidence(found, "threads that TensorFlow was told to use").relation == "above"
    assert "set_intra_op_parallelism_threads(4)" in found.suggestions[0].code


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (JOB, "not watched"),
        (beside(2.0, runnable=Missing("no /proc")), "no /proc"),
        (beside(2.0, machine_busy=Missing("no /proc")), "no /proc"),
        (told(64, 1.0, system_cpu=Missing("not counted")), "not counted"),
    ],
)
def test_undecided(parts: dict[str, Any], said: str):
    """What was not seen is not healthy."""
    assert said in not_run(CHECK, **parts)

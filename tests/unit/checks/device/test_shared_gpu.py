"""shared-gpu: somebody else computes on the GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_gpu import gpu, ours, stranger, telemetry
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.device.shared_gpu import CHECK
from tfdiag.model.gpu import GpuProcess
from tfdiag.model.quantity import Missing

FOREIGN = "it numbers them from outside of a container"


def shared(*processes: GpuProcess, **fields: Any) -> dict[str, Any]:
    """Give a job on a GPU with these processes."""
    of = telemetry(gpu(processes=processes, **fields))
    return {"accelerator": True, "compute": 10 * MS, "dispatch": 0.1 * MS, "gpu": of}


@pytest.mark.parametrize(("share", "fires"), [(0.05, False), (0.06, True)])
def test_fires_on_what_it_costs(share: float, fires: bool):
    """A process that hardly computes takes hardly anything."""
    assert bool(results(CHECK, **shared(ours(), stranger(share=share)))) is fires


def test_shows_who_it_is():
    """Process, name, memory and share, the busiest first."""
    found = only(CHECK, **shared(ours(), stranger(7, 0.1, name=""), stranger(share=0.3)))
    assert found.finding.title == "process 4242 (python) computes on GPU:0 too"
    assert value(found, "memory of process 7") == 2**29
    assert value(found, "time in which kernels of process 4242 (python) ran") == 0.3
    assert found.finding.cost.value == pytest.approx(0.9 * 0.4)


def test_children_are_no_strangers():
    """What the job started is the job."""
    assert results(CHECK, **shared(ours(), ours())) == []


def test_memory_alone_costs_no_time():
    """Who holds memory and computes nothing slows nobody down."""
    assert results(CHECK, **shared(ours(), stranger(share=0.0))) == []


def test_a_single_process_of_unknown_number_is_the_job():
    """In a container the numbers are others, but the job is on its GPU."""
    assert results(CHECK, **shared(stranger(share=0.9), processes_missing=FOREIGN)) == []


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (shared(stranger(1), stranger(2), processes_missing=FOREIGN), "container"),
        (shared(processes_missing="no permission"), "no permission"),
        (shared(ours(), stranger(utilisation=Missing("MIG hides it"))), "MIG hides it"),
    ],
)
def test_undecided(parts: dict[str, Any], said: str):
    """Whose processes they are, and what they do, may not be known."""
    assert said in not_run(CHECK, **parts)


def test_silent_without_a_gpu():
    """A machine without a GPU hears nothing of it."""
    assert results(CHECK) == []

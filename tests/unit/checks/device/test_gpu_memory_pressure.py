"""gpu-memory-pressure: memory is full, and steps lose time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_gpu import telemetry
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.device.gpu_memory_pressure import CHECK
from tfdiag.model.gpu import Allocator
from tfdiag.model.quantity import Missing, Quantity

LIMIT = Quantity(1000.0, "B")


def filled(share: float, lost: float = 0.2, **fields: Any) -> dict[str, Any]:
    """Give a job that fills this share of the memory, and takes so much longer than its replay."""
    used = Quantity(1000 * share, "B")
    allocator = Allocator("GPU:0", **{"in_use": used, "peak": used, "limit": LIMIT, **fields})
    return {
        "accelerator": True, "compute": 10 * MS, "dispatch": 1 * MS, "replay_call": 11 * MS * (1 - lost),
        "gpu": telemetry(allocators=(allocator,)),
    }  # fmt: skip


@pytest.mark.parametrize(("share", "fires"), [(0.949, False), (0.951, True)])
def test_fires_when_memory_is_full(share: float, fires: bool):
    """Room that is left is no pressure."""
    assert bool(results(CHECK, **filled(share))) is fires


@pytest.mark.parametrize(("lost", "fires"), [(0.045, False), (0.055, True)])
def test_fires_when_time_is_lost(lost: float, fires: bool):
    """A job that fills the memory and loses no time is well made."""
    assert bool(results(CHECK, **filled(0.99, lost))) is fires


def test_uses_the_samples_where_the_peak_is_older():
    """A peak from before the diagnosis says nothing about this job."""
    old = Missing("from before")
    assert results(CHECK, **filled(0.5, peak=old)) == []
    assert value(only(CHECK, **filled(0.99, peak=old)), "memory in use") == 990


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (filled(0.99, limit=Missing("no limit known")), "no limit known"),
        (filled(0.99, peak=Missing("a"), in_use=Missing("silent")), "silent"),
        ({**filled(0.99), "gpu": Missing("not looked")}, "not looked"),
        ({**filled(0.99), "gpu": telemetry()}, "not read"),
        ({**filled(0.99), "replay": False}, "full memory"),
    ],
)
def test_undecided(parts: dict[str, Any], said: str):
    """An allocator that does not tell is not one with room."""
    assert said in not_run(CHECK, **parts)


def test_silent_without_a_gpu():
    """A machine without a GPU hears nothing of it."""
    assert results(CHECK) == []

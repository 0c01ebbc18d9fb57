"""slow-link: the bus is slower than the GPU supports, and copies take time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_gpu import gpu, samples, telemetry
from tests.unit.checks.running import evidence, not_run, only, results
from tfdiag.checks.transfer.slow_link import CHECK
from tfdiag.model.quantity import Missing, Quantity

RATE = 2e9
"""Bytes a second of a link of generation 4 with one lane."""


def linked(fields: Any = None, **readings: Any) -> dict[str, Any]:
    """Give a job on a GPU whose link has one lane of sixteen, and is a fifth full."""
    known = {"pcie_width": 1.0, "pcie_received": 0.2 * RATE, "pcie_sent": 0.0}
    of = telemetry(gpu(samples=samples(**{**known, **readings}), **(fields or {})))
    return {"accelerator": True, "compute": 10 * MS, "dispatch": 0.1 * MS, "gpu": of}


@pytest.mark.parametrize(("share", "fires"), [(0.05, False), (0.057, True)])
def test_fires_on_what_crosses_the_link(share: float, fires: bool):
    """Fifteen sixteenths of the copies' time would be saved; a link that carries little costs little."""
    assert bool(results(CHECK, **linked(pcie_received=share * RATE))) is fires


@pytest.mark.parametrize(("now", "fires"), [((3, 16), True), ((4, 8), True), ((4, 16), False)])
def test_fires_for_older_and_for_narrower(now: tuple[int, int], fires: bool):
    """Generation and width are two things."""
    generation, width = now
    full = {"pcie_generation": generation, "pcie_width": width, "pcie_received": 12e9}
    assert bool(results(CHECK, **linked(**full))) is fires


def test_shows_the_link():
    """What is, and what could be; without a trace the cost is an estimate and blames nobody."""
    found = only(CHECK, **linked())
    assert found.finding.title == "GPU:0 sits on PCIe 4 x1, and supports PCIe 4 x16"
    assert evidence(found, "PCIe lanes while busy").relation == "below"
    assert evidence(found, "PCIe generation while busy").threshold is None
    assert found.finding.severity == "info"
    assert found.finding.cost.value == pytest.approx(0.2 * 15 / 16)


def test_a_link_steps_down_while_idle():
    """What counts is the best of the busy samples."""
    stepped = {
        "utilisation": [0.0] * 8 + [0.9] * 9,
        "pcie_generation": [1.0] * 9 + [4.0] * 8,
        "pcie_width": 16.0,
    }
    assert results(CHECK, **linked(**stepped)) == []


@pytest.mark.parametrize(("slot", "said"), [(3.0, "the best that the slot has"), (4.0, "could do more")])
def test_says_what_is_the_limit(slot: float, said: str):
    """The slot, or the link in it."""
    fields = {"pcie_max_generation": Quantity(slot, "generation")}
    found = only(CHECK, **linked(fields, pcie_generation=3, pcie_width=16, pcie_received=8e9))
    assert said in found.finding.detail


def test_an_old_driver_knows_the_slot_only():
    """What the GPU could do elsewhere is not known then; what it could do here is."""
    fields = {"pcie_gpu_generation": Missing("too old"), "pcie_max_generation": Quantity(3.0, "generation")}
    assert only(CHECK, **linked(fields)).finding.title.endswith("supports PCIe 3 x16")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (linked(pcie_width=Missing("not supported")), "not supported"),
        (linked({"pcie_max_width": Missing("too old")}), "too old"),
        (linked(pcie_received=Missing("a"), pcie_sent=Missing("b")), "crosses the link"),
    ],
)
def test_undecided(parts: dict[str, Any], said: str):
    """A link that nobody saw is not a fast one."""
    assert said in not_run(CHECK, **parts)


def test_silent_without_a_gpu():
    """A machine without a GPU hears nothing of it."""
    assert results(CHECK) == []

"""cross-device-copies: tensors go back and forth between devices inside a step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.unit.checks.placements import GPU_STEP, copy, copying, mixed, on_cpu
from tests.unit.checks.running import not_run, only, results
from tfdiag.checks.transfer.cross_device_copies import CHECK
from tfdiag.model.quantity import Missing

THERE, BACK = copy(), copy("host to device", reader="net/dense_2/MatMul")


def both(seconds: float) -> dict[str, Any]:
    """Give the times of copies in both directions."""
    return copying(("device to host", seconds / 2), ("host to device", seconds / 2))


@pytest.mark.parametrize(("seconds", "fires"), [(5.2 * MS, True), (4.9 * MS, False)])
def test_fires_when_copies_inside_the_step_cost(seconds: float, fires: bool):
    """Both directions together decide."""
    assert bool(results(CHECK, **GPU_STEP, placement=mixed(copies=(THERE, BACK), **both(seconds)))) is fires


def test_points_at_what_crosses():
    """Op, layer, type, shape and devices."""
    found = only(CHECK, **GPU_STEP, placement=mixed(copies=(THERE, BACK), **both(30 * MS)))
    assert "Relu of layer dense_1, float32(1000, 1000), /GPU:0 to /CPU:0" in found.finding.where
    assert "net/dense_1/Cumsum" in found.suggestions[0].text


@pytest.mark.parametrize("purpose", ["input", "output", "variable", "peer"])
def test_other_copies_are_not_its_own(purpose: str):
    """The batch, the results, variables on the CPU, and what accelerators exchange: other checks."""
    placement = mixed(copies=(copy(purpose=purpose),), **both(50 * MS))
    assert results(CHECK, **GPU_STEP, placement=placement) == []


def test_silent_where_nothing_can_cross():
    """One device, or a step on the CPU."""
    assert results(CHECK, placement=on_cpu(copies=(THERE,), **both(50 * MS))) == []
    assert results(CHECK, **GPU_STEP, placement=on_cpu()) == []
    assert results(CHECK, **GPU_STEP, placement=mixed()) == []


def test_says_what_is_missing():
    """Copies that were not timed are no verdict."""
    placement = mixed(copies=(THERE,), times_missing="the profiler is taken")
    assert "the profiler is taken" in not_run(CHECK, **GPU_STEP, placement=placement)
    assert not_run(CHECK, **GPU_STEP, placement=Missing("no graph")) == "no graph"

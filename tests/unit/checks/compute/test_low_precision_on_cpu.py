"""low-precision-on-cpu: float16 on a processor that is slow with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_compute import peak, work
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.compute.low_precision_on_cpu import CHECK
from tfdiag.model.changes import Change
from tfdiag.model.quantity import Missing, Quantity

POLICY = {"dtype_policy": "mixed_float16"}


def low(slow: float, flops: float = 0.09, **parts: Any) -> dict[str, Any]:
    """Give a step of 100 ms with so many GFLOP in float16, on a processor that does 10 in float32."""
    compute = work({"float16": flops}, peak("float16", slow), peak("float32", 10))
    return {"compute": 99 * MS, "dispatch": 1 * MS, "work": compute, "job": POLICY, **parts}


@pytest.mark.parametrize(("slow", "fires"), [(5.1, False), (4.9, True)])
def test_fires_where_float32_is_twice_as_fast(slow: float, fires: bool):
    """What decides is what the processor showed, not what it is called."""
    assert bool(results(CHECK, **low(slow, flops=0.4))) is fires


@pytest.mark.parametrize(("flops", "fires"), [(0.0045, False), (0.0065, True)])
def test_fires_from_a_twentieth_of_the_step_on(flops: float, fires: bool):
    """Products of 4.5 ms that would take nearly nothing are no finding in a step of 100 ms."""
    assert bool(results(CHECK, **low(1.0, flops))) is fires


def test_shows_its_numbers_and_the_policy():
    """Both rates, the time, and a policy to go back to."""
    found = only(CHECK, **low(1.0, 0.05))
    assert value(found, "the machine in float16") == 1e9
    assert value(found, "the machine in float32") == 10e9
    assert value(found, "products in float16 per step, at the machine's best") == pytest.approx(50 * MS)
    assert found.finding.cost.value == pytest.approx(0.45)
    assert found.finding.where == "the policy mixed_float16"
    assert "no instructions" in found.finding.detail
    (plain,) = found.suggestions
    assert plain.changes == (Change("policy", "float32"),)
    assert isinstance(plain.predicted, Quantity)
    assert plain.predicted.value == pytest.approx(1 / 0.55)


def test_products_take_no_longer_than_the_step_computes():
    """A machine that was disturbed while it showed its peak must not make a cost above the step."""
    assert only(CHECK, **low(0.1, 0.09)).finding.cost.value <= 1


def test_silent_in_float32_and_on_a_gpu():
    """Both are as they should be."""
    plain = work({"float32": 1}, peak("float32", 10))
    assert results(CHECK, **low(1, work=plain)) == []
    on_gpu = work({"float16": 1}, peak("float16", 1), peak("float32", 10), capability=8.0)
    assert results(CHECK, **low(1, work=on_gpu)) == []


def test_undecided_where_the_policy_is_low_and_nothing_was_counted():
    """An eager step in float16 is not called fast; one in float32 has no question."""
    missing = Missing("an eager step has no graph")
    assert "eager" in not_run(CHECK, **low(1, work=missing))
    assert results(CHECK, **low(1, work=missing, job={"dtype_policy": "float32"})) == []
    no_peak = work({"float16": 1}, peaks_missing="no time")
    assert "no time" in not_run(CHECK, **low(1, work=no_peak))

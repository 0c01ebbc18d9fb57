"""Operations held against the machine's peak."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.synthetic_compute import peak, work
from tfdiag.analyse.compute import Arithmetic, arithmetic, best_peak
from tfdiag.model.quantity import Missing, Quantity

COMPUTING = Quantity(10 * MS, "s")


def test_rate_and_share_of_the_peak():
    """A step of 0.5 GFLOP in 10 ms does 50 GFLOP/s, half of what the machine can."""
    found = arithmetic(work({"float32": 0.5}, peak("float32", 100)), COMPUTING)
    assert isinstance(found, Arithmetic)
    assert isinstance(found.achieved, Quantity)
    assert isinstance(found.share, Quantity)
    assert found.achieved.value == pytest.approx(50e9)
    assert found.achieved.unit == "FLOP/s"
    assert found.share.value == pytest.approx(0.5)


def test_each_type_has_its_own_peak():
    """What is computed in float16 is held against float16, the rest against float32."""
    compute = work({"float16": 0.4, "float32": 0.1}, peak("float16", 100), peak("float32", 50))
    found = arithmetic(compute, COMPUTING)
    assert isinstance(found, Arithmetic)
    assert isinstance(found.at_peak_s, Quantity)
    assert found.at_peak_s.value == pytest.approx(6 * MS)


def test_the_better_of_product_and_convolution_is_the_peak():
    """A machine is not slower than what it showed once; unaligned sizes are no peak."""
    compute = work(
        {"float32": 1},
        peak("float32", 40),
        peak("float32", 60, kind="convolution"),
        peak("float32", 90, aligned=False),
    )
    best = best_peak(compute, "float32")
    assert not isinstance(best, Missing)
    assert best.rate.value == 60e9


def test_a_peak_that_a_step_exceeds_is_none():
    """The machine was slower while its peak was measured: nothing is held against that."""
    found = arithmetic(work({"float32": 2.2}, peak("float32", 100)), COMPUTING)
    assert isinstance(found, Arithmetic)
    assert isinstance(found.share, Missing)
    assert "2.2 times as fast" in found.share.reason
    assert isinstance(found.at_peak_s, Missing)
    assert isinstance(found.achieved, Quantity)


def test_what_is_missing_says_why():
    """No peak, no time, no count: each leaves the rest."""
    compute = work({"float32": 0.5}, peaks_missing="no time")
    found = arithmetic(compute, COMPUTING)
    assert isinstance(found, Arithmetic)
    assert found.share == Missing("no time")
    assert isinstance(found.achieved, Quantity)
    unknown = arithmetic(work({"float32": 0.5}, peak("float32", 100)), Missing("not told apart"))
    assert isinstance(unknown, Arithmetic)
    assert isinstance(unknown.achieved, Missing)
    assert arithmetic(Missing("eager"), COMPUTING) == Missing("eager")
    assert arithmetic(work({}, flops=Missing("unknown shapes")), COMPUTING) == Missing("unknown shapes")

"""How the step grows with its batch, on steps of known make-up."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.synthetic_compute import scaled
from tfdiag.analyse.scaling import BatchScaling, batch_scaling
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.scaling import Scaling


def fitted(scaling: Scaling) -> BatchScaling:
    """Give a fit that there is."""
    found = batch_scaling(scaling)
    assert isinstance(found, BatchScaling)
    return found


def known(quantity: object) -> Quantity:
    """Give a quantity that there is."""
    assert isinstance(quantity, Quantity)
    return quantity


@pytest.mark.parametrize(
    ("fixed", "per_row"), [(2 * MS, 0.05 * MS), (0.0, 0.1 * MS), (3 * MS, 0.0)], ids=["both", "rows", "fixed"]
)
def test_a_line_is_given_back(fixed: float, per_row: float):
    """What a step was made of comes out, with a fit that misses nothing."""
    found = fitted(scaled(fixed, per_row))
    assert known(found.fixed).value == pytest.approx(fixed, abs=1e-12)
    assert known(found.per_row).value == pytest.approx(per_row, abs=1e-12)
    assert found.r_squared == pytest.approx(1.0)
    assert found.off == pytest.approx(0.0, abs=1e-9)
    assert found.linear
    assert found.fixed_share() == pytest.approx(fixed / (fixed + 32 * per_row))


def test_times_are_per_step():
    """A call that makes several steps is spread over them."""
    found = fitted(scaled(8 * MS, 0.4 * MS, steps_per_call=4))
    assert known(found.fixed).value == pytest.approx(2 * MS)
    assert found.steps[32].value == pytest.approx((2 + 0.1 * 32) * MS)


def test_a_slow_second_does_not_tilt_the_line():
    """Rounds that were slower as a whole widen the interval, and leave the share of the fixed cost."""
    found = fitted(scaled(2 * MS, 0.05 * MS, wobble=0.3))
    low, high = known(found.fixed).low, known(found.fixed).high
    assert low is not None
    assert high is not None
    assert low <= 2 * MS <= high
    assert high == pytest.approx(2.6 * MS)
    assert found.fixed_share() == pytest.approx(2 / 3.6)


@pytest.mark.parametrize(("factor", "linear"), [(1.15, True), (1.4, False)])
def test_says_where_it_does_not_grow_linearly(factor: float, linear: bool):
    """A size that falls out of the caches is off the line: then there is no fixed cost, and a reason."""
    found = fitted(scaled(2 * MS, 0.05 * MS, off={128: factor}))
    assert found.linear is linear
    assert isinstance(found.fixed, Quantity) is linear
    if not linear:
        assert isinstance(found.fixed, Missing)
        assert "does not grow linearly" in found.fixed.reason
        assert "rows take" in found.bend
        assert found.steps[128].value == pytest.approx(1.4 * 8.4 * MS)
        assert isinstance(found.at(512), Missing)
        assert found.at_nothing().value == pytest.approx(2 * MS)  # the smallest two are on a line


def test_sizes_that_were_not_run():
    """Between two that were run lies what lies between them; beyond them the line goes on, less surely."""
    found = fitted(scaled(2 * MS, 0.05 * MS, wobble=0.1))
    assert known(found.at(64)) == found.steps[64]
    middle = known(found.at(96))
    ends = (found.steps[64].value, found.steps[128].value)
    assert middle.value == pytest.approx(sum(ends) / 2)
    beyond = known(found.at(256))
    assert beyond.value == pytest.approx((2 + 0.05 * 256) * MS, rel=0.01)
    assert beyond.low is not None
    assert beyond.high is not None
    assert beyond.low < beyond.value < beyond.high
    assert beyond.origin == "estimated"


@pytest.mark.parametrize(
    "scaling",
    [scaled(1.0, 1.0, at=(32, 64)), scaled(1.0, 1.0, rounds=2), scaled(1.0, 1.0, at=(16, 64, 128))],
    ids=["two sizes", "two rounds", "not the job's own"],
)
def test_too_little_is_missing(scaling: Scaling):
    """Two sizes always lie on a line, and two rounds tell no interval."""
    assert isinstance(batch_scaling(scaling), Missing)


def test_a_reason_travels():
    """What was not run says why."""
    assert batch_scaling(Missing("no room")) == Missing("no room")

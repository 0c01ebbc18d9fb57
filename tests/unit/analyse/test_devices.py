"""Fixed cost, cost of a row and crossing, from calls of known make-up."""

from __future__ import annotations

import numpy as np
import pytest

from tests.crossings import NOISE, device_run
from tfdiag.analyse.comparison import limit_of, transfer_of
from tfdiag.analyse.devices import costs_of, crossing, round_trip, speedup_at
from tfdiag.model.comparison import DeviceCost
from tfdiag.model.quantity import Missing, Quantity

SIZES = (1, 4, 16, 64, 90, 128, 256)
HOST = device_run("/CPU:0", fixed=20e-6, row=10e-6, sizes=SIZES)


def gpu(fixed: float, row: float, **more: object):
    """Give a run on an accelerator."""
    return device_run("/GPU:0", fixed=fixed, row=row, sizes=SIZES, **more)


def test_a_line_is_found_again():
    """Fixed cost and cost of a row come out as they went in, within their intervals."""
    costs = costs_of(HOST)
    assert costs.straight
    for found, true in ((costs.fixed, 20e-6), (costs.per_row, 10e-6)):
        assert isinstance(found, Quantity)
        assert found.value == pytest.approx(true, rel=0.1)
        assert found.low is not None and found.high is not None
        assert found.low <= found.value <= found.high


def test_what_is_no_line_has_no_slope_but_its_last():
    """A device that small sizes do not fill costs the same for them; its smallest call is fixed at most."""
    flat = device_run("/GPU:0", sizes=SIZES, seconds=lambda rows: max(1e-3, rows * 10e-6))
    costs = costs_of(flat)
    assert not costs.straight
    assert isinstance(costs.fixed, Quantity) and isinstance(costs.per_row, Quantity)
    assert costs.fixed.value == pytest.approx(1e-3, rel=0.05)
    assert costs.per_row.value == pytest.approx(10e-6, rel=0.2)


@pytest.mark.parametrize("true", [5.0, 75.0, 200.0])
def test_the_crossing_is_where_both_take_the_same(true: float):
    """Between sizes that were called, within a tenth and within its interval."""
    found = crossing(HOST, gpu(20e-6 + true * 9e-6, 1e-6))
    assert isinstance(found, Quantity)
    assert found.origin == "measured"
    assert found.value == pytest.approx(true, rel=0.3 if true == 5.0 else 0.1)


def test_transfers_move_the_crossing():
    """What crosses the bus in each call counts where the data come from the host."""
    moved = gpu(20e-6 + 45e-6, 1e-6, there=300e-6, back=100e-6)
    near, far = crossing(HOST, moved), crossing(HOST, moved, transfers=True)
    inside = crossing(HOST, moved, transfers=True, copies_inside=True)
    assert isinstance(near, Quantity) and isinstance(far, Quantity) and isinstance(inside, Quantity)
    assert near.value == pytest.approx(5, rel=0.3)
    assert far.value == pytest.approx(49, rel=0.2)
    assert inside.value == pytest.approx(16, rel=0.2)
    assert len(round_trip(moved.sizes[0])) == len(moved.sizes[0].call_s)


def test_beyond_the_sizes_lines_are_carried_on_for_a_while():
    """A crossing not far behind the largest size is estimated; a far one is not told."""
    near, far = crossing(HOST, gpu(20e-6 + 600 * 9e-6, 1e-6)), crossing(HOST, gpu(1.0, 1e-6))
    assert isinstance(near, Quantity)
    assert near.origin == "estimated"
    assert near.value == pytest.approx(600, rel=0.3)
    assert isinstance(far, Missing)
    assert "never within 1 to 256 rows" in far.reason
    slower = crossing(HOST, gpu(30e-6, 20e-6))
    assert isinstance(slower, Missing)


def test_a_device_that_always_wins_has_no_crossing():
    """It says so, and from which size on that is known."""
    found = crossing(HOST, gpu(1e-6, 1e-6))
    assert isinstance(found, Missing)
    assert "faster at every size" in found.reason


def test_a_device_that_falls_back_has_no_crossing():
    """A device that is ahead only in the middle is not called the faster one from there on."""
    bumpy = device_run(
        "/GPU:0", sizes=SIZES, seconds=lambda rows: 1e-6 * rows * (1 if 10 < rows < 100 else 40)
    )
    found = crossing(HOST, bumpy)
    assert isinstance(found, Missing)
    assert "stays ahead" in found.reason


def test_one_size_tells_no_crossing():
    """Nor fixed cost; but which is faster at this size it does tell."""
    one, other = (
        device_run(name, fixed=cost, row=0, sizes=(8,)) for name, cost in (("/CPU:0", 2.0), ("/GPU:0", 1.0))
    )
    assert isinstance(crossing(one, other), Missing)
    assert isinstance(costs_of(one).fixed, Missing)
    gain = speedup_at(one, other, 8)
    assert isinstance(gain, Quantity)
    assert gain.value == pytest.approx(2, rel=3 * NOISE)
    assert isinstance(speedup_at(one, other, 9), Missing)


def test_intervals_hold_the_truth():
    """Of 40 noisy measurements of the same crossing at least nine in ten have it in their interval."""
    inside = 0
    for seed in range(40):
        host = device_run("/CPU:0", fixed=20e-6, row=10e-6, sizes=SIZES, noise=0.05, seed=2 * seed)
        other = device_run(
            "/GPU:0", fixed=20e-6 + 75 * 9e-6, row=1e-6, sizes=SIZES, noise=0.05, seed=2 * seed + 1
        )
        found = crossing(host, other)
        assert isinstance(found, Quantity) and found.low is not None and found.high is not None
        inside += found.low <= 75 <= found.high
    assert inside >= 36


def test_the_limit_is_the_fixed_part():
    """A call of which a quarter is fixed can be four times as fast at most."""
    cost = DeviceCost("/CPU:0", "CPU", Quantity(4e-3, "s"), fixed=Quantity(1e-3, "s", 0.5e-3, 2e-3))
    limit = limit_of(cost)
    assert isinstance(limit, Quantity)
    assert (limit.value, limit.low, limit.high) == (4, 2, 8)
    assert isinstance(limit_of(DeviceCost("/CPU:0", "CPU", Missing("no"))), Missing)


def test_a_transfer_is_marked_as_assumed():
    """Where there is no bus to ask, the rate is given, and the text says so."""
    found = transfer_of(12e9)
    assert isinstance(found, Quantity)
    assert found.value == pytest.approx(1)
    assert "assumption" in found.source
    assert isinstance(transfer_of(0), Missing)
    assert np.isfinite(found.value)

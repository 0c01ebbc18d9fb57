"""Finding sizes and measuring them by turns: on a clock that only the calls move."""

from __future__ import annotations

import pytest

from tests.unit.fakes import FakeClock
from tfdiag.analyse.devices import crossing
from tfdiag.collect.sizes import Sizes, Work
from tfdiag.model.quantity import Missing, Quantity

HOST, OTHER = "/CPU:0", "/device:CPU:0"
"""Two names of one device: TensorFlow runs both, and the calls tell them apart."""


class Machine:
    """Two devices whose calls take what is given, on a clock of their own."""

    def __init__(self, host, other, *, first: float = 0.0, fails: int = 10**9) -> None:
        """Give the seconds of a call by its rows."""
        self.clock = FakeClock()
        self.costs = {HOST: host, OTHER: other}
        self.first, self.fails = first, fails
        self.seen: set[tuple[str, int]] = set()

    def prepare(self, device: str, rows: int) -> Work:
        """Make a call ready; the first of each size takes longer."""

        def call() -> None:
            if rows > self.fails:
                raise ValueError("too many rows")
            new = (device, rows) not in self.seen
            self.seen.add((device, rows))
            self.clock.advance(self.costs[device](rows) + (self.first if new else 0.0))

        return Work(call)

    def measured(self, rows: int, *, budget: float = 20.0, most: int = 10**6):
        """Go through all phases."""
        sizes = Sizes([(HOST, "CPU"), (OTHER, "GPU")], until=self.clock() + budget, clock=self.clock)
        sizes.begin(self.prepare, rows)
        self.reason = sizes.fits(self.prepare, 2 * rows)
        if not self.reason:
            sizes.explore(self.prepare, least=1, most=most)
        sizes.measure()
        self.sizes = sizes
        return sizes.runs()


@pytest.mark.parametrize("true", [3, 40, 700, 20_000])
@pytest.mark.parametrize("own", [16, 64, 4096])
def test_the_crossing_is_found_wherever_one_begins(true: int, own: int):
    """Sizes close in on it from the caller's own, and none is further from the next than allowed."""
    machine = Machine(lambda rows: (50 + 2 * rows) * 2e-6, lambda rows: (50 + 2 * true) * 2e-6)
    host, other = machine.measured(own)
    found = crossing(host, other)
    assert isinstance(found, Quantity)
    assert found.value == pytest.approx(true, rel=0.35 if true == 3 else 0.1)
    around = sorted([*machine.sizes.sizes, found.value])
    at = around.index(found.value)
    if found.origin == "measured" and true > 3:  # there is no size between 3 and 2
        assert around[at + 1] / around[at - 1] <= 1.6


def test_first_calls_stand_apart():
    """What the first call of a size takes longer is in no series."""
    machine = Machine(lambda rows: 1e-3, lambda rows: 2e-3, first=0.5)
    host, other = machine.measured(8)
    assert isinstance(host.first_call_s, Quantity)
    assert host.first_call_s.value == pytest.approx(0.501)
    for run, cost in ((host, 1e-3), (other, 2e-3)):
        for size in run.sizes:
            assert size.call_s == pytest.approx((cost,) * len(size.call_s))
            assert size.returns_s == pytest.approx(size.call_s)


@pytest.mark.parametrize("call_s", [1e-4, 1e-3, 0.3, 2.0])
def test_the_budget_holds(call_s: float):
    """Whatever a call takes: at most one call and its like on the other device is begun too much."""
    machine = Machine(lambda rows: call_s * rows / 8, lambda rows: call_s)
    begin = machine.clock()
    runs = machine.measured(8, budget=10.0)
    assert machine.clock() - begin <= 10.0 + 4 * call_s
    assert all(run.at(8) is not None for run in runs)
    assert isinstance(runs[0].wait_s, Missing)


def test_a_size_that_fails_is_the_end_of_the_sizes():
    """What was called before stays, and the reason is kept."""
    machine = Machine(lambda rows: rows * 1e-6, lambda rows: 1.0, fails=40)
    host, other = machine.measured(8, budget=200.0)
    assert "too many rows" in machine.sizes.stopped
    assert max(size.rows for size in host.sizes) == 32
    assert [size.rows for size in other.sizes] == [size.rows for size in host.sizes]


def test_a_device_that_fails_leaves_the_others():
    """It says why, and has no times."""
    machine = Machine(lambda rows: 1e-3, lambda rows: 1e-3)
    machine.costs[OTHER] = lambda rows: 1 / 0
    host, other = machine.measured(8)
    assert host.sizes
    assert "ZeroDivisionError" in other.failed
    assert other.sizes == ()
    assert isinstance(other.first_call_s, Missing)
    assert isinstance(machine.sizes.error, ZeroDivisionError)


def test_one_size_only():
    """A function that takes no other size is measured with its own."""
    machine = Machine(lambda rows: 1e-3, lambda rows: 2e-3, fails=8)
    host, other = machine.measured(8)
    assert "too many rows" in machine.reason
    assert [size.rows for size in (*host.sizes, *other.sizes)] == [8, 8]

"""collective-bound: exchanging gradients holds up the step."""

from __future__ import annotations

import pytest

from tests.traces import MS
from tests.unit.checks.running import value
from tests.unit.checks.tracing import needs_a_trace, only, results
from tfdiag.checks.device.collective_bound import CHECK


@pytest.mark.parametrize(("exchange", "fires"), [(0.97, False), (1.03, True)])
def test_fires_at_a_tenth_of_the_step(exchange: float, fires: bool):
    """Of a step of 10 ms."""
    found = results(CHECK, collective=int(exchange * MS), kernels=1, kernel=int((10 - exchange) * MS))
    assert bool(found) is fires


def test_shows_its_numbers():
    """Seconds and number in a step."""
    found = only(CHECK, collective=4 * MS)
    assert value(found, "collectives that nothing hides, per step") == pytest.approx(4e-3)
    assert value(found, "collectives per step") == 1


def test_silent_without_collectives():
    """One device exchanges nothing."""
    assert results(CHECK) == []


def test_undecided_without_a_trace():
    """Nothing is said of an exchange that nobody saw."""
    needs_a_trace(CHECK)

"""many-small-kernels: the device waits for launches of short kernels."""

from __future__ import annotations

import pytest

from tests.traces import US
from tests.unit.checks.running import value
from tests.unit.checks.tracing import needs_a_trace, only, results
from tfdiag.checks.launch.many_small_kernels import CHECK

SHORT = {"kernels": 50, "kernel": 3 * US, "launch": 6 * US, "late": 20 * US}


def test_fires_where_kernels_are_shorter_than_their_launch():
    """With the idle time, the part of short kernels and their number."""
    found = only(CHECK, **SHORT)
    assert value(found, "kernels per step") == 50
    assert value(found, "part of the kernels shorter than their launch") == 1
    assert found.finding.cost.value == pytest.approx(20 / 23, rel=0.01)
    assert [each.id for each in found.suggestions] == [
        "many-small-kernels/xla",
        "many-small-kernels/bigger-batch",
    ]


@pytest.mark.parametrize(("late", "fires"), [(30, False), (40, True)])
def test_fires_at_a_tenth_of_the_step(late: int, fires: bool):
    """Kernels of 300 us that are shorter than their launch: what the device idles for them decides."""
    assert (
        bool(results(CHECK, **SHORT | {"kernel": 300 * US, "launch": 310 * US, "late": late * US})) is fires
    )


@pytest.mark.parametrize(("kernel", "fires"), [(9, True), (11, False)])
def test_kernels_of_ten_microseconds_are_short_without_launches(kernel: int, fires: bool):
    """Where launches can't be joined, the kernels' own length decides."""
    parts = {**SHORT, "kernel": kernel * US, "correlated": False}
    assert bool(results(CHECK, **parts)) is fires


@pytest.mark.parametrize(("kernels", "fires"), [(9, False), (10, True)])
def test_few_kernels_are_not_many(kernels: int, fires: bool):
    """A step of a handful of kernels has another problem."""
    assert bool(results(CHECK, **SHORT | {"kernels": kernels})) is fires


def test_undecided_without_a_trace():
    """Nothing is said of kernels that nobody saw."""
    needs_a_trace(CHECK)

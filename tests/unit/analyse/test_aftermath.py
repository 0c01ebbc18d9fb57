"""What steps take longer behind something long."""

from __future__ import annotations

import numpy as np
import pytest

from tests.synthetic import MS
from tfdiag.analyse.aftermath import aftermath


def run(every: int, cold: tuple[float, ...], gap: float = 10 * MS, calls: int = 200) -> float:
    """Give the aftermath of gaps in a run of calls of 1 ms, the first few behind each longer by so much."""
    noise = np.random.default_rng(0).normal(0, 0.01 * MS, calls)
    busy, before = 1 * MS + noise, np.full(calls, 0.02 * MS)
    before[::every] = gap
    for distance, longer in enumerate(cold):
        busy[distance::every] += longer
    return aftermath(busy, before, np.ones(calls, dtype=bool))


def test_cold_steps_are_told_from_warm_ones() -> None:
    """Every tenth call is 0.5 ms longer and the next 0.2: 0.07 ms a call."""
    assert run(10, (0.5 * MS, 0.2 * MS)) == pytest.approx(0.07 * MS, rel=0.05)


def test_steps_that_are_as_quick_as_others_are_no_aftermath() -> None:
    """A long gap alone says nothing."""
    assert run(10, ()) == 0.0


@pytest.mark.parametrize(
    ("every", "calls", "gap"), [(1, 200, 10 * MS), (60, 200, 10 * MS), (10, 200, 0.1 * MS)]
)
def test_nothing_is_said_without_a_comparison(every: int, calls: int, gap: float) -> None:
    """Where each gap is long, where hardly one is, and where none is long beside the step."""
    assert run(every, (0.5 * MS,), gap, calls) == 0.0


def test_calls_that_can_t_be_used_are_neither_cold_nor_warm() -> None:
    """A call that traced is no cold one."""
    busy, before = np.full(100, 1 * MS), np.full(100, 0.02 * MS)
    before[::10] = 10 * MS
    busy[::10] += 50 * MS
    usable = np.ones(100, dtype=bool)
    usable[::10] = False
    assert aftermath(busy, before, usable) == 0.0
    assert aftermath(busy, before, np.zeros(100, dtype=bool)) == 0.0


def test_calls_behind_one_that_can_t_be_used_are_cold_all_the_same() -> None:
    """The first call of an epoch is longer for other reasons too; the next ones only for the gap."""
    busy, before = np.full(100, 1 * MS), np.full(100, 0.02 * MS)
    before[::10] = 10 * MS
    busy[::10] += 50 * MS
    busy[1::10] += 0.5 * MS
    usable = np.ones(100, dtype=bool)
    usable[::10] = False
    assert aftermath(busy, before, usable) == pytest.approx(0.5 * MS / 9)


def test_gaps_so_irregular_that_no_call_is_far_from_one() -> None:
    """Calls behind each gap that can't be used leave none to compare with."""
    busy, before = np.full(60, 1 * MS), np.full(60, 0.02 * MS)
    before[::2] = 10 * MS
    usable = np.zeros(60, dtype=bool)
    usable[1::2] = True
    usable[:16:2] = True
    assert aftermath(busy, before, usable) == 0.0

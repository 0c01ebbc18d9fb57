"""Arithmetic on intervals."""

from __future__ import annotations

import numpy as np
import pytest

from tfdiag.timeline.intervals import (
    EMPTY,
    Spans,
    covered,
    gaps,
    inside,
    joined,
    length,
    overlap,
    union,
    within,
)


def spans(*pairs: tuple[int, int]) -> Spans:
    """Give the union of some intervals."""
    return union(np.array([begin for begin, _ in pairs]), np.array([end for _, end in pairs]))


def listed(what: Spans) -> list[tuple[int, int]]:
    """Give intervals as pairs."""
    return list(zip(what.start.tolist(), what.end.tolist(), strict=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([(3, 3)], []),
        ([(5, 2)], []),
        ([(0, 2), (2, 4)], [(0, 4)]),
        ([(6, 7), (0, 5), (1, 2), (4, 6)], [(0, 7)]),
        ([(0, 10), (2, 3), (12, 13)], [(0, 10), (12, 13)]),
    ],
)
def test_a_union_is_sorted_and_disjoint(given: list[tuple[int, int]], expected: list[tuple[int, int]]):
    """Intervals that touch, overlap or lie in each other become one; empty ones vanish."""
    assert listed(spans(*given)) == expected


def test_all_agrees_with_counting_moments():
    """On random intervals every function gives what counting each single moment gives."""
    draw = np.random.default_rng(1)
    for _ in range(20):
        sets = []
        for _ in range(2):
            start = draw.integers(0, 90, 8)
            sets.append((start, start + draw.integers(0, 12, 8)))
        moments = np.arange(110)
        masks = [((moments[:, None] >= s) & (moments[:, None] < e)).any(axis=1) for s, e in sets]
        one, other = (union(s, e) for s, e in sets)
        assert (inside(one, moments) == masks[0]).all()
        assert length(one) == masks[0].sum()
        assert overlap(one, other) == (masks[0] & masks[1]).sum()
        assert (covered(one, moments) == np.concatenate(([0], np.cumsum(masks[0])))[:-1]).all()
        assert within(one, np.array([10]), np.array([50]))[0] == masks[0][10:50].sum()
        assert length(joined([one, other])) == (masks[0] | masks[1]).sum()


def test_gaps_lie_between():
    """What is before the first and after the last interval is no gap."""
    assert listed(gaps(spans((0, 1), (4, 5), (9, 10)))) == [(1, 4), (5, 9)]
    assert listed(gaps(EMPTY)) == []

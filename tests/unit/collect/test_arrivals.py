"""Stamps of batches and the calls that they lie in."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tfdiag.collect.arrivals import arrivals_of

CALLS = [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        ([1.25, 3.5, 5.75], [0.25, 0.5, 0.75]),
        ([1.0, 4.0, 5.5], [0.0, 1.0, 0.5]),
        ([0.5, 1.25, 2.5, 3.5, 4.5, 5.75, 9.0], [0.25, 0.5, 0.75]),
        ([1.25, 5.75], [0.25, math.nan, 0.75]),
        ([1.25, 3.25, 3.5, 5.75], [0.25, math.nan, 0.75]),
        ([5.5], [math.nan, math.nan, 0.5]),
        ([], [math.nan, math.nan, math.nan]),
    ],
    ids=["one each", "on the edges", "some outside", "one missing", "two in a call", "oldest lost", "none"],
)
def test_a_call_has_the_one_stamp_inside(stamps: list[float], expected: list[float]) -> None:
    """Exactly one stamp within a call is its batch's; none or two tell nothing."""
    found = arrivals_of(CALLS, np.array(stamps))
    assert found == pytest.approx(expected, nan_ok=True)


def test_no_calls_have_no_arrivals() -> None:
    """Stamps without calls are nobody's."""
    assert arrivals_of([], np.array([1.0])) == []

"""How fast this machine is: the budgets of tests were chosen on one that counts in `_REFERENCE_S`.

A test of what a diagnosis finds needs a budget in which the diagnosis gets there: tracing a step is Python's
work, and on a slower machine there is less of it in a second. Tests of the budget itself don't ask.
"""

from __future__ import annotations

import functools
import time

__all__ = ["enough"]

_COUNT = 200_000
_REFERENCE_S = 0.008
_MOST = 1.5


def enough(seconds: float) -> float:
    """Give the budget in which this machine gets as far as the reference does in so many seconds."""
    return seconds * _slowness()


@functools.cache
def _slowness() -> float:
    def counting() -> float:
        begin, total = time.perf_counter(), 0
        for each in range(_COUNT):
            total += each
        return time.perf_counter() - begin

    return min(_MOST, max(1.0, min(counting() for _ in range(7)) / _REFERENCE_S))

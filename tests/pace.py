"""How fast this machine is now: the budgets of tests were chosen on one that counts in `_REFERENCE_S`.

A test of what a diagnosis finds needs a budget in which the diagnosis gets there: tracing a step is Python's
work, and on a slower machine there is less of it in a second. Neighbours of a virtual machine may halve its
speed for seconds, so it is looked at each time. Tests of the budget itself don't ask.
"""

from __future__ import annotations

import time

__all__ = ["enough"]

_LOOKS = 10
_COUNT = 200_000
_REFERENCE_S = 0.008
_MOST = 2.0


def enough(seconds: float) -> float:
    """Give the budget in which this machine gets as far as the reference does in so many seconds."""
    return seconds * min(_MOST, max(1.0, _counting() / (_LOOKS * _REFERENCE_S)))


def _counting() -> float:
    begin, total = time.perf_counter(), 0
    for each in range(_LOOKS * _COUNT):
        total += each
    return time.perf_counter() - begin

"""How fast this machine is: budgets of tests were chosen on one that traces a small step in `_REFERENCE_S`.

A test of what a diagnosis finds needs a budget in which the diagnosis gets there; on a slower machine that is
a larger one. Tests of the budget itself don't ask.
"""

from __future__ import annotations

import functools
import time

from tests.integration import jobs

__all__ = ["enough"]

_REFERENCE_S = 0.3
_MOST = 4.0


def enough(seconds: float) -> float:
    """Give the budget in which this machine gets as far as the reference does in so many seconds."""
    return seconds * _slowness()


@functools.cache
def _slowness() -> float:
    def first_epoch() -> float:
        begin = time.perf_counter()
        jobs.tiny_model().fit(jobs.batches(2), verbose=0)
        return time.perf_counter() - begin

    first_epoch()  # what is loaded and compiled once a process
    return min(_MOST, max(1.0, min(first_epoch(), first_epoch()) / _REFERENCE_S))

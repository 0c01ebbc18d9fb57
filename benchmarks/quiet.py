"""Says whether the machine kept its speed while something was timed.

Neighbours of a virtual machine can halve its speed for seconds, unseen by its own counters. Fixed work on all
cores, before and after what is timed, tells: what was disturbed is timed again, a few times at most, and how
often is printed with the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

T = TypeVar("T")

SLOWER = 1.3
"""Than at its best: the machine is disturbed."""
TRIES = 4
WAIT_S = 20.0


class Machine:
    """The machine, and how fast it was at its best."""

    def __init__(self) -> None:
        """Make the fixed work."""
        self._factor = np.random.default_rng(0).random((600, 600), np.float32)
        self._best = np.inf
        self.repeated = 0

    def at_speed(self) -> bool:
        """Say whether it is about as fast as it was at its best."""
        took = min(self._work() for _ in range(5))
        self._best = min(self._best, took)
        return took <= SLOWER * self._best

    def wait(self) -> None:
        """Wait until it is, for some time at most."""
        end = time.perf_counter() + WAIT_S
        while not self.at_speed() and time.perf_counter() < end:
            time.sleep(0.2)

    def timed(self, work: Callable[[], T]) -> T:
        """Give the result of work in which the machine kept its speed, or the last one."""
        for _ in range(TRIES):
            self.wait()
            result = work()
            if self.at_speed():
                break
            self.repeated += 1
        return result

    def _work(self) -> float:
        begin = time.perf_counter()
        self._factor @ self._factor
        return time.perf_counter() - begin


MACHINE = Machine()
"""The one that everything here runs on."""

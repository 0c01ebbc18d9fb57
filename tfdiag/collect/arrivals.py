"""Which batch arrived in which call: stamps joined with the calls that they lie in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ["Arrivals", "arrivals_of"]

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Arrivals(Protocol):
    """Something that knows when batches arrived, on the clock of the calls."""

    cost_s: float
    """What a stamp adds to a step."""

    def read(self) -> Floats:
        """Give when batches arrived since the last reading, newest last."""


def arrivals_of(calls: Sequence[tuple[float, float]], stamps: Floats) -> list[float]:
    """Give how long after each call's start its batch arrived; `nan` without exactly one stamp in it."""
    if not calls:
        return []
    if not len(stamps):
        return [math.nan] * len(calls)
    start, end = np.array(calls, dtype=np.float64).T
    first = np.searchsorted(stamps, start, side="left")
    behind = np.searchsorted(stamps, end, side="right")
    found = stamps[np.minimum(first, len(stamps) - 1)] - start
    return [float(value) for value in np.where(behind - first == 1, found, math.nan)]

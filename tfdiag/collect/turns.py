"""Two ways to make a step, timed by turns, so that a slow moment of the machine falls on both."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfdiag import stats

__all__ = ["by_turns", "part_of_rest", "seconds_needed"]

_STRETCH_S = 0.02
_STRETCH_MOST_S = 0.15
"""Where there is time: it takes a step many calls to find caches and memory as it leaves them itself."""
_WARM = 0.25
"""Of a stretch, for that. An AUC that took 53 % of `fit`'s step came out at 47 % in stretches of 20 ms."""
_MOST_IN_A_STRETCH = 300
_ALL_S = 2.5
"""There is more that is timed by turns."""
_ENOUGH = 3
"""Pairs of stretches with which something can be said …"""
_LEAST = 6
"""… and those that are made where there is time."""
_MOST = 40
_CLEAR = 0.01
"""Of a call: once the difference is known this well, it is known well enough."""


def by_turns(
    first: Callable[[], Any],
    second: Callable[[], Any],
    *,
    call_s: float,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Time stretches of calls of each; the entries are the mean calls of stretches that lie side by side."""
    until = min(until, clock() + _ALL_S)
    size = _size(call_s, (until - clock()) / (2 * _LEAST * (1 + _WARM)))
    found: tuple[list[float], list[float]] = ([], [])
    while len(found[0]) < _MOST and not should_stop():
        order = (0, 1) if len(found[0]) % 2 else (1, 0)
        for which in order:
            found[which].append(_stretch((first, second)[which], size, clock))
        done = len(found[0])
        if done >= _LEAST and (clock() >= until or _clear(*found)):
            break
        if done >= _ENOUGH and clock() >= until:
            break
    return tuple(found[0]), tuple(found[1])


def part_of_rest(parts: int, until: float, clock: Callable[[], float]) -> float:
    """Say when the next of several measures has had its share of the time."""
    now = clock()
    return now + (until - now) / parts


def seconds_needed(call_s: float) -> float:
    """Say how long it takes at least to time two calls by turns."""
    size = _size(call_s, _STRETCH_S)
    return 2 * _ENOUGH * (size + _warm(size)) * call_s


def _size(call_s: float, stretch_s: float) -> int:
    stretch_s = min(_STRETCH_MOST_S, max(_STRETCH_S, stretch_s))
    return max(1, min(_MOST_IN_A_STRETCH, math.ceil(stretch_s / max(call_s, 1e-6))))


def _warm(size: int) -> int:
    return math.ceil(_WARM * size)


def _stretch(call: Callable[[], Any], size: int, clock: Callable[[], float]) -> float:
    # The first ones meet the caches as the other way left them, which no step of a job does.
    for _ in range(_warm(size)):
        _wait_for(call())
    begin = clock()
    for _ in range(size):
        _wait_for(call())
    return (clock() - begin) / size


def _clear(first: list[float], second: list[float]) -> bool:
    difference = stats.mean(np.array(first) - np.array(second))
    return difference.high - difference.low < 2 * _CLEAR * float(np.mean(first))


def _wait_for(logs: Any) -> None:
    """Make sure that an accelerator has finished what was dispatched."""
    for value in logs.values() if isinstance(logs, dict) else [logs]:
        if hasattr(value, "numpy"):
            value.numpy()

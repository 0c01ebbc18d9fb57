"""The input without the model, and one batch to replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdiag import stats
from tfdiag.compat import tensorflow
from tfdiag.model.measurements import InputAlone

__all__ = ["Alone", "measure_alone"]

_LEAST = 12
_GOOD_ENOUGH = 0.03


@dataclass(frozen=True, slots=True)
class Alone:
    """What the input alone gave."""

    measured: InputAlone | None
    first_batch: Any


def measure_alone(
    dataset: Any, *, until: float, clock: Callable[[], float], should_stop: Callable[[], bool]
) -> Alone:
    """Take batches until their rate is known or the time is over."""
    begin = clock()
    iterator = iter(dataset)
    first = next(iterator)
    first_s = clock() - begin
    times: list[float] = []
    processor = time.process_time()
    last = clock()
    last_check = 0
    exhausted = tensorflow.end_of_data()
    while last < until and not should_stop():
        try:
            next(iterator)
        except exhausted:
            break
        now = clock()
        times.append(now - last)
        last = now
        if len(times) >= 2 * max(last_check, _LEAST // 2):
            last_check = len(times)
            if sum(times) > 0.3 and _settled(times):
                break
    spent = time.process_time() - processor
    del iterator
    return Alone(InputAlone(tuple(times), spent, first_s), first)


def _settled(times: list[float]) -> bool:
    series = np.array(times)
    steady = series[stats.warmup_end(series) :]
    return len(steady) >= _LEAST and stats.mean(steady).relative_half_width < _GOOD_ENOUGH

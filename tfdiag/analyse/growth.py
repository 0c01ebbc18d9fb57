"""Whether the memory of the process grows with its steps, for sure and for good."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tfdiag.analyse.host import HostFacts
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Missing
from tfdiag.stats import Estimate

__all__ = ["Growth", "growth_of"]

_STUDENT = {6: 2.776, 4: 4.303}
"""For the differences between so many blocks, at 95 %: as many blocks as have two samples each."""
_LEAST = 2 * min(_STUDENT)
_SETTLES = 0.6
"""A growth of which the second half is less than this of the first one goes to an end."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How memory rose over the steady part of the live run."""

    per_step: Estimate
    """Bytes."""
    rise: float
    """Bytes, from the first part to the last."""
    settles: bool
    """It became slower: what fills up does that."""
    seconds: float
    free: float | Missing
    """What was left in the end."""
    source: str


def growth_of(facts: HostFacts, live: Live) -> Growth | Missing:
    """Hold memory against the steps that were made, and say how sure it is that it rises with them.

    Blocks of samples are compared, by their medians: memory grows in leaps, and comes back after a step.
    Steps are counted instead of seconds, because they may become slower or faster meanwhile.
    """
    memory = facts.column("anonymous_memory")
    source = "resident memory without pages of files"
    if isinstance(memory, Missing):
        memory = tuple(float(sample.rss_bytes) for sample in facts.samples)
        at = np.array([sample.at_s for sample in facts.samples])
        source = "resident memory"
    else:
        at = np.array([facts.telemetry.at_s[row] for row in facts.rows])
    values = np.array(memory, dtype=np.float64)
    known = ~np.isnan(values)
    at, values = at[known], values[known]
    if len(values) < _LEAST:
        return Missing(
            f"the steady part of the live run has {len(values)} samples of memory, it takes {_LEAST}"
        )
    blocks = max(count for count in _STUDENT if 2 * count <= len(values))
    middles = [
        (float(np.median(part_at)), float(np.median(part)))
        for part_at, part in zip(np.array_split(at, blocks), np.array_split(values, blocks), strict=True)
    ]
    moments, levels = (np.array(column) for column in zip(*middles, strict=True))
    steps = np.interp(moments, live.start_s, np.arange(len(live.start_s))) * live.steps_per_call
    made = np.diff(steps)
    if np.min(made) < 1:
        return Missing(f"some of its {blocks} parts have no step")
    slopes = np.diff(levels) / made
    mean = float(levels[-1] - levels[0]) / float(steps[-1] - steps[0])
    half = _STUDENT[blocks] * float(np.std(slopes, ddof=1)) / math.sqrt(len(slopes))
    middle = len(levels) // 2
    early = (levels[middle - 1] - levels[0]) / (steps[middle - 1] - steps[0])
    late = (levels[-1] - levels[middle]) / (steps[-1] - steps[middle])
    left = facts.column("free_memory")
    free: float | Missing
    if isinstance(left, Missing):
        free = left
    else:
        free = next(
            (each for each in reversed(left) if math.isfinite(each)), Missing("it was not read in time")
        )
    return Growth(
        per_step=Estimate(mean, mean - half, mean + half, len(values)),
        rise=float(levels[-1] - levels[0]),
        settles=bool(late < _SETTLES * early),
        seconds=float(at[-1] - at[0]),
        free=free,
        source=source,
    )

"""Whether a job is tried by whole epochs, and which of its caches a copy fills as the job does.

Where epochs are short, what happens at their ends is much of the step, and it changes with the input: an
iterator that is taken down waits for what it has in flight, and for its tuning thread, the longer the older
it is. So a copy of such a job has epochs as well, and a turn is some of them. Nothing stands still inside of
one: the copy is tuned, and its caches are filled, as in the job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.pipeline import Node
from tfdiag.model.quantity import Missing, value_of
from tfdiag.remedies.caching import size_of

__all__ = ["Epochs", "caches_fit", "short_epochs"]

_TURNS = 24
"""What the null trial and a first suggestion take; each is an epoch at least."""
_MATTER = 0.05
"""An error of the gain this large is worth the longer turns, and the stalls in them."""
_SEEN_LEAST = 2
"""Ends of epochs in the live run; one alone need not be like the next."""
_CACHED_MOST = 24 << 20
"""Bytes in the caches of a copy. Two copies exist at a time."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """The job's epochs, which are short."""

    steps: float
    """Of the job as it is: a copy with larger batches has fewer, of the same elements."""
    seconds: float


def short_epochs(
    analysis: Analysis, fit_kwargs: Mapping[str, Any], room_s: float, gain: float
) -> Epochs | None:
    """Give the job's epochs where they are short and each reads its input from the beginning.

    `room_s` is what there is for all trials, `gain` the most that one of them promises: a copy without an end
    takes the ends of epochs to stay as they are, which is the more wrong the more the epochs shrink.
    """
    steady, live, step = analysis.steady, analysis.measurements.live, analysis.step
    if isinstance(steady, Missing) or isinstance(live, Missing) or isinstance(step, Missing):
        return None
    boundary, calls = steady.boundary, steady.calls_per_epoch
    if isinstance(boundary, Missing) or isinstance(calls, Missing) or boundary.followed < _SEEN_LEAST:
        return None
    if analysis.measurements.job.loop == "custom" or fit_kwargs.get("steps_per_epoch") is not None:
        return None  # whose input goes on from one epoch to the next
    ends = sum(analysis.between_epochs()) - analysis.lasting_ends()
    if ends * (gain - 1) < _MATTER * step.mean_s:
        return None
    steps = calls.value * live.steps_per_call
    seconds = step.mean_s * steps - boundary.validation_s
    return Epochs(steps, seconds) if 0 < seconds <= room_s / _TURNS else None


def caches_fit(nodes: Sequence[Node], analysis: Analysis) -> bool:
    """Say whether a copy may hold what its caches hold in the job; where that is not known, it may not."""
    below = [source for node in nodes if "Cache" in node.op for source in node.inputs]
    if not below:
        return True
    if isinstance(analysis.pipeline, Missing):
        return False
    stages = {stage.id: stage for stage in analysis.pipeline.stages if stage.id >= 0}
    if not stages.keys() >= set(below):
        return False
    sizes = [size_of(analysis, stages[source]) for source in below]
    return sum(value_of(size, math.inf) for size in sizes) <= _CACHED_MOST

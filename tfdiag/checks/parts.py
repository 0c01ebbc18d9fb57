"""What checks of the model's parts share."""

from __future__ import annotations

import numpy as np

from tfdiag import stats
from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Undecided
from tfdiag.model.layers import ModelFacts
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Evidence
from tfdiag.stats import Estimate

__all__ = ["listed", "model", "per_step", "saved", "speed", "time_evidence"]

_NAMED = 3
_AROUND = ("input_wait", "host_to_device", "device_to_host", "host", "compile")
"""Segments of a step that a replay on a resident batch does not have."""
_DRIFT = 1.3
"""A replay that is quicker than the live step by more has another reason than the machine's speed."""


def model(analysis: Analysis) -> ModelFacts:
    """Give what the model consists of, or say why it is not known."""
    found = analysis.measurements.model
    if isinstance(found, Missing):
        raise Undecided(found.reason)
    return found


def per_step(analysis: Analysis, value: Maybe) -> float | None:
    """Spread the seconds of a call of the train function over its steps, None where they are not known."""
    live = analysis.measurements.live
    steps = 1 if isinstance(live, Missing) else live.steps_per_call
    return None if isinstance(value, Missing) else value.value / steps


def saved(analysis: Analysis, with_s: tuple[float, ...], without_s: tuple[float, ...]) -> Estimate:
    """Give what a step of the job takes longer with something, from stretches that lie side by side."""
    live = analysis.measurements.live
    steps = 1 if isinstance(live, Missing) else live.steps_per_call
    longer = stats.median((np.array(with_s) - np.array(without_s)) / steps)
    scale = speed(analysis, float(np.median(with_s)) / steps)
    return Estimate(longer.value * scale, longer.low * scale, longer.high * scale, longer.count)


def speed(analysis: Analysis, replayed_s: float) -> float:
    """Give how much longer a step takes in the job than it did in a replay, as a factor.

    A machine changes its speed within seconds. What is a share of the one is the same share of the other;
    what waits for its input, works beside it, or lies between steps is in no replay.
    """
    if isinstance(analysis.step, Missing) or replayed_s <= 0:
        return 1.0
    own = analysis.step.mean_s - sum(map(analysis.segment, _AROUND)) - analysis.contended_s
    # One that is slower is so as a whole: nothing in it takes more than it did in the job.
    return min(_DRIFT, own / replayed_s) if own > 0 else 1.0


def listed(names: list[str]) -> str:
    """Name the first few of several."""
    names = list(dict.fromkeys(names))
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def time_evidence(analysis: Analysis, name: str, seconds: float, source: str) -> Evidence:
    """Show what something takes of a step, against what is worth a finding."""
    limit = Quantity(facts.COST_SHARE * facts.mean(analysis), "s", origin="given")
    return Evidence(name, Quantity(seconds, "s", source=source), limit, "above")

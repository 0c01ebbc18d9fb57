"""What checks of the model's parts share."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Undecided
from tfdiag.model.layers import ModelFacts
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Evidence

__all__ = ["listed", "model", "per_step", "time_evidence"]

_NAMED = 3


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


def listed(names: list[str]) -> str:
    """Name the first few of several."""
    names = list(dict.fromkeys(names))
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def time_evidence(analysis: Analysis, name: str, seconds: float, source: str) -> Evidence:
    """Show what something takes of a step, against what is worth a finding."""
    limit = Quantity(facts.COST_SHARE * facts.mean(analysis), "s", origin="given")
    return Evidence(name, Quantity(seconds, "s", source=source), limit, "above")

"""Let an epoch be longer, so that its start and end are paid less often."""

from __future__ import annotations

import math

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest"]

_SHARE_LEFT = 0.02
"""The share of the step that the ends of epochs may keep."""


def suggest(analysis: Analysis, check: str, seconds: float, steps: Quantity) -> Suggestion:
    """Suggest as many passes in an epoch as it takes to make its ends cheap."""
    assert not isinstance(analysis.step, Missing)
    rest = analysis.step.mean_s - seconds
    factor = max(2, math.ceil(seconds / max(1e-9, _SHARE_LEFT * rest)))
    return Suggestion(
        id=f"{check}/longer-epochs",
        check=check,
        text=(
            f"Make one epoch out of {factor} passes over the data: the iterator is then built and torn down "
            f"once in {factor * steps.value:.0f} steps, not in {steps.value:.0f}."
        ),
        code=f"- model.fit(dataset, epochs=n)\n+ model.fit(dataset.repeat({factor}), epochs=n // {factor})",
        predicted=gain_without(
            analysis,
            seconds * (1 - 1 / factor),
            at_least=0.7,
            at_most=1.05,
            source="the step less the epoch ends that fall away",
        ),
        risk="Validation, checkpoints and learning-rate schedules run once for so many passes.",
    )

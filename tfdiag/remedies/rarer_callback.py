"""Do a callback's work less often."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest"]

_EVERY = 100


def suggest(analysis: Analysis, check: str, callback: str, method: str, seconds: float) -> Suggestion:
    """Suggest to run the expensive part of a callback every hundredth time."""
    each_batch = "batch" in method
    every = _EVERY if each_batch else 10
    unit = "batch" if each_batch else "epoch"
    argument = "batch" if each_batch else "epoch"
    signature = f"    def {method}(self, {argument}, logs=None):"
    return Suggestion(
        id=f"{check}/{callback}.{method}",
        check=check,
        text=(
            f"{callback}.{method} does its work at every {unit}: do it every {every} {unit}es, or leave it out."
            if each_batch
            else f"{callback}.{method} does its work at every {unit}: do it every {every} {unit}s."
        ),
        code=f"  class {callback.split(' ')[0]}:\n  {signature}\n+         if {argument} % {every}:\n"
        "+             return",
        predicted=gain_without(
            analysis,
            seconds * (1 - 1 / every),
            at_least=0.9,
            at_most=1.02,
            source="the step less the time measured in this method",
        ),
        risk="What the callback records is recorded less often.",
        reason="not tried yet: this version only predicts",
    )

"""Do a callback's work less often."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest"]

_EVERY = 100


def suggest(analysis: Analysis, check: str, callback: str, method: str, seconds: float) -> Suggestion:
    """Suggest to run the expensive part of a callback every hundredth time."""
    unit, every = ("batch", _EVERY) if "batch" in method else ("epoch", 10)
    plural = "batches" if unit == "batch" else "epochs"
    signature = f"    def {method}(self, {unit}, logs=None):"
    return Suggestion(
        id=f"{check}/{callback}.{method}",
        check=check,
        text=f"{callback}.{method} does its work at every {unit}: do it every {every} {plural}.",
        code=f"  class {callback.split(' ', maxsplit=1)[0]}:\n  {signature}\n+         if {unit} % {every}:\n"
        "+             return",
        predicted=gain_without(
            analysis,
            seconds * (1 - 1 / every),
            at_least=0.9,
            at_most=1.02,
            source="the step less the time measured in this method",
        ),
        risk="What the callback records is recorded less often.",
    )

"""Make several steps in one call of the train function."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies import bigger_batch
from tfdiag.remedies.gain import speedup

__all__ = ["predict", "suggest", "suggest_bigger_batch"]

_STEPS = 16
_FACTOR = 4
_LEAST_SAVED = 0.4
"""Part of the fixed cost that surely goes: the training loop and the call from Python."""
_LIKELY_SAVED = 0.75
"""A loop in the graph still takes the next batch and starts the step each time."""


def predict(analysis: Analysis, fixed_s: float) -> Maybe:
    """Predict the step when its fixed cost is paid once for several steps."""
    if isinstance(analysis.step, Missing):
        return analysis.step
    mean = analysis.step.mean_s
    gone = fixed_s * (1 - 1 / _STEPS)
    return speedup(
        analysis,
        mean - _LIKELY_SAVED * gone,
        mean - gone,
        mean - _LEAST_SAVED * gone,
        "the fixed cost of a step shared by several",
    )


def suggest(analysis: Analysis, check: str, fixed_s: float) -> Suggestion:
    """Suggest `steps_per_execution`."""
    now = analysis.measurements.job.steps_per_execution
    before = f", steps_per_execution={now}" if now > 1 else ""
    return Suggestion(
        id=f"{check}/steps-per-execution",
        check=check,
        text=f"Make {now * _STEPS} steps in each call of the train function: steps_per_execution.",
        code=f"- model.compile(…{before})\n+ model.compile(…, steps_per_execution={now * _STEPS})",
        predicted=predict(analysis, fixed_s),
        risk="Batch callbacks run once for so many steps.",
        changes=(Change("steps_per_execution", now * _STEPS),),
    )


def suggest_bigger_batch(analysis: Analysis, check: str, fixed_s: float) -> Suggestion:
    """Suggest a batch of four times the rows, with the gain per row.

    Where the step was run at several sizes the gain comes from there, and the size is one that was run.
    """
    best = bigger_batch.best_size(analysis)
    if best is not None:
        return bigger_batch.suggest(analysis, check, *best)
    predicted: Maybe = Missing("the batch size is not known")
    if not isinstance(analysis.step, Missing):
        mean = analysis.step.mean_s
        work = mean - fixed_s
        per_old_batch = (fixed_s + _FACTOR * work) / _FACTOR
        predicted = speedup(
            analysis,
            per_old_batch,
            per_old_batch * 0.8,
            min(mean, per_old_batch * 1.25),
            "per row: the fixed cost shared by four times the rows",
        )
    rows = analysis.measurements.job.batch_size
    return Suggestion(
        id=f"{check}/bigger-batch",
        check=check,
        text="Use a bigger batch: the fixed cost of a step is then shared by more rows (gain per row).",
        code="- dataset.batch(n)\n+ dataset.batch(4 * n)",
        predicted=predicted,
        risk=bigger_batch.RISK,
        reason="not tried: only the caller can judge convergence",
        changes=(Change("batch_size", round(_FACTOR * rows.value)),) if isinstance(rows, Quantity) else (),
    )

"""Compute a metric where it is looked at, and not in every step."""

from __future__ import annotations

from collections.abc import Sequence

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.quantity import Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import speedup
from tfdiag.stats import Estimate

__all__ = ["suggest"]


def suggest(
    analysis: Analysis, check: str, guilty: Sequence[str], metrics: Sequence[str], saved: Estimate
) -> Suggestion:
    """Suggest to leave the costly metrics out of training, all of them where nobody knows which."""
    names = list(guilty) or list(metrics)
    kept = [name for name in metrics if name not in names]
    mean = 0.0 if isinstance(analysis.step, Missing) else analysis.step.mean_s
    after = max(mean - saved.value, 0.05 * mean)
    slow, fast = mean - 0.75 * saved.value, max(mean - 1.15 * max(saved.high, saved.value), after / 2)
    return Suggestion(
        id=f"{check}/not-in-training",
        check=check,
        text=f"Leave {', '.join(names)} out of compile, and compute it on the validation data once an epoch.",
        code=(
            f"- model.compile(optimizer, loss, metrics=[{', '.join(map(repr, metrics))}])\n"
            f"+ model.compile(optimizer, loss, metrics=[{', '.join(map(repr, kept))}])\n"
            f"+ # once an epoch, in a callback: {names[0]} of model.predict(validation)"
        ),
        predicted=speedup(analysis, after, min(fast, after), max(slow, after), "replay without the metrics"),
        risk="The metric is no longer in the progress bar and the history of training.",
        changes=tuple(Change("without_metrics", target=name) for name in names),
    )

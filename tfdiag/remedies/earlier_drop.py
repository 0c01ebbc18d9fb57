"""Drop elements before the expensive work, not behind it."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.model.quantity import Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without
from tfdiag.remedies.reordering import code_of_move, spared, swaps
from tfdiag.remedies.sparing import gain_of_sparing

__all__ = ["suggest", "suggest_skip"]

_UNSURE = "not tried: whether the elements stay the same only the caller knows"


def _text(stage: StageTime, drop: StageTime, passed: list[StageTime] | None) -> str:
    if passed is not None:
        return f"Drop first: {drop.label} before {stage.label} gives the same elements."
    return f"Drop as early as it can be decided: {drop.label} before {stage.label}, written for its input."


def _risk(passed: list[StageTime] | None) -> str:
    if passed is not None:
        return "None for the elements: the function keeps their number and order, and has no state."
    return "What decides must be known before the expensive stage, or be written anew for what is."


def suggest(
    analysis: Analysis,
    check: str,
    model: PipelineModel,
    stage: StageTime,
    drop: StageTime,
    passed: list[StageTime] | None,
) -> Suggestion:
    """Suggest to drop below a stage; `passed` are those on the way; None: the elements may change."""
    less = [stage] if passed is None else passed
    return Suggestion(
        id=f"{check}/drop-first",
        check=check,
        text=_text(stage, drop, passed),
        code=code_of_move(analysis, drop, stage),
        predicted=gain_of_sparing(
            analysis, spared(model, less, 1 / drop.ratio), f"1 of {drop.ratio:.3g} elements worked on"
        ),
        risk=_risk(passed),
        reason=_UNSURE if passed is None else "",
        edits=() if passed is None else swaps(drop, passed),
    )


def suggest_skip(
    analysis: Analysis,
    check: str,
    stage: StageTime,
    skip: StageTime,
    passed: list[StageTime] | None,
    cost: float,
) -> Suggestion:
    """Suggest to skip below a stage; `cost` is the share of the step that goes away."""
    seconds = 0.0 if isinstance(analysis.step, Missing) else cost * analysis.step.mean_s
    return Suggestion(
        id=f"{check}/skip-first",
        check=check,
        text=_text(stage, skip, passed),
        code=code_of_move(analysis, skip, stage),
        predicted=gain_without(
            analysis,
            seconds,
            at_least=0.5,
            at_most=1.1,
            source="the time of the skipped elements, spread over the steps of a pass",
        ),
        risk=_risk(passed),
        reason=_UNSURE if passed is None else "",
        edits=() if passed is None else swaps(skip, passed),
    )

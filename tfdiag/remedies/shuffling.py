"""Shuffle what is cheap, or less of it."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.order import kind, pure
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without
from tfdiag.remedies.pipeline_code import diff, written
from tfdiag.remedies.reordering import code_of_move, swaps

__all__ = ["SMALLER", "Fill", "lowest_place", "suggest_earlier", "suggest_smaller"]

SMALLER = 4
"""How much smaller a buffer is suggested."""


@dataclass(frozen=True, slots=True)
class Fill:
    """What filling the buffer takes, before and after a change, in seconds."""

    before_s: float
    after_s: float
    steps: float | None
    """Training steps from one filling to the next; None where there is but one."""


def lowest_place(model: PipelineModel, shuffle: StageTime) -> StageTime | None:
    """Give the lowest map below which the shuffle gives the same elements, None where there is none."""
    found = None
    current = shuffle
    while len(current.inputs) == 1:
        current = model.stages[current.inputs[0]]
        if kind(current) == "Map" and pure(current):
            found = current
        elif kind(current) not in ("Prefetch", "Options"):
            break
    return found


def _predicted(analysis: Analysis, fill: Fill) -> Maybe:
    if fill.steps is None:
        return Missing("the buffer is filled once: that delays the start, not the steps")
    return gain_without(
        analysis,
        _bounded(analysis, max(0.0, fill.before_s - fill.after_s) / fill.steps),
        at_least=0.0,
        at_most=1.1,
        source="the time to fill the buffer, spread over the steps of a pass",
    )


def _bounded(analysis: Analysis, seconds: float) -> float:
    """No more can go than the step waits."""
    return min(seconds, analysis.segment("input_wait")) if analysis.segment("input_wait") else seconds


def suggest_earlier(
    analysis: Analysis, check: str, model: PipelineModel, shuffle: StageTime, lowest: StageTime, fill: Fill
) -> Suggestion:
    """Suggest to shuffle below the maps."""
    passed = []
    current = shuffle
    while current is not lowest:
        current = model.stages[current.inputs[0]]
        passed.append(current)
    return Suggestion(
        id=f"{check}/shuffle-first",
        check=check,
        text=f"Shuffle before {lowest.label}: the buffer then holds elements that cost little.",
        code=code_of_move(analysis, shuffle, lowest),
        predicted=_predicted(analysis, fill),
        risk="The same elements come, in another random order.",
        edits=swaps(shuffle, passed),
    )


def suggest_smaller(analysis: Analysis, check: str, shuffle: StageTime, count: int, fill: Fill) -> Suggestion:
    """Suggest a smaller buffer."""
    size = max(1, count // SMALLER)
    chain = written(analysis)
    changed = f"shuffle({size})"
    return Suggestion(
        id=f"{check}/smaller-buffer",
        check=check,
        text=f"A buffer of {size} elements fills in a quarter of the time, and mixes over so many only.",
        code=diff(chain, [changed if part == shuffle.label else part for part in chain])
        if shuffle.label in chain
        else f"- dataset.shuffle({count})\n+ dataset.shuffle({size})",
        predicted=_predicted(analysis, fill),
        risk="Elements are mixed less: batches resemble each other where the data are sorted.",
        reason="not tried: only the caller can judge how much mixing the training needs",
    )

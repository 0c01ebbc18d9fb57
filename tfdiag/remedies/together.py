"""Several changes of the input at once: fixing one stage lets the next one show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.order import kind
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import Pace, feed, with_interleave, with_parallel, with_prefetch
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies import parallel_map, reading
from tfdiag.remedies.gain import gain_of, pace_with
from tfdiag.remedies.pipeline_code import diff, written

__all__ = ["suggest"]

_WORTH = 1.05
"""A change that makes what is there less than this much faster is not made as well."""
_MOST = 4
_LOCKED = 0.5


@dataclass(frozen=True, slots=True)
class _Move:
    """A change, with the pipeline and its code after it."""

    text: str
    model: PipelineModel
    chain: list[str]
    edits: tuple[Edit, ...]
    pace: Pace


def suggest(analysis: Analysis, suggestions: Sequence[Suggestion]) -> Suggestion | None:
    """Suggest what holds the step up first, and what would hold it up after that, as one change.

    None where a single change does it, or where no finding asks for any of them.
    """
    if isinstance(analysis.pipeline, Missing) or isinstance(analysis.step, Missing):
        return None
    moves = list(_moves(analysis, analysis.pipeline))
    asked = [one for one in suggestions if one.edits and any(one.edits == move.edits for move in moves)]
    if len(moves) < 2 or not asked:
        return None
    whole = gain_of(analysis, moves[-1].model, "all of these changes, from the stages' times")
    if isinstance(whole, Missing):
        return None
    mean = analysis.step.mean_s
    told = ", then ".join(f"{move.text} ({mean / move.pace.seconds:.2f}x so far)" for move in moves)
    return Suggestion(
        id=f"{asked[0].check}/together",
        check=asked[0].check,
        text=f"Together: {told}.",
        code=diff(written(analysis), moves[-1].chain),
        predicted=whole,
        risk="What each of them risks; they don't add up, each is counted on top of those before it.",
        edits=tuple(edit for move in moves for edit in move.edits),
    )


def _moves(analysis: Analysis, model: PipelineModel) -> Iterator[_Move]:
    """Give one change after the other, each of what then holds up the step."""
    chain = written(analysis)
    pace = pace_with(analysis, model)
    for _ in range(_MOST):
        move = _next(analysis, model, chain, pace)
        if move is None or move.pace.seconds * _WORTH > pace.seconds:
            return
        yield move
        model, chain, pace = move.model, move.chain, move.pace


def _next(analysis: Analysis, model: PipelineModel, chain: list[str], pace: Pace) -> _Move | None:
    if pace.limit == "turns":
        after = with_prefetch(model)
        longer = [*chain, "prefetch(tf.data.AUTOTUNE)"]
        edits = (Edit("prefetch"),)
        return _Move("prefetch at the end", after, longer, edits, pace_with(analysis, after))
    if pace.limit != "input":
        return None
    load = max(feed(model).ahead, key=lambda one: one.seconds)
    stage = max(load.stages, key=lambda one: one.per_batch_s)
    if stage.id < 0 or stage.label not in chain or stage.asynchronous:
        return None
    if kind(stage) == "Map" and stage.together is not None and (stage.locked or 0.0) < _LOCKED:
        after = with_parallel(model, stage, usable_cores(analysis.measurements))
        changed = parallel_map.rewritten(chain, stage.label)
        text = f"{stage.label} on several elements at once"
        return _Move(text, after, changed, (Edit("parallel", stage.id),), pace_with(analysis, after))
    return _reading(analysis, model, chain, stage)


def _reading(analysis: Analysis, model: PipelineModel, chain: list[str], stage: StageTime) -> _Move | None:
    if stage.interleaved is None or not reading.helps(stage):
        return None
    after = with_interleave(model, stage)
    like = reading.suggest_interleave(analysis, "", model, stage)
    text = f"{stage.interleaved.threads:g} files at a time from {stage.label}"
    changed = reading.interleaved(chain, stage, int(stage.interleaved.threads))
    return _Move(text, after, changed, like.edits, pace_with(analysis, after))

"""Put more rows into a batch: what does not grow with it is then shared by more of them."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import StageTime
from tfdiag.analyse.scaling import BatchScaling
from tfdiag.model.changes import Change
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import speedup

__all__ = ["RISK", "best_size", "predict", "saved_in_call", "step_with", "suggest"]

RISK = (
    "Fewer, larger updates: the learning rate may need to change, convergence and the quality of the result "
    "may differ, and it takes more memory."
)
_SPREAD = 0.05
"""How far the live step with another batch may be off what its replay says."""
_CROWDED = 1.5
"""Beside the step the input takes at most this much longer than its stages alone."""
_HANDS_ON = (
    "FromTensor",
    "Tensor",
    "ForeverRepeat",
    "FiniteRepeat",
    "Repeat",
    "Prefetch",
    "Root",
    "FiniteTake",
    "Take",
    "Skip",
    "Options",
    "Zip",
)
"""Stages that look at no row of a batch."""
_WAITS = 0.05
"""From this share of the step on its input is no small change of it."""


def step_with(analysis: Analysis, rows: int) -> Maybe:
    """Predict the job's own step with batches of another size, from the replay at several sizes.

    What happens for each step stays (callbacks, the loop), what happens for each row grows (the input, and
    what an epoch costs at its end, because the epoch has fewer steps), and the step itself was measured.
    """
    step, scaling = analysis.step, analysis.scaling
    if isinstance(step, Missing):
        return step
    if isinstance(scaling, Missing):
        return scaling
    now = scaling.steps[scaling.rows].value
    then = _in_place_of(scaling, rows)
    if isinstance(then, Missing):
        return then
    times = rows / scaling.rows
    ends, restart = analysis.between_epochs()
    wait = max(0.0, analysis.segment("input_wait") - restart)
    by_rows = _by_rows(analysis, wait)
    grows = by_rows + ends + restart
    stays = step.mean_s - grows
    # The live step is not the replayed one, and differs from it for any size alike.
    factor = _ratio(stays - (wait - by_rows) - _around(analysis), now)
    value = stays + factor * (then.value - now) + times * grows
    half = factor * (_end(then.high, then.value) - _end(then.low, then.value)) / 2 + _SPREAD * then.value
    high = value + half + (times - 1) * max(0.0, wait - by_rows)
    if analysis.crosses(analysis.share(wait), _WAITS):
        # An input that works ahead of the step is limited by itself: then all of the step grows with it.
        high = max(high, times * (stays + wait) + times * (ends + restart))
    return Quantity(
        value, "s", max(1e-9, value - half), high, "estimated", "one batch replayed at several sizes"
    )


def _by_rows(analysis: Analysis, wait: float) -> float:
    """Give the part of the wait that rows cause: handing over a batch takes its time, whatever is in it."""
    model = analysis.pipeline
    if isinstance(model, Missing) or not model.sampled or not all(stage.timed for stage in model.stages):
        # Unknown; but where a step hardly waits its batch is there already, and is only handed over.
        return wait if analysis.crosses(analysis.share(wait), _WAITS) else 0.0
    return min(wait, _CROWDED * sum(_grows(stage, model.overhead_s or 0.0) for stage in model.stages))


def _grows(stage: StageTime, per_call_s: float) -> float:
    """Give what a batch costs in a stage because of its rows."""
    if stage.per_batch > 1:
        return stage.per_batch_s
    if stage.base in _HANDS_ON:
        return 0.0
    return max(0.0, stage.per_batch_s - per_call_s * stage.calls_per_batch)


def saved_in_call(analysis: Analysis, rows: int) -> float:
    """Give the share of the step that batches of so many rows save inside of its call.

    What they save beside it (callbacks that run for each batch) has causes of its own.
    """
    scaling = analysis.scaling
    if isinstance(scaling, Missing):
        return 0.0
    then = _in_place_of(scaling, rows)
    if isinstance(then, Missing):
        return 0.0
    return analysis.share(scaling.steps[scaling.rows].value - then.value * scaling.rows / rows)


def _in_place_of(scaling: BatchScaling, rows: int) -> Maybe:
    """Give the replayed step at a size, on the level of the one at the job's own."""
    ratio = scaling.ratios.get(rows)
    return scaling.at(rows) if ratio is None else ratio.scaled(scaling.steps[scaling.rows].value, "s")


def _around(analysis: Analysis) -> float:
    """Give what lies around the call of the train function, for each step."""
    assert not isinstance(analysis.step, Missing)
    ends, _ = analysis.between_epochs()
    host = sum(item.per_step.value for item in analysis.step.host_items)
    return max(0.0, host - ends) + analysis.segment("compile")


def _ratio(live: float, replayed: float) -> float:
    """Give the live call over its replay: other caches, another trace, another minute; where believable."""
    return min(1.5, max(0.7, live / replayed)) if replayed > 0 else 1.0


def _end(end: float | None, value: float) -> float:
    return value if end is None else end


def predict(analysis: Analysis, rows: int) -> Maybe:
    """Predict the speed-up for each row, or why there is none."""
    scaling = analysis.scaling
    if isinstance(scaling, Missing):
        return scaling
    then = step_with(analysis, rows)
    if isinstance(then, Missing):
        return then
    times = rows / scaling.rows
    return speedup(
        analysis,
        then.value / times,
        _end(then.low, then.value) / times,
        _end(then.high, then.value) / times,
        f"for each row, with {times:g} times the batch: one batch replayed at several sizes",
    )


def best_size(analysis: Analysis) -> tuple[int, Quantity] | None:
    """Give the larger size that was run and gives most for each row, None where none was."""
    scaling = analysis.scaling
    if isinstance(scaling, Missing):
        return None
    found = [
        (rows, gain)
        for rows in sorted(scaling.steps)
        if rows > scaling.rows and isinstance(gain := predict(analysis, rows), Quantity)
    ]
    return max(found, key=lambda each: each[1].value, default=None)


def suggest(analysis: Analysis, check: str, rows: int, predicted: Maybe) -> Suggestion:
    """Suggest batches of so many rows."""
    size = analysis.measurements.job.batch_size
    now = f"{size.value:.0f}" if isinstance(size, Quantity) else "n"
    return Suggestion(
        id=f"{check}/bigger-batch",
        check=check,
        text=f"Use batches of {rows} rows: what a step costs whatever it holds is then shared "
        "by more of them (gain per row).",
        code=f"- dataset.batch({now})\n+ dataset.batch({rows})",
        predicted=predicted,
        risk=RISK,
        reason="not tried: only the caller can judge convergence",
        changes=(Change("batch_size", rows),),
    )

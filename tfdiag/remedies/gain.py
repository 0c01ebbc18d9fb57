"""Speed-ups from what a change takes off the step."""

from __future__ import annotations

from dataclasses import replace

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.analyse.prediction import Pace, feed, step_time
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = [
    "computing_share", "gain_of", "gain_with_input_at", "gain_without", "hidden_by", "spanning", "speedup",
]  # fmt: skip

_RULE = 1.1
"""How far the rule may be off where it fits the job as it is."""


def speedup(analysis: Analysis, after_s: float, low_s: float, high_s: float, source: str) -> Maybe:
    """Give the speed-up of a step that takes `after_s`, between `low_s` (fast) and `high_s` (slow)."""
    if isinstance(analysis.step, Missing):
        return analysis.step
    mean = analysis.step.mean_s
    # Nothing is known better than the step itself was.
    low, high = analysis.step.mean.low, analysis.step.mean.high
    noise = (high - low) / (2 * mean) if low is not None and high is not None and mean > 0 else 0.0
    slowest = max(high_s, after_s, 1e-9) * (1 + noise)
    fastest = max(min(low_s, after_s), 1e-9) / (1 + noise)
    return Quantity(
        mean / max(after_s, 1e-9),
        "x",
        mean / slowest,
        mean / fastest,
        "estimated",
        source,
    )


def gain_without(
    analysis: Analysis, seconds: float, *, at_least: float, at_most: float, source: str
) -> Maybe:
    """Give the speed-up when `seconds` a step go away, in truth between two shares of them.

    What stays is measured as well as what goes, so that it never melts away to nothing.
    """
    if isinstance(analysis.step, Missing):
        return analysis.step
    mean = analysis.step.mean_s
    after = mean - seconds
    fastest = max(mean - at_most * seconds, after / 2)
    return speedup(analysis, after, fastest, mean - at_least * seconds, source)


def gain_with_input_at(
    analysis: Analysis, input_s: float, spread: float, source: str, *, best_s: float | None = None
) -> Maybe:
    """Give the speed-up when the input needs `input_s` a batch and works ahead of the step.

    The step then takes whatever is longer, and no less than the processor time of both on the cores.
    `spread` is how much slower the input may turn out, as a factor, `best_s` how fast at best.
    """
    if isinstance(analysis.step, Missing):
        return analysis.step
    wait = analysis.segment("input_wait")
    ends, restart = analysis.between_epochs()
    rest = analysis.step.mean_s - wait - ends
    floor = rest
    if not isinstance(analysis.input_alone, Missing) and not isinstance(analysis.replay, Missing):
        live = analysis.measurements.live
        per_call = 1.0 if isinstance(live, Missing) else 1.0 / live.steps_per_call
        busy = analysis.input_alone.cpu_per_batch_s + analysis.replay.cpu_per_call_s * per_call
        floor = max(rest, busy / usable_cores(analysis.measurements))
    outside = ends + restart
    after = min(outside + max(floor, input_s), analysis.step.mean_s)
    slow = min(outside + max(floor, input_s * spread), analysis.step.mean_s)
    best = ends + max(rest, input_s * 0.9 if best_s is None else best_s)
    return speedup(analysis, after, best, slow, source)


def gain_of(analysis: Analysis, changed: PipelineModel, source: str) -> Maybe:
    """Give the speed-up when the job reads from a changed pipeline.

    The rule that predicts it is held against the job as it is: by as much as it misses that, the prediction
    may be off as well.
    """
    if isinstance(analysis.step, Missing):
        return analysis.step
    if isinstance(analysis.pipeline, Missing):
        return analysis.pipeline
    wait = analysis.step.segments["input_wait"]
    if isinstance(wait, Missing):
        return wait
    mean = analysis.step.mean_s
    rest = mean - wait.value
    now = _predicted(analysis, analysis.pipeline).seconds
    pace = _predicted(analysis, changed)
    then = pace.seconds
    missed = mean / now if now > 0 else 1.0
    # Within the miss of the rule, and never slower than nothing but waiting less would make it.
    floor = min(rest, _replayed(analysis) or rest)
    after = max(then, floor)
    ends = (after, after * missed, after / _RULE, after * _RULE)
    told = f"{source}; {_then(pace)}"
    return speedup(analysis, min(after, mean), max(min(ends), floor), min(max(ends), mean), told)


_THEN = {
    "the step": "the step then is the limit",
    "turns": "input and step then take turns",
    "the cores": "the cores are then the limit",
}


def _then(pace: Pace) -> str:
    """Say what holds up the step once a change is made: fixing one stage lets the next one show."""
    return _THEN.get(pace.limit, f"the step then waits for {pace.waits_for}")


def _predicted(analysis: Analysis, model: PipelineModel) -> Pace:
    assert not isinstance(analysis.step, Missing)
    ends, restart = analysis.between_epochs()
    rest = analysis.step.mean_s - analysis.segment("input_wait") - ends
    fed = feed(model)
    if analysis.contended_s and not isinstance(analysis.pipeline, Missing):
        # An input that works less takes less from the step.
        works = feed(analysis.pipeline).cpu_s
        left = min(1.0, fed.cpu_s / works) if works > 0 else 1.0
        rest -= analysis.contended_s * (1 - left)
    cpu = 0.0
    if not isinstance(analysis.replay, Missing):
        live = analysis.measurements.live
        cpu = analysis.replay.cpu_per_call_s / (1 if isinstance(live, Missing) else live.steps_per_call)
    cores = usable_cores(analysis.measurements)
    if not isinstance(analysis.input_alone, Missing) and not isinstance(analysis.pipeline, Missing):
        # On several threads the same work takes more of a processor than alone on one: cores share parts.
        alone = feed(analysis.pipeline).cpu_s
        if 0 < alone < analysis.input_alone.cpu_per_batch_s:
            fed = replace(fed, cpu_s=fed.cpu_s * analysis.input_alone.cpu_per_batch_s / alone)
    pace = step_time(fed, rest_s=rest, step_cpu_s=cpu, cores=cores)
    return replace(pace, seconds=ends + restart + pace.seconds)


def _replayed(analysis: Analysis) -> float | None:
    bare = analysis.bounds.replay
    return bare.value if isinstance(bare, Quantity) else None


def computing_share(analysis: Analysis) -> float:
    """Give the part of the input's own time in which it computes, the rest being waits."""
    alone = analysis.input_alone
    if isinstance(alone, Missing) or alone.batch.value <= 0:
        return 0.5
    return min(1.0, alone.cpu_per_batch_s / alone.batch.value)


def spanning(expected: Maybe, *ends: Maybe) -> Maybe:
    """Widen a prediction to those of the best and the worst case."""
    if isinstance(expected, Missing):
        return expected
    known = [expected, *(end for end in ends if isinstance(end, Quantity))]
    return replace(
        expected,
        low=min(one.value if one.low is None else one.low for one in known),
        high=max(one.value if one.high is None else one.high for one in known),
    )


def hidden_by(analysis: Analysis, changed: PipelineModel) -> float:
    """Give the part of the wait that the rule lets a changed pipeline hide, 0 to 1."""
    if isinstance(analysis.step, Missing) or isinstance(analysis.pipeline, Missing):
        return 0.0
    rest = analysis.step.mean_s - analysis.segment("input_wait")
    now = _predicted(analysis, analysis.pipeline).seconds
    then = _predicted(analysis, changed).seconds
    return min(1.0, max(0.0, (now - then) / (now - rest))) if now > rest else 0.0

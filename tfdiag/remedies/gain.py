"""Speed-ups from what a change takes off the step."""

from __future__ import annotations

from dataclasses import replace

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.analyse.prediction import Feed, Pace, feed, step_time
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = [
    "computing_share", "gain_of", "gain_with_input_at", "gain_without", "hidden_by", "pace_with", "spanning",
    "speedup",
]  # fmt: skip

_CROWDED = 1.5
"""Two threads that share a core take at most this much longer for the same work."""
_SHARED = 0.5
"""With a smaller part of the logical cores at work each has a core of its own."""
_SURELY_WAITS = 0.2
"""From this share of the step on its wait shows how long a batch takes."""
_SLOWEST = 3.0
"""A larger miss than this is no matter of speed: something is not in the model."""
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
    analysis: Analysis,
    input_s: float,
    spread: float,
    source: str,
    *,
    best_s: float | None = None,
    elsewhere: bool = False,
) -> Maybe:
    """Give the speed-up when the input needs `input_s` a batch and works ahead of the step.

    The step then takes whatever is longer, and no less than the processor time of both on the cores.
    `spread` is how much slower the input may turn out, as a factor, `best_s` how fast at best. `elsewhere`:
    in other processes, so that it no longer holds the step up by the interpreter's lock.
    """
    if isinstance(analysis.step, Missing):
        return analysis.step
    wait = analysis.segment("input_wait")
    ends, restart = analysis.between_epochs()
    rest = analysis.step.mean_s - wait - ends - (analysis.contended_s if elsewhere else 0.0)
    floor = rest
    if not isinstance(analysis.input_alone, Missing) and not isinstance(analysis.replay, Missing):
        busy = analysis.input_alone.cpu_per_batch_s + _step_cpu(analysis, rest)
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
    now = pace_with(analysis, analysis.pipeline).seconds
    pace = pace_with(analysis, changed)
    missed = mean / now if now > 0 else 1.0
    # Within the miss of the rule, and never slower than nothing but waiting less would make it.
    floor = min(rest, _replayed(analysis) or rest)
    after = max(pace.seconds, floor)
    sampled = max(pace_with(analysis, changed, as_sampled=True).seconds, floor)
    others = [
        max(pace_with(analysis, changed, ends_stay=part, crowding=crowding).seconds, floor)
        for part, crowding in ((0.0, 1.0), (1.0, _CROWDED))
    ]
    ends = (after, after * missed, sampled, *others, after / _RULE, after * _RULE)
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


def pace_with(
    analysis: Analysis,
    model: PipelineModel,
    *,
    as_sampled: bool = False,
    ends_stay: float = 0.0,
    crowding: float = (1 + _CROWDED) / 2,
) -> Pace:
    """Predict the step with a pipeline, its costs as they were in the live run or as they were sampled.

    The end of an epoch takes down an iterator, which waits for its tuning thread, the longer the older it
    is; `ends_stay` is the part of it that does not get shorter with the epoch. `crowding` is how much longer
    input and step take while both work that took turns before: logical cores share what there is one of.
    """
    assert not isinstance(analysis.step, Missing)
    ends, restart = analysis.between_epochs()
    between = ends + restart
    rest = analysis.step.mean_s - analysis.segment("input_wait") - ends
    fed = now = feed(model)
    if not isinstance(analysis.pipeline, Missing):
        now = feed(analysis.pipeline)
        # What the step takes longer than its replay without any input goes with the input's work,
        rest -= analysis.segment("unexplained") * (1 - _ratio(fed.cpu_s, now.cpu_s))
        # and the first batch of an epoch, ahead of which nothing works, comes as much sooner.
        restart *= _ratio(fed.alone_s, now.alone_s)
        slower = 1.0 if as_sampled else _slower(analysis, now, between)
        fed, now = fed.scaled(slower), now.scaled(slower)
    cores = usable_cores(analysis.measurements)
    step_cpu = _step_cpu(analysis, rest)
    pace = step_time(fed, rest_s=rest, step_cpu_s=step_cpu, cores=cores)
    warm = rest - _cooling(analysis, pace.seconds - rest, fed.cpu_s)
    pace = step_time(fed, rest_s=warm, step_cpu_s=step_cpu, cores=cores)
    longer = 0.0
    if pace.limit in ("the step", "input") and step_cpu + fed.cpu_s > _SHARED * cores * pace.seconds:
        longer = (crowding - 1) * max(0.0, _overlap(fed, rest) - _overlap(now, rest))
    inside = pace.seconds + longer
    lasting = analysis.lasting_ends()
    shorter = ends_stay + (1 - ends_stay) * _ratio(inside, analysis.step.mean_s - between)
    return replace(pace, seconds=lasting + (ends - lasting) * shorter + restart + inside)


def _cooling(analysis: Analysis, wait: float, input_cpu: float) -> float:
    """Give what a step takes less when it waits no longer than this: its caches and threads stay warm.

    Only as far as the input leaves them alone, which runs on the same cores.
    """
    waited = analysis.segment("input_wait")
    live, replay = analysis.measurements.live, analysis.replay
    if isinstance(replay, Missing) or isinstance(live, Missing) or waited <= 0:
        return 0.0
    cold = max(0.0, replay.paced.value - replay.call.value) / live.steps_per_call
    shorter = min(1.0, max(0.0, 1 - wait / waited))
    alone = min(1.0, max(0.0, 1 - input_cpu / max(1e-9, replay.call.value / live.steps_per_call)))
    return cold * shorter * alone


def _overlap(fed: Feed, rest: float) -> float:
    """Give for how long of a step its input works as well."""
    return min(rest, max((load.seconds for load in fed.ahead), default=0.0))


def _slower(analysis: Analysis, now: Feed, between: float) -> float:
    """Give how much slower the input is in the live run than its stages are alone.

    A step that waits shows what a batch takes: all of the step where the input works ahead, else the wait.
    """
    assert not isinstance(analysis.step, Missing)
    wait = analysis.segment("input_wait")
    if not analysis.crosses(wait / analysis.step.mean_s, _SURELY_WAITS):
        return 1.0
    ahead = max((load.seconds for load in now.ahead), default=0.0)
    if ahead > now.in_step.seconds:
        seen, alone = analysis.step.mean_s - between, ahead
    else:
        seen, alone = wait, now.in_step.seconds
    return min(_SLOWEST, max(1 / _SLOWEST, seen / alone)) if alone > 0 else 1.0


def _ratio(then: float, now: float) -> float:
    """Give what is left of something, at most all of it."""
    return min(1.0, then / now) if now > 0 else 1.0


def _step_cpu(analysis: Analysis, rest: float) -> float:
    """Give the processor time that a step needs.

    Its threads spin while they have nothing to do, so that what the process used is the most; the least is
    one core for as long as the step works. Beside an input that works all the time, it had what was left.
    """
    if isinstance(analysis.replay, Missing) or isinstance(analysis.step, Missing):
        return 0.0
    live = analysis.measurements.live
    used = analysis.replay.cpu_per_call_s / (1 if isinstance(live, Missing) else live.steps_per_call)
    least = min(used, rest)
    if not isinstance(analysis.pipeline, Missing):
        now = feed(analysis.pipeline)
        beside = min(1.0, max((load.seconds for load in now.ahead), default=0.0) / analysis.step.mean_s)
        left = usable_cores(analysis.measurements) - beside
        used = min(used, max(least, rest * left))
    return (least + used) / 2


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
    now = pace_with(analysis, analysis.pipeline).seconds
    then = pace_with(analysis, changed).seconds
    return min(1.0, max(0.0, (now - then) / (now - rest))) if now > rest else 0.0

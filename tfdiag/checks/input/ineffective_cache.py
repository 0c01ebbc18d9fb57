"""A cache is there, and the work goes on.

What it measures
    Where the cache stands, which work lies behind it although it is the same in every pass, and whether
    the stages below it still give elements after several passes. It fires when the step waits for work
    that a cache in the right place would spare.
Why it matters
    A cache spares only what lies below it. And it is used only once it has been filled to its end: one
    that is read in part (`cache().take(n)`) or that never ends (`repeat().cache()`) is filled anew in
    each epoch.
How to fix it
    Put `cache()` behind the expensive stage and before everything random; put `take` below it and
    `repeat` behind it.
When to ignore it
    When the result of the expensive stage does not fit in memory and its input does.
References
    https://www.tensorflow.org/api_docs/python/tf/data/Dataset#cache
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.order import kind, repeats_the_same
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import with_cache
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import caching, moved_cache

__all__ = ["CHECK"]

_PART = 0.5
_PASSES = 3.0
"""After so many passes a cache that can be completed was complete before the second reading began."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for what a cache could have spared."""
    wait = facts.waits(analysis)
    if not wait:
        return
    model = facts.pipeline(analysis)
    cache = next((stage for stage in reversed(model.stages) if kind(stage) == "Cache"), None)
    if cache is None:
        if not model.known and any(part.startswith("cache") for part in model.written):
            raise Undecided("what lies before and behind the cache has no times: nothing was sampled")
        return
    slow = facts.bottleneck(analysis)
    if slow.stage in model.downstream(cache):
        yield from _above(analysis, slow, cache, wait)
    elif slow.stage in model.upstream(cache):
        yield from _never_full(analysis, slow, cache, wait)


def _above(analysis: Analysis, slow: facts.Bottleneck, cache: StageTime, wait: float) -> Iterator[Result]:
    model, stage = slow.model, slow.stage
    between = [other for other in model.upstream(stage) if other in model.downstream(cache)]
    if any(kind(other) == "Repeat" for other in [*between, *model.upstream(cache)]):
        return  # what is repeated already has no end that a cache could reach
    function = stage.function
    if stage.id < 0 or function is None:
        return  # copying into batches and the like is not what a cache is for
    if not all(repeats_the_same(each) for each in [stage, *model.upstream(stage)]):
        return
    cost = wait * slow.part
    if slow.part < _PART or not analysis.crosses(cost, facts.COST_SHARE):
        return
    size = caching.size_of(analysis, stage)
    if isinstance(size, Missing):
        raise Undecided(f"whether {stage.label} would fit into the cache is not known: {size.reason}")
    room = caching.FREE_PART * analysis.measurements.environment.memory_bytes
    if size.value > room:
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{stage.label} lies behind the cache, so it is done again in every epoch",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, the part of this stage"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                facts.stage_evidence(stage),
                Evidence(
                    f"part of {stage.label} in what the step waits for",
                    Quantity(slow.part, "share", source="stages alone"),
                    Quantity(_PART, "share", origin="given"),
                    "above",
                ),
                # "below" is strict, and what just fits still fits
                Evidence(
                    f"all elements of {stage.label}", size, Quantity(room + 1, "B", origin="given"), "below"
                ),
            ),
            where=stage.label,
        ),
        (moved_cache.suggest(analysis, CHECK.id, model, cache, stage),),
    )


def _never_full(
    analysis: Analysis, slow: facts.Bottleneck, cache: StageTime, wait: float
) -> Iterator[Result]:
    model = slow.model
    below = model.upstream(cache)
    moving = [stage.advancing for stage in [slow.stage, *below]]
    if True not in moving and False in moving:
        return  # it is full, and nothing below it works any more
    endless = next(
        (s for s in below if kind(s) == "Repeat" and s.node is not None and s.node.size == -1), None
    )
    cut = _cut_short(model, cache)
    evidence = [facts.wait_evidence(analysis, facts.COST_SHARE), facts.stage_evidence(slow.stage)]
    if endless is None and cut is None:
        if True not in moving:
            raise Undecided("whether the stages below the cache still work was not seen")
        evidence.append(_passes(analysis, cache))
        if not _above_threshold(evidence[-1]):
            return
    elif cut is not None and cache.node is not None:
        assert cut.node is not None
        evidence.append(
            Evidence(
                f"elements that {cut.label} takes of the cache",
                Quantity(_taken(cache, cut), "elements", source="graph"),
                Quantity(cache.node.cardinality or 0, "elements", source="graph"),
                "below",
            )
        )
    part = sum(s.per_batch_s for s in slow.load.stages if s in below) / sum(
        s.per_batch_s for s in slow.load.stages
    )
    cost = wait * part
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    fix = with_cache(model, cache)
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The cache is never completed, so {slow.stage.label} is done again in every epoch",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, the part of what lies below the cache"),
            evidence=tuple(evidence),
            where=cache.label,
        ),
        (moved_cache.suggest_completing(analysis, CHECK.id, model, cache, cut, endless, fix),),
    )


def _cut_short(model: PipelineModel, cache: StageTime) -> StageTime | None:
    """Give the take behind a cache that never lets it come to its end."""
    count = cache.node.cardinality if cache.node is not None else None
    if not count or count < 0:
        return None
    for stage in model.downstream(cache):
        if kind(stage) == "Repeat":
            return None
        size = stage.node.size if stage.node is not None else None
        if kind(stage) == "Take" and size and size > 0 and _taken(cache, stage) < count:
            return stage
    return None


def _taken(cache: StageTime, take: StageTime) -> float:
    assert take.node is not None
    # Batches are of several elements; what is shuffled ahead of the take does not change their number.
    each = cache.per_batch / take.per_batch if take.per_batch > 0 else 1.0
    return (take.node.size or 0) * each


def _passes(analysis: Analysis, cache: StageTime) -> Evidence:
    live = analysis.measurements.live
    count = cache.node.cardinality if cache.node is not None else None
    if not isinstance(live, Live) or not count or count < 0:
        raise Undecided("how many elements the cache has to hold is not known")
    steps = (live.first_call_index + len(live.start_s)) * live.steps_per_call
    return Evidence(
        "passes over the cached elements while the job was watched",
        Quantity(steps * cache.per_batch / count, "passes", source="live run"),
        Quantity(_PASSES, "passes", origin="given"),
        "above",
    )


def _above_threshold(one: Evidence) -> bool:
    assert isinstance(one.quantity, Quantity)
    assert one.threshold is not None
    return one.quantity.value >= one.threshold.value


CHECK = Check("ineffective-cache", "A cache spares nothing", "input", __doc__, run)

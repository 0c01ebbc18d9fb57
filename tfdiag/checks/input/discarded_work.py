"""Expensive work is done on elements that are then dropped.

What it measures
    How many elements go into the stages behind the slowest one for each that comes out (`filter`,
    `shard`, `take`), and for a `skip` what its elements cost at the beginning of each pass. It fires
    when at least a fifth of the slowest stage's work is thrown away and the step waits for it.
Why it matters
    Whatever is dropped behind an expensive stage has gone through it for nothing.
How to fix it
    Drop first: `shard`, `skip` and `take` before the expensive map give the same elements. A `filter`
    has to be written for the elements as they are before the map.
When to ignore it
    When the filter needs what the expensive stage computes.
References
    https://www.tensorflow.org/api_docs/python/tf/data/Dataset#shard
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.order import beneath_cache, kind, way_down
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import earlier_drop

__all__ = ["CHECK"]

_DROPPING = ("Filter", "Shard", "Take")
_RATIO = 1.25


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for work on elements that nobody gets."""
    wait = facts.waits(analysis)
    if not wait:
        return
    slow = facts.bottleneck(analysis)
    model, stage = slow.model, slow.stage
    if beneath_cache(model, stage):
        return
    for drop in model.downstream(stage):
        if kind(drop) in _DROPPING:
            yield from _dropped(analysis, slow, drop, wait)
        elif kind(drop) == "Skip":
            yield from _skipped(analysis, slow, drop, wait)


def _dropped(analysis: Analysis, slow: facts.Bottleneck, drop: StageTime, wait: float) -> Iterator[Result]:
    model, stage = slow.model, slow.stage
    if drop.ratio < _RATIO:
        return
    wasted = 1 - 1 / drop.ratio
    cost = wait * slow.part * wasted
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    passed = None if kind(drop) == "Filter" else way_down(model, drop, stage)
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{drop.label} drops {wasted:.0%} of what {stage.label} has worked on",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, the part of this stage that is thrown away"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                facts.stage_evidence(stage),
                Evidence(
                    f"elements into {drop.label} for each that comes out",
                    Quantity(drop.ratio, "elements", source="elements counted by the runtime, or the graph"),
                    Quantity(_RATIO, "elements", origin="given"),
                    "above",
                ),
            ),
            where=f"{stage.label} → {drop.label}",
        ),
        (earlier_drop.suggest(analysis, CHECK.id, model, stage, drop, passed),),
    )


def _skipped(analysis: Analysis, slow: facts.Bottleneck, skip: StageTime, wait: float) -> Iterator[Result]:
    model, stage = slow.model, slow.stage
    size = skip.node.size if skip.node is not None else None
    if not size or size < 0 or skip.per_batch <= 0:
        return
    if any(kind(other) == "Repeat" for other in model.upstream(skip)):
        return  # it is skipped once, not in each pass
    steps = _steps_of_pass(analysis, model, skip)
    assert not isinstance(analysis.step, Missing)
    if steps is None or analysis.step.mean_s <= 0:
        return
    threads = max(1.0, stage.parallelism if stage.asynchronous else 1.0)
    seconds = size * stage.per_batch_s / threads / skip.per_batch
    cost = min(wait, seconds / (steps * analysis.step.mean_s))
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{skip.label} drops elements that {stage.label} has worked on, at the start of each pass",
            severity=severity_of(cost),
            cost=facts.share(cost, source="time of the skipped elements, spread over a pass"),
            evidence=(
                facts.stage_evidence(stage),
                Evidence(
                    "time for the skipped elements, once a pass",
                    Quantity(seconds, "s", origin="estimated", source="their number times their cost"),
                    Quantity(facts.COST_SHARE * steps * analysis.step.mean_s, "s", origin="given"),
                    "above",
                ),
            ),
            where=f"{stage.label} → {skip.label}",
        ),
        (earlier_drop.suggest_skip(analysis, CHECK.id, stage, skip, way_down(model, skip, stage), cost),),
    )


def _steps_of_pass(analysis: Analysis, model: PipelineModel, skip: StageTime) -> float | None:
    """Give the training steps between two beginnings of this part of the pipeline."""
    repeated = any(kind(other) == "Repeat" for other in model.downstream(skip))
    count = skip.node.cardinality if skip.node is not None else None
    if repeated:
        return count / skip.per_batch if count and count > 0 else None
    steps = analysis.measurements.job.steps_per_epoch
    return steps.value if isinstance(steps, Quantity) and steps.value > 0 else None


CHECK = Check("discarded-work", "Work is done on elements that are dropped", "input", __doc__, run)

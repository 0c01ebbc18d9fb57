"""Calling functions once for each element takes the time, not what they do.

What it measures
    What calling a function costs on this machine whatever it does, times how often functions are called for
    a batch; and, where a map's function takes whole batches and gives the same, its time on them. It fires
    when the step waits and the calls are two fifths or more of what the busiest thread does, or when the
    map takes half the time or less on whole batches.
Why it matters
    tf.data calls a function for every element. A small function on small elements then mostly pays for the
    calls: thousands for a batch where one would do.
How to fix it
    Batch first, then map over whole batches: most TensorFlow operations take them as they are.
When to ignore it
    When the function needs its elements one at a time, because they differ in shape.
References
    https://www.tensorflow.org/guide/data_performance#vectorizing_mapping
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import StageTime
from tfdiag.checks import facts, stages
from tfdiag.checks.facts import Bottleneck
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import batch_first

__all__ = ["CHECK"]

_OVERHEAD = 0.4
_BATCHED = 0.5
_CALLS = 2.0
"""With fewer calls for a batch there is nothing to spare."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for calls rather than for work."""
    wait = facts.waits(analysis)
    if not wait:
        return
    found = facts.bottleneck(analysis)
    calling = [stage for stage in found.load.stages if stages.calls(stage) > 0]
    count = sum(stages.calls(stage) for stage in calling)
    if count < _CALLS:
        return
    batched = _gains_from_batches(found.stage)
    if found.model.overhead_s is None and found.stage.batched_s is None:
        raise Undecided("what calling a function costs on this machine was not measured")
    part = _overhead(found, count)
    cost = wait * max(found.part if batched else 0.0, part)
    if (not batched and part < _OVERHEAD) or not stages.worth(analysis, cost):
        return
    stage = found.stage if batched else max(calling, key=stages.calls)
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"functions are called {count:,.0f} times for a batch, and that is most of what they cost",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, by the part that calls have in it"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                facts.stage_evidence(found.stage),
                Evidence(
                    "calls of functions for a batch",
                    Quantity(count, "calls", source="elements of each stage for a batch"),
                    Quantity(_CALLS, "calls", origin="given"),
                    "above",
                ),
                *_shown(found, part, batched),
            ),
            where=stage.label,
        ),
        (batch_first.suggest(analysis, CHECK.id, found.model, stage, tuple(calling)),),
    )


def _gains_from_batches(stage: StageTime) -> bool:
    return (
        stages.is_map(stage)
        and stage.batched_s is not None
        and stage.batched_s <= _BATCHED * stage.per_batch_s
    )


def _overhead(found: Bottleneck, count: float) -> float:
    """Give the part of what the thread does for a batch that is nothing but calls."""
    whole = sum(stage.per_batch_s for stage in found.load.stages)
    return min(1.0, (found.model.overhead_s or 0.0) * count / whole) if whole > 0 else 0.0


def _shown(found: Bottleneck, part: float, batched: bool) -> Iterator[Evidence]:
    if part >= _OVERHEAD:
        yield Evidence(
            f"part of the calls in what {found.load.what} does for a batch",
            Quantity(part, "share", source="a function that does nothing, for each of the calls"),
            Quantity(_OVERHEAD, "share", origin="given"),
            "above",
        )
    if batched and found.stage.batched_s is not None:
        yield Evidence(
            f"time of {found.stage.label} on the whole batch",
            Quantity(found.stage.batched_s, "s", source="its function on whole batches, same result"),
            Quantity(_BATCHED * found.stage.per_batch_s, "s", origin="given"),
            # At the very threshold it speaks for the finding too.
            "below" if found.stage.batched_s < _BATCHED * found.stage.per_batch_s else "above",
        )


CHECK = Check("per-element-work", "Calls for each element take the time", "input", __doc__, run)

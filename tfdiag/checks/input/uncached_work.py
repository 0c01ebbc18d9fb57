"""The same expensive work is done in every epoch although its result fits in memory.

What it measures
    The time for a batch of all stages up to the last one that gives the same elements in every pass, as
    part of what the step waits for, and the memory that these elements take: their number times their
    size. It fires when this is at least half of what the step waits for and takes no more than half of
    the memory, and when a pass over the data, in which a cache is filled, takes no more than a day.
Why it matters
    Reading and decoding give the same in each epoch. Kept in memory, they cost one epoch instead of
    all.
How to fix it
    `cache()` behind the expensive stage and before `shuffle`, `repeat` and everything random.
When to ignore it
    When other processes need the memory, or the job has so few epochs that it does not matter.
References
    https://www.tensorflow.org/guide/data_performance#caching
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.order import kind
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import caching

__all__ = ["CHECK"]

_PART = 0.5
_GAIN = 1.05
_DAY_S = 86400.0
"""A cache that takes longer to be filled is hardly ever read."""
_AS_GOOD = 0.95
"""A place that spares this part of what the best one spares is as good, and the latest of those is taken."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when what the step waits for is done again and again, and could be kept."""
    wait = facts.waits(analysis)
    if not wait:
        return
    slow = facts.bottleneck(analysis)
    model = slow.model
    if not _repeats(analysis, model):
        return
    whole = sum(stage.per_batch_s for stage in slow.load.stages)
    rated = [
        (sum(s.per_batch_s for s in place.kept if s in slow.load.stages) / whole, place)
        for place in caching.places(model)
    ]
    best = max((part for part, _ in rated), default=0.0)
    if best < _PART:
        return
    memory = float(analysis.measurements.environment.memory_bytes)
    found = _first_that_fits(analysis, [r for r in rated if r[0] >= max(_PART, _AS_GOOD * best)], memory)
    if found is None:
        return
    part, place, size = found
    pass_s = _pass_s(analysis, place, size)
    if pass_s is not None and pass_s > _DAY_S:
        return
    suggestion = caching.suggest(analysis, CHECK.id, model, place)
    gain = suggestion.predicted
    if not isinstance(gain, Quantity) or gain.value <= _GAIN:
        return
    cost = wait * part
    label = place.stage.label
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Everything up to {label} is done again in every epoch and would fit in memory",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, the part of what a cache would spare"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                facts.stage_evidence(slow.stage),
                Evidence(
                    "part of what the step waits for that a cache would spare",
                    Quantity(part, "share", source="stages alone"),
                    Quantity(_PART, "share", origin="given"),
                    "above",
                ),
                Evidence(
                    f"all elements of {label}",
                    size,
                    # "below" is strict, and half of the memory itself still fits
                    Quantity(caching.FREE_PART * memory + 1, "B", origin="given"),
                    "below",
                ),
                *_pass_evidence(pass_s),
            ),
            where=label,
        ),
        (suggestion,),
    )


def _pass_s(analysis: Analysis, place: caching.Place, size: Quantity) -> float | None:
    """Give how long a pass over the data takes, which fills the cache; None where that is not known."""
    of_a_batch = (place.stage.element_bytes or 0.0) * place.stage.per_batch
    return size.value / of_a_batch * facts.mean(analysis) if of_a_batch > 0 else None


def _pass_evidence(seconds: float | None) -> tuple[Evidence, ...]:
    if seconds is None:
        return ()
    each = Quantity(seconds, "s", origin="estimated", source="all elements, at the rate of this run")
    return (Evidence("a pass, which fills it", each, Quantity(_DAY_S, "s", origin="given"), "below"),)


def _first_that_fits(
    analysis: Analysis, rated: list[tuple[float, caching.Place]], memory: float
) -> tuple[float, caching.Place, Quantity] | None:
    unknown = ""
    for part, place in rated:
        size = caching.size_of(analysis, place.stage)
        if isinstance(size, Missing):
            unknown = size.reason
        elif size.value <= caching.FREE_PART * memory:
            return part, place, size
    if unknown:
        raise Undecided(f"whether a cache would fit in memory is not known: {unknown}")
    return None


def _repeats(analysis: Analysis, model: PipelineModel) -> bool:
    """Say whether the data are read more than once."""
    if analysis.measurements.job.one_shot:
        return False
    if analysis.measurements.job.epochs != 1:  # 0: not said, and most jobs have several
        return True
    return any(
        kind(stage) == "Repeat" and stage.node is not None and stage.node.size not in (0, 1)
        for stage in model.stages
    )


CHECK = Check("uncached-work", "The same work is done in every epoch", "input", __doc__, run, rank=1)

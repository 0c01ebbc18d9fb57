"""Keep what is the same in every pass in memory."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.order import kind, pure, repeats_the_same
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import with_cache
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.pipeline_code import diff, written
from tfdiag.remedies.sparing import gain_of_sparing

__all__ = ["FREE_PART", "Place", "code_of_cache", "places", "predict", "size_of", "suggest"]

FREE_PART = 0.5
"""The part of the machine's memory that a cache may take."""
_NO_PLACE = ("Prefetch", "Repeat", "Options", "Cache")


@dataclass(frozen=True, slots=True)
class Place:
    """A stage behind which a cache may stand."""

    stage: StageTime
    kept: tuple[StageTime, ...]
    """The stages whose work it spares: the stage itself and all below."""
    python: bool
    """One of them calls Python, and nobody can see whether that gives the same again."""
    shuffles: tuple[tuple[StageTime, tuple[StageTime, ...]], ...] = ()
    """Shuffles that must go behind the cache first, each with the maps it then follows; nearest first."""


def places(model: PipelineModel) -> list[Place]:
    """Give where a cache may stand, the latest first: everything up to there is the same in every pass."""
    found: list[Place] = []
    for stage in model.stages:
        kept = [stage, *model.upstream(stage)]
        if stage.id < 0 or kind(stage) in _NO_PLACE:
            continue
        shuffles = _movable_shuffles(model, stage)
        moved = [shuffle for shuffle, _ in shuffles]
        if not all(repeats_the_same(each) for each in kept if each not in moved):
            continue
        if any(kind(each) in ("Repeat", "Cache") for each in kept):
            continue
        if any(kind(each) == "Cache" for each in model.downstream(stage)):
            continue
        if stage.node is not None and stage.node.cardinality == -1:
            continue
        python = any(each.function is not None and each.function.python for each in kept)
        python = python or any("Generator" in kind(each) or "generator" in each.label for each in kept)
        found.append(Place(stage, tuple(kept), python, shuffles))
    return list(reversed(found))


def _movable_shuffles(
    model: PipelineModel, stage: StageTime
) -> tuple[tuple[StageTime, tuple[StageTime, ...]], ...]:
    """Give the shuffles below a stage that can as well follow it: between are maps of single elements."""
    found = []
    maps: list[StageTime] = []
    current = stage
    while kind(current) in ("Map", "Shuffle") and len(current.inputs) == 1 and current.id >= 0:
        if kind(current) == "Map":
            if not pure(current):
                break
            maps.append(current)
        elif maps:
            found.append((current, tuple(reversed(maps))))
        current = model.stages[current.inputs[0]]
    return tuple(found)


def _edits(place: Place) -> tuple[Edit, ...]:
    """Move shuffles behind the place, and put the cache there."""
    swaps = [Edit("swap", one.id) for _, maps in place.shuffles for one in maps]
    return (*swaps, Edit("cache_after", place.stage.id))


def _moved(chain: list[str], place: Place) -> list[str]:
    """Write the chain with the cache, and with the shuffles behind it."""
    rest = list(chain)
    for shuffle, _ in place.shuffles:
        if shuffle.label not in rest:
            return []
        rest.remove(shuffle.label)
    if place.stage.label not in rest:
        return []
    at = len(rest) - 1 - rest[::-1].index(place.stage.label)
    behind = [shuffle.label for shuffle, _ in reversed(place.shuffles)]
    return [*rest[: at + 1], "cache()", *behind, *rest[at + 1 :]]


def size_of(analysis: Analysis, stage: StageTime) -> Maybe:
    """Estimate the bytes of all elements of a stage in one pass."""
    each = stage.element_bytes
    if each is None:
        return Missing(f"the size of an element of {stage.label} is not known")
    count = stage.node.cardinality if stage.node is not None else None
    if count is not None and count > 0:
        return Quantity(
            each * count, "B", origin="estimated", source="elements times their size", count=count
        )
    steps = analysis.measurements.job.steps_per_epoch
    if isinstance(steps, Missing):
        return Missing(f"how many elements {stage.label} gives is not known: {steps.reason}")
    return Quantity(
        each * stage.per_batch * steps.value,
        "B",
        origin="estimated",
        source="elements of an epoch times their size",
    )


def predict(analysis: Analysis, model: PipelineModel, stage: StageTime) -> Maybe:
    """Predict the step once the cache is full."""
    return gain_of_sparing(
        analysis, with_cache(model, stage), f"everything up to {stage.label} read from memory"
    )


def code_of_cache(chain: list[str], stage: StageTime) -> str:
    """Write a cache behind a stage."""
    if stage.label not in chain:
        return "- dataset\n+ dataset.cache()"
    at = len(chain) - 1 - chain[::-1].index(stage.label)
    return diff(chain, [*chain[: at + 1], "cache()", *chain[at + 1 :]])


def _code(chain: list[str], place: Place) -> str:
    moved = _moved(chain, place)
    return diff(chain, moved) if moved else code_of_cache(chain, place.stage)


def suggest(analysis: Analysis, check: str, model: PipelineModel, place: Place) -> Suggestion:
    """Suggest a cache behind a stage."""
    size = size_of(analysis, place.stage)
    takes = f"about {size.value / 2**20:.0f} MiB" if isinstance(size, Quantity) else "an unknown amount"
    unseen = " Only if its Python code gives the same in every epoch: what is random would be frozen."
    return Suggestion(
        id=f"{check}/cache",
        check=check,
        text=f"Keep what {place.stage.label} gives in memory: cache() behind it"
        + (", and the shuffle behind that." if place.shuffles else "."),
        code=_code(written(analysis), place),
        predicted=predict(analysis, model, place.stage),
        risk=f"It takes {takes} of memory; the first epoch is no faster, and must be read to its end."
        + (unseen if place.python else ""),
        reason="not tried: whether its Python code gives the same again only the caller knows"
        if place.python
        else "",
        edits=() if place.python else _edits(place),
    )

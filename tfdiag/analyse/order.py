"""What may be moved in a pipeline, and what gives the same elements in every pass.

Only what the graph shows counts: a function that draws random numbers, calls Python, keeps state or can't be
seen is never taken to give the same again.
"""

from __future__ import annotations

from tfdiag.analyse.pipeline import PipelineModel, StageTime

__all__ = [
    "beneath_cache", "inner_datasets", "is_reader", "kind", "makes_datasets", "pure", "repeats_the_same",
    "way_down",
]  # fmt: skip

_READERS = ("TFRecord", "TextLine", "FixedLengthRecord")
_MAKERS = ("FlatMap", "Interleave")
_LOCKED = 0.5
"""Python in the function matters less than this where several datasets were seen to give more."""
_PASSING = ("Prefetch", "Options")


def kind(stage: StageTime) -> str:
    """Give what the caller wrote, parallel or not: `Map`, `Batch`, `Interleave`, `TFRecord`."""
    base = _plain(stage.node.op) if stage.node is not None else stage.base
    return base.removeprefix("Parallel") if base != "ParallelZip" else base


def _plain(op: str) -> str:
    return op.rstrip("V0123456789").removesuffix("Dataset")


def makes_datasets(stage: StageTime) -> bool:
    """Say whether its function makes datasets, and it gives their elements; generators don't count."""
    function = stage.function
    return (
        kind(stage) in _MAKERS
        and function is not None
        and bool(function.datasets)
        and (not function.python or (stage.locked is not None and stage.locked < _LOCKED))
        and not any("Generator" in op for op in function.datasets)
        and not stage.label.startswith("from_generator")
    )


def is_reader(stage: StageTime) -> bool:
    """Say whether it reads records from files, by itself or by the datasets of its function."""
    if kind(stage) in _READERS:
        return True
    function = stage.function
    return (
        makes_datasets(stage)
        and function is not None
        and any(_plain(op) in _READERS for op in function.datasets)
    )


def inner_datasets(model: PipelineModel, stage: StageTime) -> int | None:
    """Give how many files or datasets a stage reads in a pass; None where that is not known."""
    if stage.node is not None and stage.node.files is not None:
        return stage.node.files[0]
    if not makes_datasets(stage) or len(stage.inputs) != 1:
        return None
    below = model.stages[stage.inputs[0]].node
    if below is None or below.cardinality is None or below.cardinality <= 0:
        return None
    return below.cardinality


def pure(stage: StageTime) -> bool:
    """Say whether its function gives the same for the same element, whenever it is called."""
    function = stage.function
    return function is not None and not (function.random or function.python or function.stateful)


def repeats_the_same(stage: StageTime) -> bool:
    """Say whether a stage by itself gives the same elements in every pass.

    Functions in Python count as such, because nobody can see into them: ask for those separately.
    """
    if stage.node is None:
        return True  # what the runtime adds changes no elements
    if stage.node.random or stage.node.opaque:
        return False
    return stage.function is None or not stage.function.random


def beneath_cache(model: PipelineModel, stage: StageTime) -> bool:
    """Say whether a cache lies behind a stage, so that its work is not done again once that is full."""
    return stage.advancing is not True and any(kind(other) == "Cache" for other in model.downstream(stage))


def way_down(model: PipelineModel, stage: StageTime, below: StageTime) -> list[StageTime] | None:
    """Give the stages that a stage passes on its way to the place below another one.

    None where the elements could be others then: only pure maps and stages that just hand on are passed.
    """
    passed: list[StageTime] = []
    current = stage
    while current is not below:
        if len(current.inputs) != 1:
            return None
        current = model.stages[current.inputs[0]]
        if not (kind(current) in _PASSING or (kind(current) == "Map" and pure(current))):
            return None
        if current.id < 0:
            return None
        passed.append(current)
    return passed

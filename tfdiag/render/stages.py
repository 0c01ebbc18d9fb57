"""What a report says about the input pipeline, a line for each stage."""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.pipeline import PipelineModel, StageTime, pipeline_model
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.quantity import Missing
from tfdiag.render.format import clean, duration, number, share, size

__all__ = ["stage_lines"]

_SILENT = ("Root", "Options", "Model", "MaxIntraOpParallelism", "PrivateThreadPool")
_WAITS = 0.2
"""From this share on it is said that a stage waits."""
_STARTS_S = 0.5


def stage_lines(pipeline: Pipeline | Missing) -> Iterator[tuple[str, str]]:
    """Give name and description of each stage, source first."""
    model = pipeline_model(pipeline)
    if isinstance(model, Missing) or not model.known:
        return
    for index, stage in enumerate(model.stages):
        if stage.base in _SILENT:
            continue
        yield _indent(model, index) + clean(stage.label), clean(_describe(stage))


def _indent(model: PipelineModel, index: int) -> str:
    """Set the sources of a stage with several apart."""
    several = [stage for stage in model.stages[index + 1 :] if len(stage.inputs) > 1]
    depth = sum(model.stages[index] in model.upstream(stage) for stage in several)
    return "  " * depth


def _describe(stage: StageTime) -> str:
    parts = []
    if stage.node is not None and stage.node.opaque:
        parts.append(f"can't be seen into: {stage.node.opaque}")
    elif stage.spared_s > 0:
        parts.append(f"spared by a full cache, {duration(stage.spared_s)} a batch without it")
    elif stage.per_batch_s > 0:
        parts.append(f"{duration(stage.per_batch_s)} a batch")
        waiting = stage.waiting
        if waiting is not None and waiting >= _WAITS:
            parts.append(f"{share(waiting)} of it waiting")
    elif not stage.timed:
        parts.append("time not measured")
    if stage.parallelism > 1:
        upper = "up to " if stage.tunable else ""
        parts.append(f"on {upper}{number(stage.parallelism)} threads")
    elif stage.serial and stage.per_batch_s > 0:
        parts.append("on one thread")
    if stage.per_batch > 1:
        parts.append(f"{number(round(stage.per_batch, 1))} elements a batch")
    if stage.element_bytes:
        parts.append(f"{size(stage.element_bytes)} each")
    function = stage.function
    if function is not None:
        if function.python:
            parts.append("calls Python")
        if function.random:
            parts.append("random")
        if function.where:
            parts.append(f"at {function.where}")
    if stage.first_s > max(_STARTS_S, 3 * stage.per_batch_s):
        parts.append(f"its first element after {duration(stage.first_s)}")
    return ", ".join(parts) or "takes next to no time"

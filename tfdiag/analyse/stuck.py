"""Where in a pipeline a batch is held up that never came: from what each stage has given and taken."""

from __future__ import annotations

from tfdiag.analyse.pipeline import base_of, label_of
from tfdiag.model.pipeline import Pipeline, Stage
from tfdiag.model.quantity import Missing

__all__ = ["stuck_stage"]

_CALLS = ("Map", "ParallelMap", "MapAndBatch", "Filter", "Scan")
"""Stages with a function of the caller's, which may not come back."""


def stuck_stage(pipeline: Pipeline | Missing) -> str:
    """Name the stage that the rest of the pipeline waits for; empty where it can't be told.

    A stage with a function has taken an element that it has not given: it is in it. All other stages wait for
    what they read from.
    """
    if isinstance(pipeline, Missing) or pipeline.output is None:
        return ""
    stages = {stage.id: stage for stage in pipeline.stages}
    stage = stages[pipeline.output]
    seen = {stage.id}
    while not _holds(stage, stages):
        below = [stages[i] for i in stage.inputs if i in stages and i not in seen]
        if not below:
            break
        # Of several sources the one that gave least is waited for; inner datasets come last and run now.
        stage = below[-1] if _inner(stage) else min(below, key=lambda each: each.elements)
        seen.add(stage.id)
    return label_of(stage, pipeline)


def _inner(stage: Stage) -> bool:
    return base_of(stage.name) in ("FlatMap", "Interleave", "ParallelInterleave")


def _holds(stage: Stage, stages: dict[int, Stage]) -> bool:
    base = base_of(stage.name)
    if base not in _CALLS or not stage.inputs or stage.inputs[0] not in stages:
        return False
    taken = stages[stage.inputs[0]].elements
    if base == "MapAndBatch":
        size = next((knob.value for knob in stage.parameters if knob.name == "batch_size"), 0.0)
        return size > 0 and taken % size != 0
    return taken > stage.elements

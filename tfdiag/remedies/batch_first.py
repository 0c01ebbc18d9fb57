"""Let a function work on whole batches."""

from __future__ import annotations

from dataclasses import replace

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_of, spanning
from tfdiag.remedies.pipeline_code import diff, written

__all__ = ["predict", "suggest"]

_LEAST_LEFT = 0.1
"""Of what a stage takes, this stays even where its calls seem to be all of it."""


def predict(
    analysis: Analysis, model: PipelineModel, stage: StageTime, calling: tuple[StageTime, ...]
) -> Maybe:
    """Predict the step when the function is called once for a batch."""
    if stage.batched_s is not None:
        factor = stage.batched_s / stage.per_batch_s if stage.per_batch_s > 0 else 1.0
        cpu = None if stage.cpu_per_batch_s is None else stage.cpu_per_batch_s * factor
        batch = _batch_after(model, stage)
        if batch is not None:  # what batching costs is in the time of the function on whole batches
            model = model.changed(batch, per_batch_s=0.0, cpu_per_batch_s=0.0)
        changed = model.changed(stage, per_batch_s=stage.batched_s, cpu_per_batch_s=cpu, calls_per_batch=1.0)
        return gain_of(analysis, changed, "the function's own time on whole batches")
    if model.overhead_s is None:
        return Missing("what calling a function costs was not measured")
    source = "the calls spared but for one a batch; what the function then takes is not known"
    likely = gain_of(analysis, _spared(model, calling, 1.0), source)
    return spanning(likely, gain_of(analysis, _spared(model, calling, 0.3), source))


def _spared(model: PipelineModel, calling: tuple[StageTime, ...], part: float) -> PipelineModel:
    """Take this part of the cost of calls off all stages that make them."""
    stages = []
    for stage in model.stages:
        if any(stage is one for one in calling):
            times = stage.calls_per_batch or stage.per_batch * stage.ratio
            gone = part * (model.overhead_s or 0.0) * max(0.0, times - 1)
            left = max(_LEAST_LEFT, 1 - gone / stage.per_batch_s) if stage.per_batch_s > 0 else 1.0
            cpu = None if stage.cpu_per_batch_s is None else stage.cpu_per_batch_s * left
            stages.append(replace(stage, per_batch_s=stage.per_batch_s * left, cpu_per_batch_s=cpu))
        else:
            stages.append(stage)
    return replace(model, stages=tuple(stages))


def suggest(
    analysis: Analysis,
    check: str,
    model: PipelineModel,
    stage: StageTime,
    calling: tuple[StageTime, ...],
) -> Suggestion:
    """Suggest to batch before the map."""
    batch = _batch_after(model, stage)
    known = stage.batched_s is not None and stage.batched_exact and batch is not None
    return Suggestion(
        id=f"{check}/batch-first",
        check=check,
        text=f"Batch before {stage.label}, so that its function is called once for a batch.",
        code=_code(written(analysis), stage, batch),
        predicted=predict(analysis, model, stage, calling),
        risk=(
            "The function gets a batch: operations over the first axis mean something else then. On this "
            "job's own batches it gave the same." if known else
            "The function gets a batch and must be written for one: operations over the first axis mean "
            "something else then, and elements must have one shape."
        ),
        reason="" if known else
        "not tried: whether the function takes whole batches is not known" if stage.batched_exact else
        "not tried: on whole batches the function gives the same values in another layout (stack, split and "
        "the like need another axis)",
        edits=(Edit("swap", batch.id),) if known and batch is not None else (),
    )  # fmt: skip


def _batch_after(model: PipelineModel, stage: StageTime) -> StageTime | None:
    """Give the batch that reads directly from a stage."""
    position = model.position(stage)
    for other in model.stages:
        if other.inputs == (position,) and other.node is not None and other.id >= 0:
            kind = other.node.op.removesuffix("Dataset")
            return other if kind in ("Batch", "ParallelBatch") else None
    return None


def _code(chain: list[str], stage: StageTime, batch: StageTime | None) -> str:
    if stage.label in chain:
        place = chain.index(stage.label)
        after = chain[place + 1 : place + 2]
        if batch is not None and after == [batch.label]:
            return diff(chain, [*chain[:place], batch.label, stage.label, *chain[place + 2 :]])
    return "- dataset.map(fn).batch(n)\n+ dataset.batch(n).map(fn, num_parallel_calls=tf.data.AUTOTUNE)"

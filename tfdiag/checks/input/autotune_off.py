"""The job keeps tf.data from using the cores: autotune is off, or a map's parallelism is fixed below them.

What it measures
    What each thread of the running pipeline must do for a batch, and what the job says about parallelism.
    It fires when the step waits for a map that tf.data would run in parallel by itself if its autotune were
    on, or whose number of parallel calls is fixed below the cores.
Why it matters
    With autotune tf.data runs a map without state on all cores, though it was written without
    `num_parallel_calls`, and puts a prefetch at the end. Without it nothing of this happens. A fixed
    number holds on every machine, whatever its cores.
How to fix it
    Write `num_parallel_calls=tf.data.AUTOTUNE`, which takes all cores where autotune is off, and end the
    pipeline with a prefetch. Or leave `options.autotune.enabled` alone: tf.data then does both by itself,
    with as many threads as its tuning sees fit, which may be fewer than there are cores.
When to ignore it
    When the cores are needed for something else that matters more.
References
    https://www.tensorflow.org/api_docs/python/tf/data/experimental/AutotuneOptions
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.checks import facts, stages
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import parallel_map

__all__ = ["CHECK"]

_WORTH = 0.2
"""Of the costliest map: a smaller one would only be handed from thread to thread."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for a map that may not use the cores."""
    wait = facts.waits(analysis)
    cores = usable_cores(analysis.measurements)
    if not wait or cores < 2:
        return
    found = facts.bottleneck(analysis)
    model, stage = found.model, found.stage
    cost = wait * found.part
    if not stages.is_map(stage) or not stages.worth(analysis, cost) or _hardly_gains(model, stage):
        return
    fixed = stages.fixed_parallelism(model, stage)
    if fixed is not None and fixed < cores:
        title = f"{stage.label} is held to {fixed} parallel call{'s' * (fixed > 1)} on {cores:g} cores"
        remedy = parallel_map.suggest_tune(analysis, CHECK.id, model, stage)
    elif stages.left_serial_by_the_job(model, stage):
        title = f"autotune is off, so {stage.label} works on one element at a time"
        maps = [other for other in model.stages if _as_well(model, other, stage)]
        remedy = parallel_map.suggest_explicit(analysis, CHECK.id, model, maps, prefetch=not model.prefetches)
    else:
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=title,
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, by this stage's part of it"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                facts.stage_evidence(stage),
                Evidence(
                    "parallel calls of this stage",
                    Quantity(float(fixed or 1), "threads", source="as written"),
                    Quantity(cores, "threads", source="usable cores"),
                    "below",
                ),
                *stages.locked_evidence(stage, below=True),
            ),
            where=stage.label,
        ),
        (remedy,),
    )


def _hardly_gains(model: PipelineModel, stage: StageTime) -> bool:
    """Say whether more threads are no use, or may be none where a Python function was not sampled."""
    if stage.locked is None:
        return stages.is_python(model, stage)
    return stage.locked >= stages.LOCKED


def _as_well(model: PipelineModel, other: StageTime, stage: StageTime) -> bool:
    """Say whether another map is worth to be run in parallel too."""
    if other is stage:
        return True
    return stages.left_serial_by_the_job(model, other) and other.per_batch_s >= _WORTH * stage.per_batch_s


CHECK = Check("autotune-off", "The job keeps tf.data from using the cores", "input", __doc__, run)

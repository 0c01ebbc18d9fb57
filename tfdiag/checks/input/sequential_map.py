"""A map that the runtime leaves serial is the slowest stage.

What it measures
    The time that each stage of the running pipeline needs for a batch, and on how many threads. It fires
    when the slowest stage is a map on one thread, other cores are there, and the step waits for input.
Why it matters
    tf.data makes most maps parallel by itself, but not one with random state or a Python function, nor
    any where its tuning is switched off. Such a map works on one element at a time while other cores
    idle.
How to fix it
    `dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)`. Where the order of elements is free, add
    `deterministic=False`. A function that spends its time in Python holds the interpreter's lock: rewrite
    it with TensorFlow operations, or threads won't help.
When to ignore it
    When the function must see the elements one after the other.
References
    https://www.tensorflow.org/guide/data_performance#parallelizing_data_transformation
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import parallel_map

__all__ = ["CHECK"]

_MAPS = ("Map", "MapAndBatch")
_STAGE_SHARE = 0.5
"""The map must be this part of all stages' time together, or it is not what the step waits for."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for a map on a single thread."""
    wait = facts.input_wait(analysis)
    cost = analysis.share(wait)
    if not analysis.crosses(cost, facts.COST_SHARE) or usable_cores(analysis.measurements) < 2:
        return
    model = facts.pipeline(analysis)
    if not model.from_model:
        raise Undecided("tf.data keeps no model of this pipeline, so its stages have no times")
    slowest = model.slowest
    if slowest is None or not slowest.serial or slowest.name.split("V")[0] not in _MAPS:
        return
    everything = sum(stage.per_batch_s for stage in model.stages)
    part = slowest.per_batch_s / everything if everything > 0 else 0.0
    if part < _STAGE_SHARE:
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{slowest.label} works on one element at a time and the step waits for it",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                Evidence(
                    f"time of {slowest.label} for a batch",
                    Quantity(slowest.per_batch_s, "s", source="tf.data model"),
                ),
                Evidence(
                    f"part of {slowest.label} in all stages",
                    Quantity(part, "share", source="tf.data model"),
                    Quantity(_STAGE_SHARE, "share", origin="given"),
                    "above",
                ),
                Evidence(
                    "threads of this stage",
                    Quantity(slowest.parallelism, "threads", source="tf.data model"),
                    Quantity(usable_cores(analysis.measurements), "threads", source="usable cores"),
                    "below",
                ),
            ),
            where=slowest.label,
        ),
        (parallel_map.suggest(analysis, CHECK.id, model, slowest),),
    )


CHECK = Check("sequential-map", "A serial map holds up the step", "input", __doc__, run)

"""A map that the runtime leaves serial is what the step waits for.

What it measures
    What each thread of the running pipeline must do for a batch. It fires when the busiest one spends its
    time in a map that works on one element at a time, other cores are there, and the step waits for input.
    It leaves alone a map whose function hardly gains from threads (half of it or more is locked), one that
    is mostly the overhead of being called (per-element-work), and one that is serial only because the job
    switched autotune off (autotune-off).
Why it matters
    tf.data makes most maps parallel by itself, but not one with random state or a Python function. Such a
    map works on one element at a time while other cores idle.
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
from tfdiag.checks import facts, stages
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import parallel_map

__all__ = ["CHECK"]

_OVERHEAD = 0.5
"""From this part on a map is not slow for what it does but for being called so often."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for a map on a single thread."""
    wait = facts.waits(analysis)
    cores = usable_cores(analysis.measurements)
    if not wait or cores < 2:
        return
    found = facts.bottleneck(analysis)
    model, stage = found.model, found.stage
    cost = wait * found.part
    if not stages.is_map(stage) or not stage.serial or not stages.worth(analysis, cost):
        return
    if stages.fixed_parallelism(model, stage) is not None or stages.left_serial_by_the_job(model, stage):
        return
    if not stages.surely_serial(model, stage):
        raise Undecided(
            f"whether tf.data runs {stage.label} in parallel by itself is not known: there is no model of it"
        )
    overhead = stages.overhead_part(model, stage) or 0.0
    if (stage.locked or 0.0) >= stages.LOCKED or overhead >= _OVERHEAD:
        return
    evidence = [
        facts.wait_evidence(analysis, facts.COST_SHARE),
        facts.stage_evidence(stage),
        Evidence(
            "threads of this stage",
            Quantity(1.0, "threads", source="tf.data model" if model.from_model else "as written"),
            Quantity(cores, "threads", source="usable cores"),
            "below",
        ),
        *stages.locked_evidence(stage, below=True),
    ]
    if overhead:
        evidence.append(
            Evidence(
                f"part of {stage.label} that is being called",
                Quantity(overhead, "share", source="an empty function, for each of its calls"),
                Quantity(_OVERHEAD, "share", origin="given"),
                "below",
            )
        )
    python = stages.is_python(model, stage)
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{stage.label} works on one element at a time and the step waits for it",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, by this stage's part of it"),
            evidence=tuple(evidence),
            where=stage.label,
        ),
        (parallel_map.suggest(analysis, CHECK.id, model, stage, python=python),),
    )


CHECK = Check("sequential-map", "A serial map holds up the step", "input", __doc__, run)

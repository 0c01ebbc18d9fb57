"""A Python function in a map holds the interpreter's lock, and more threads don't make it faster.

What it measures
    How much faster the map's function gets on all cores than on one thread, where it was sampled; else how
    many cores the input keeps busy although its map runs in parallel. It fires when the step waits for a
    map that calls `py_function` or `numpy_function` and half of it or more is done by one thread at a time.
Why it matters
    Python's interpreter runs one thread at a time. A parallel map of such a function has many threads of
    which one works, and while it does, the training loop's own Python waits.
How to fix it
    Write the function with TensorFlow operations, which need no lock. Where that can't be done, work its
    results out once and keep them (`cache`, TFRecord files), or work them out in other processes.
When to ignore it
    When the function spends its time in a library that gives the lock back, and the cores are busy with it.
References
    https://www.tensorflow.org/guide/data#applying_arbitrary_python_logic
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import StageTime
from tfdiag.checks import facts, stages
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import tensorflow_function

__all__ = ["CHECK"]

_BUSY_LEAST, _BUSY_MOST = 0.5, 1.5
"""A parallel map that computes under a lock keeps about one core busy: with less it waits for something
else, with more its threads do work side by side."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for a Python function that threads don't make faster."""
    wait = facts.waits(analysis)
    if not wait:
        return
    found = facts.bottleneck(analysis)
    model, stage = found.model, found.stage
    cost = wait * found.part
    if not stages.is_map(stage) or not stages.is_python(model, stage) or not stages.worth(analysis, cost):
        return
    if stage.locked is not None:
        evidence = stages.locked_evidence(stage, below=False) if stage.locked >= stages.LOCKED else ()
    else:
        evidence = _unsampled(analysis, stage)
    if not evidence:
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{stage.label} calls Python, which runs on one thread at a time",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, by this stage's part of it"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                facts.stage_evidence(stage),
                *evidence,
            ),
            where=stage.label,
        ),
        tensorflow_function.suggest(analysis, CHECK.id, model, stage),
    )


def _unsampled(analysis: Analysis, stage: StageTime) -> tuple[Evidence, ...]:
    """Tell by the cores that a parallel map keeps busy whether its threads take turns."""
    if stage.serial:
        return ()
    if stage.parallelism <= 1:
        raise Undecided(f"whether more threads would help {stage.label} was not sampled")
    alone = analysis.input_alone
    if isinstance(alone, Missing) or alone.batch.value <= 0:
        raise Undecided(
            f"whether the threads of {stage.label} work side by side is not known: neither was it sampled, "
            "nor is the processor time of the input known"
        )
    busy = alone.cpu_per_batch_s / alone.batch.value
    if not _BUSY_LEAST <= busy < _BUSY_MOST:
        return ()
    one = Quantity(busy, "cores", source="processor time of the input alone, over its time")
    return (
        Evidence(
            "threads of this stage",
            Quantity(stage.parallelism, "threads", source="tf.data model"),
            Quantity(2.0, "threads", origin="given"),
            "above",
        ),
        Evidence(
            "cores that the input keeps busy", one, Quantity(_BUSY_LEAST, "cores", origin="given"), "above"
        ),
        Evidence(
            "cores that it keeps busy at most", one, Quantity(_BUSY_MOST, "cores", origin="given"), "below"
        ),
    )


CHECK = Check(
    "python-function-in-map", "Python's lock makes a map work on one element at a time", "input", __doc__, run
)

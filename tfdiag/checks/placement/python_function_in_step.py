"""The step calls back into Python.

What it measures
    Which ops of the step's graph are Python functions (`tf.py_function`, `tf.numpy_function`), in layers,
    losses, metrics and loops, and, from a trace of a few steps, how long nothing but them runs. On a GPU
    that is the time for which it stands idle around them, with the copies to the host and back.
Why it matters
    A Python function runs on the CPU, holds the interpreter's lock, and takes part in no fusion. On a GPU
    its inputs are fetched and its results sent back, and the GPU waits for both. In a loop such as
    `map_fn` it is called once for each element.
How to fix it
    Write it with TensorFlow operations. If it only prepares data, move it into the dataset's `map`, where
    it runs ahead of the step. If it only watches, call it from a callback, every so many steps.
When to ignore it
    When there is no such operation and the function needs what the model computes.
References
    https://www.tensorflow.org/api_docs/python/tf/py_function
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, placed
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import placed_ops

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for Python functions in it."""
    found = placed.placement(analysis)
    ops = placed.of_kind(found, "python")
    if not ops:
        return
    what = f"the step calls Python: {placed.named(ops)}"
    time = placed.time_of(found, "python", what)
    seconds = time.alone_s / placed.per_call(analysis)
    cost = min(1.0, analysis.share(seconds))  # traced calls are slower than others
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title="The step calls back into Python",
            severity=severity_of(cost),
            cost=facts.share(cost, source="time in which nothing but these functions ran"),
            evidence=(
                *placed.time_evidence(
                    analysis,
                    time,
                    "time that the step waits for Python functions",
                    "time in Python functions",
                ),
                Evidence(
                    "Python functions in the step's graph",
                    Quantity(float(len(ops)), "ops", source="graph of the step"),
                ),
            ),
            where=placed.named(ops),
            detail="It is called in a loop." if ops[0].in_loop else "",
        ),
        placed_ops.instead_of_python(analysis, CHECK.id, ops[0], seconds),
    )


CHECK = Check("python-function-in-step", "The step calls back into Python", "placement", __doc__, run)

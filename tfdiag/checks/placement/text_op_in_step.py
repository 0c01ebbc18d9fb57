"""Text is processed within the step.

What it measures
    Which ops of the step's graph work on strings or look things up in tables (`TextVectorization`,
    `StringLookup`, `IntegerLookup`, `tf.strings`), and, from a trace of a few steps, how long nothing but
    them and the rest of their layers runs. On a GPU that is the time for which it stands idle around them.
Why it matters
    No accelerator handles strings: these ops run on the CPU while it waits, and what they make has to be
    copied. In the dataset the same work is done ahead of the step, on several cores.
How to fix it
    Take the layer out of the model and map the dataset with it:
    `dataset.map(lambda x, y: (vectorize(x), y), num_parallel_calls=tf.data.AUTOTUNE)`. For serving, put it
    in front of the trained model again.
When to ignore it
    When the dataset's threads already have all cores busy: then the work only moves.
References
    https://www.tensorflow.org/guide/keras/preprocessing_layers
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
    """Fire when the step waits for text ops in it."""
    found = placed.placement(analysis)
    ops = placed.of_kind(found, "text")
    if not ops:
        return
    time = placed.time_of(found, "text", f"the step processes text: {placed.named(ops)}")
    seconds = time.alone_s / placed.per_call(analysis)
    cost = min(1.0, analysis.share(seconds))  # traced calls are slower than others
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title="Text is processed within the step",
            severity=severity_of(cost),
            cost=facts.share(cost, source="time in which nothing but these ops and their layers ran"),
            evidence=(
                *placed.time_evidence(
                    analysis, time, "time that the step waits for text ops and their layers", "time in them"
                ),
                Evidence(
                    "text ops in the step's graph",
                    Quantity(float(len(ops)), "ops", source="graph of the step"),
                ),
            ),
            where=placed.named(ops),
        ),
        (placed_ops.text_in_dataset(analysis, CHECK.id, ops[0], seconds),),
    )


CHECK = Check("text-op-in-step", "Text is processed within the step", "placement", __doc__, run)

"""A Python generator is the slowest stage of the input.

What it measures
    Whether the batches come from a Python generator (`from_generator`, or a generator given to `fit`),
    how long it takes for a batch, and how long the step waits for input.
Why it matters
    A generator runs on one thread and holds Python's lock: no setting of tf.data makes it faster, and
    while it computes, the training loop's own Python has to wait for it.
How to fix it
    Keep the data in arrays, TFRecord or CSV files and prepare it with tf.data operations. Where it has to
    stay Python, run several generators side by side with `interleave`, or in worker processes.
When to ignore it
    Never because of its looks: a generator that keeps up with the step is no finding.
References
    https://www.tensorflow.org/api_docs/python/tf/data/Dataset#from_generator
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import parallel_generators

__all__ = ["CHECK"]

_GIVEN = ("generator", "generator function")
_NEVER = ("arrays", "PyDataset")
"""Keras reads these through a generator of its own, which is not the caller's to change."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits and a generator is what it waits for."""
    wait = facts.input_wait(analysis)
    cost = analysis.share(wait)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    kind = analysis.measurements.job.input
    model = None if isinstance(analysis.pipeline, Missing) else analysis.pipeline
    if not _is_the_slowest(kind, model):
        return
    where = "the generator given to fit" if kind in _GIVEN else "from_generator"
    evidence = [facts.wait_evidence(analysis, facts.COST_SHARE)]
    if model is not None and model.slowest is not None:
        evidence.append(
            Evidence(
                "time of the generator for a batch",
                Quantity(model.slowest.per_batch_s, "s", source="tf.data model"),
            )
        )
    yield Result(
        Finding(
            check=CHECK.id,
            title="A Python generator can't keep up with the step",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input"),
            evidence=tuple(evidence),
            where=where,
        ),
        (parallel_generators.suggest(analysis, CHECK.id),),
    )


def _is_the_slowest(kind: str, model: PipelineModel | None) -> bool:
    if kind in _NEVER:
        return False
    if model is not None and model.slowest is not None:
        return "Generator" in model.slowest.name
    if kind in _GIVEN:
        return True
    if model is None or not model.written:
        raise Undecided("neither the stages of the pipeline nor what was written are known")
    if not model.written[0].startswith("from_generator"):
        return False
    # No times of stages: only of a pipeline that is nothing but a generator can it be told.
    rest = [part for part in model.written[1:] if not part.startswith(("prefetch", "batch"))]
    if rest:
        raise Undecided(f"whether the generator or {rest[0]} is slower can't be told without times of stages")
    return True


CHECK = Check("python-generator", "A Python generator holds up the step", "input", __doc__, run)

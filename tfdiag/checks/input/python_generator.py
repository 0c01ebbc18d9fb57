"""A Python generator is what the step waits for.

What it measures
    Whether the batches come from a Python generator (`from_generator`, or a generator given to `fit`),
    how long it takes for a batch, and how long the step waits for input.
Why it matters
    A generator runs on one thread and holds Python's lock: no setting of tf.data makes it faster, and
    while it computes, the training loop's own Python has to wait for it. One that yields single elements
    goes from TensorFlow to Python and back for each of them.
How to fix it
    Keep the data in arrays, TFRecord or CSV files and prepare it with tf.data operations. Where it has to
    stay Python, yield whole batches, and run several generators side by side with `interleave`, or in
    worker processes.
When to ignore it
    Never because of its looks: a generator that keeps up with the step is no finding.
References
    https://www.tensorflow.org/api_docs/python/tf/data/Dataset#from_generator
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.checks import facts, stages
from tfdiag.checks.facts import Bottleneck
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
    wait = facts.waits(analysis)
    kind = analysis.measurements.job.input
    if not wait or kind in _NEVER:
        return
    model = None if isinstance(analysis.pipeline, Missing) else analysis.pipeline
    found: Bottleneck | None = None
    if model is not None and model.known:
        found = facts.bottleneck(analysis)
        if not stages.is_generator(found.stage):
            return
    elif not _nothing_else(kind, model):
        return
    cost = wait * (found.part if found is not None else 1.0)
    if not stages.worth(analysis, cost):
        return
    stage = found.stage if found is not None else None
    evidence = [facts.wait_evidence(analysis, facts.COST_SHARE)]
    if stage is not None:
        evidence += [
            facts.stage_evidence(stage),
            Evidence("elements that it yields for a batch", Quantity(stage.per_batch, "elements")),
        ]
    yield Result(
        Finding(
            check=CHECK.id,
            title="A Python generator can't keep up with the step",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, by the generator's part of it"),
            evidence=tuple(evidence),
            where="the generator given to fit" if kind in _GIVEN else "from_generator",
        ),
        parallel_generators.suggest(analysis, CHECK.id, stage),
    )


def _nothing_else(kind: str, model: PipelineModel | None) -> bool:
    """Say whether the input is nothing but a generator, where no stage has a time."""
    if kind in _GIVEN:
        return True
    if model is None or not model.written:
        raise Undecided("neither the stages of the pipeline nor what was written are known")
    if not model.written[0].startswith("from_generator"):
        return False
    # Only of a pipeline that is nothing but a generator can it be told.
    rest = [part for part in model.written[1:] if not part.startswith(("prefetch", "batch"))]
    if rest:
        raise Undecided(f"whether the generator or {rest[0]} is slower can't be told without times of stages")
    return True


CHECK = Check("python-generator", "A Python generator holds up the step", "input", __doc__, run)

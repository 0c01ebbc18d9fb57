"""Filling a shuffle's buffer delays the start, or its elements fill the memory.

What it measures
    The elements in the buffer times what one of them costs up to there, against the time of an epoch (a
    minute where epochs have no end), and their bytes against the memory. It fires from a twentieth of
    the epoch, or a quarter of the memory.
Why it matters
    A shuffle gives nothing before its buffer is full. In each pass the step waits for it, and what was
    made for the buffer at the end of the pass before is gone.
How to fix it
    Shuffle before the expensive map, while elements are small (file names, records). A smaller buffer
    fills faster, and mixes less.
When to ignore it
    When training starts rarely and epochs are long.
References
    https://www.tensorflow.org/api_docs/python/tf/data/Dataset#shuffle
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.order import kind
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import feed
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding, Suggestion
from tfdiag.remedies import shuffling

__all__ = ["CHECK"]

_FILL = 0.05
_MEMORY = 0.25
_ENDLESS_S = 60.0
"""Stands for the epoch where there is none that ends."""
_FIRST_S = 10.0
"""Where the buffer is filled only once, the first batch must take so long."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when filling takes a share of the epoch, or the buffer a share of the memory."""
    if isinstance(analysis.pipeline, Missing):
        if not facts.waits(analysis):
            return  # whatever there is, the step does not wait for it
        raise Undecided(f"the pipeline is not known: {analysis.pipeline.reason}")
    model = analysis.pipeline
    if not model.known and any(part.startswith("shuffle") for part in model.written):
        raise Undecided("what an element costs before the shuffle is not known: nothing was sampled")
    for stage in model.stages:
        if kind(stage) == "Shuffle" and stage.node is not None and (stage.node.size or 0) > 1:
            yield from _judged(analysis, model, stage)


def _judged(analysis: Analysis, model: PipelineModel, stage: StageTime) -> Iterator[Result]:
    assert not isinstance(analysis.step, Missing)
    assert stage.node is not None
    count = _held(stage, model)
    each = _cost_of_element(model, stage)
    steps = _steps_of_pass(analysis, model, stage)
    seconds = count * each
    epoch = _ENDLESS_S if steps is None else steps * analysis.step.mean_s
    slow = epoch > 0 and seconds >= _FILL * epoch
    evidence = [
        Evidence("elements in the buffer", Quantity(count, "elements", source="graph")),
        Evidence(
            "time to fill it",
            Quantity(seconds, "s", origin="estimated", source="its elements times their cost up to there"),
            Quantity(_FILL * epoch, "s", origin="given") if slow else None,
            "above" if slow else "",
        ),
    ]
    if slow and steps is None:
        slow = _first_batch(analysis, evidence)
    elif slow:
        slow = _restarts(analysis, model, evidence)
    memory = float(analysis.measurements.environment.memory_bytes)
    taken = count * (stage.element_bytes or 0.0)
    big = memory > 0 and taken >= _MEMORY * memory
    if big:
        evidence.append(
            Evidence(
                "bytes in the buffer",
                Quantity(taken, "B", origin="estimated", source="its elements times their size"),
                Quantity(_MEMORY * memory, "B", origin="given"),
                "above",
            )
        )
    if not slow and not big:
        return
    cost = min(1.0, max(1e-3, seconds / epoch)) if epoch > 0 else 1e-3
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{stage.label} fills its buffer for {seconds:.2g} s"
            if slow
            else f"The buffer of {stage.label} takes {taken / 2**30:.2g} GiB",
            severity=severity_of(cost),
            cost=facts.share(cost, source="filling the buffer, against the time of a pass"),
            evidence=tuple(evidence),
            where=stage.label,
        ),
        tuple(_suggestions(analysis, model, stage, (count, each, steps))),
    )


def _held(stage: StageTime, model: PipelineModel) -> int:
    """Give the elements in a full buffer: no more than there are."""
    assert stage.node is not None
    size = stage.node.size or 0
    below = model.stages[stage.inputs[0]].node if stage.inputs else None
    there = below.cardinality if below is not None else None
    return min(size, there) if there and there > 0 else size


def _cost_of_element(model: PipelineModel, stage: StageTime) -> float:
    """Give the time of one element up to a stage, with the threads that work below it."""
    if not stage.inputs or stage.per_batch <= 0:
        return 0.0
    end = stage.inputs[0] + 1
    below = replace(model, stages=model.stages[:end], prefetches=False)
    return feed(below).alone_s / stage.per_batch


def _steps_of_pass(analysis: Analysis, model: PipelineModel, stage: StageTime) -> float | None:
    """Give the steps between two fillings; None where the buffer is filled once."""
    if any(_endless(other) for other in model.upstream(stage)):
        return None
    if any(_endless(other) for other in model.downstream(stage)):
        below = model.stages[stage.inputs[0]].node if stage.inputs else None
        count = below.cardinality if below is not None else None
        return count / stage.per_batch if count and count > 0 and stage.per_batch > 0 else None
    steps = analysis.measurements.job.steps_per_epoch
    return steps.value if isinstance(steps, Quantity) and steps.value > 0 else None


def _endless(stage: StageTime) -> bool:
    return kind(stage) == "Repeat" and stage.node is not None and stage.node.size == -1


def _first_batch(analysis: Analysis, evidence: list[Evidence]) -> bool:
    """Say whether the first batch really took long; where it was not seen, nobody knows."""
    assert not isinstance(analysis.step, Missing)
    first = analysis.step.first_batch
    if isinstance(first, Missing):
        raise Undecided(f"the time to the first batch is not known: {first.reason}")
    if first.value < _FIRST_S:
        return False
    evidence.append(
        Evidence("time to the first batch", first, Quantity(_FIRST_S, "s", origin="given"), "above")
    )
    return True


def _restarts(analysis: Analysis, model: PipelineModel, evidence: list[Evidence]) -> bool:
    """Say whether the first batches of epochs really took longer, where some were seen."""
    if isinstance(analysis.steady, Missing) or isinstance(analysis.steady.boundary, Missing):
        return True
    boundary = analysis.steady.boundary
    if not boundary.followed or any(kind(stage) == "Repeat" for stage in model.stages):
        return True
    assert not isinstance(analysis.step, Missing)
    steps = analysis.measurements.job.steps_per_epoch
    if isinstance(steps, Missing):
        return True
    least = _FILL * steps.value * analysis.step.mean_s
    if boundary.restart_s < least:
        return False
    evidence.append(
        Evidence(
            "what the first batch of an epoch takes longer",
            Quantity(boundary.restart_s, "s", source="live run", count=boundary.followed),
            Quantity(least, "s", origin="given"),
            "above",
        )
    )
    return True


def _suggestions(
    analysis: Analysis, model: PipelineModel, stage: StageTime, fill: tuple[int, float, float | None]
) -> Iterator[Suggestion]:
    count, each, steps = fill
    seconds = count * each
    lowest = shuffling.lowest_place(model, stage)
    if lowest is not None:
        moved = _cost_of_element(model, lowest)
        yield shuffling.suggest_earlier(
            analysis, CHECK.id, model, stage, lowest, shuffling.Fill(seconds, count * moved, steps)
        )
    yield shuffling.suggest_smaller(
        analysis, CHECK.id, stage, count, shuffling.Fill(seconds, seconds / shuffling.SMALLER, steps)
    )


CHECK = Check("shuffle-buffer", "Filling a shuffle's buffer takes long", "input", __doc__, run)

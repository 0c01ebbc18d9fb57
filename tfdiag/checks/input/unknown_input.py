"""The step waits for input, and no check knows why.

What it measures
    The wait for input. It fires when that is a tenth of the step or more and no other check of the input
    has a finding; it then says what was measured: the stage that takes longest, the rate of the input
    without the model, and how much of its time a processor works for it.
Why it matters
    A wait without a cause is still a wait: the numbers say where to look.
How to fix it
    Look at the stage that is named. If hardly a processor works for it, it waits: for a disk, a network, or
    a lock. If one does all the time, it computes on one thread.
When to ignore it
    When the input can't be changed.
References
    https://www.tensorflow.org/guide/data_performance_analysis
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, stages
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding

__all__ = ["CHECK"]

_SHARE = 0.10


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits and nothing else says what for."""
    wait = facts.waits(analysis)
    if not analysis.crosses(wait, _SHARE):
        return
    asked = stages.others(analysis, stages.input_checks(but=CHECK.id))
    if asked.found:
        return
    evidence = [facts.wait_evidence(analysis, _SHARE)]
    notes = []
    where = "the input"
    try:
        found = facts.bottleneck(analysis)
    except Undecided as reason:
        notes.append(str(reason))
    else:
        where = found.stage.label
        evidence.append(facts.stage_evidence(found.stage))
        if (found.stage.locked or 0.0) >= stages.LOCKED:
            evidence.extend(stages.locked_evidence(found.stage, below=False))
            notes.append(f"More threads for {where} hardly help: only one at a time gets on with it")
        overhead = stages.overhead_part(found.model, found.stage)
        if overhead:
            calling = Quantity(overhead, "share", source="an empty function, for each of its calls")
            evidence.append(Evidence(f"part of {where} that is being called", calling))
        if found.stage.waiting is not None:
            works = Quantity(1 - found.stage.waiting, "share", source="processor time over time")
            evidence.append(Evidence(f"part of its time in which a processor works for {where}", works))
    alone = analysis.input_alone
    if not isinstance(alone, Missing):
        batch = Quantity(alone.batch.value, "s", alone.batch.low, alone.batch.high, source="input alone")
        evidence.append(Evidence("a batch from the input alone", batch))
        if alone.batch.value > 0:
            busy = Quantity(alone.cpu_per_batch_s / alone.batch.value, "cores", source="input alone")
            evidence.append(Evidence("cores that the input keeps busy alone", busy))
    if analysis.measurements.job.loop == "unknown":
        notes = ["A trace does not tell the stages of the input; tfdiag.diagnose(model, dataset) does"]
    elif asked.undecided:
        told = "; ".join(f"{name} ({reason})" for name, reason in asked.undecided)
        notes.append(f"These checks could not tell: {told}")
    yield Result(
        Finding(
            check=CHECK.id,
            title="The step waits for input, and no check knows why",
            severity=severity_of(wait),
            cost=facts.share(wait, source="wait for input"),
            evidence=tuple(evidence),
            where=where,
            detail=". ".join(notes),
        ),
    )


CHECK = Check("unknown-input", "The input is slow for no known reason", "input", __doc__, run, rank=2)

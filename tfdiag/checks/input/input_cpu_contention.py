"""Input and step fight for the same cores.

What it measures
    The processor time of the input and of the step together, for one step, against what the cores have in
    that time; and the most that a single thread of the input must do. It fires when the step waits, both
    together take 85% or more of the cores, no thread alone takes 85% of the step unless its stage computes
    on all cores already, and no other check knows a cause in the pipeline itself.
Why it matters
    Where all cores are busy, no setting of tf.data helps: whatever runs in parallel takes its time from
    the step, or from other parts of the input.
How to fix it
    Do less work for a batch (cache it, store it as it is needed), or do it on other machines: tf.data
    service spreads a pipeline over workers.
When to ignore it
    When there is no other machine, and the work must be done at every step.
References
    https://www.tensorflow.org/api_docs/python/tf/data/experimental/service
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.prediction import Load, feed
from tfdiag.checks import facts, registry, stages
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import data_service

__all__ = ["CHECK"]

_FULL = 0.85
"""Cores are full, and a thread is, from this part of the step on."""
_WAITS = 0.3
"""A stage that waits for more of its time could do so on more threads than there are cores."""
_LESS_WORK = "uncached-work"
"""Sparing the work is better than spreading it."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the cores are what input and step wait for."""
    wait = facts.waits(analysis)
    if not wait:
        return
    model = facts.pipeline(analysis)
    if not model.known:
        raise Undecided("the stages of this pipeline have no times, so one slow thread can't be ruled out")
    assert not isinstance(analysis.step, Missing)
    mean = analysis.step.mean_s
    fed = feed(model)
    cores = usable_cores(analysis.measurements)
    if fed.limit.seconds >= _FULL * mean and not _has_all(fed.limit, cores):
        return
    if isinstance(analysis.replay, Missing):
        raise Undecided(f"the processor time of the step is not known: {analysis.replay.reason}")
    if not model.sampled and isinstance(analysis.input_alone, Missing):
        raise Undecided(f"the processor time of the input is not known: {analysis.input_alone.reason}")
    input_cpu = fed.cpu_s if model.sampled else 0.0
    if not isinstance(analysis.input_alone, Missing):
        # On several threads the same work takes more of a processor than alone on one: cores share parts.
        input_cpu = max(input_cpu, analysis.input_alone.cpu_per_batch_s)
    live = analysis.measurements.live
    step_cpu = analysis.replay.cpu_per_call_s / (live.steps_per_call if isinstance(live, Live) else 1)
    there = cores * mean
    if input_cpu + step_cpu < _FULL * there:
        return
    spared = tuple(check for check in registry.all_checks() if check.id == _LESS_WORK)
    causes = stages.input_checks(but=CHECK.id, rank=0) + spared
    if stages.others(analysis, causes).found:
        return
    source = "samples of the stages and the input alone" if model.sampled else "input alone"
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Input and step together need all of the {cores:g} cores",
            severity=severity_of(wait),
            cost=facts.share(wait, source="wait for input"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                Evidence(
                    "processor time of input and step for a step",
                    Quantity(input_cpu + step_cpu, "s", source=f"{source}, and replay"),
                    Quantity(_FULL * there, "s", origin="given"),
                    "above",
                ),
                Evidence("of this, the input", Quantity(input_cpu, "s", source=source)),
                _busiest(fed.limit, _FULL * mean, cores, source if model.sampled else "tf.data model"),
            ),
            where="the input",
        ),
        (data_service.suggest(analysis, CHECK.id, input_cpu),),
    )


def _has_all(load: Load, cores: float) -> bool:
    """Say whether what takes longest computes on all cores: more threads would share what there is."""
    return bool(load.stages) and all(
        stage.asynchronous
        and stage.parallelism >= cores
        and (stage.locked or 0.0) < stages.LOCKED
        and (stage.waiting or 0.0) < _WAITS
        for stage in load.stages
    )


def _busiest(load: Load, most: float, cores: float, source: str) -> Evidence:
    if load.seconds >= most:
        name = f"threads on which {load.what} computes, on {cores:g} cores"
        return Evidence(name, Quantity(load.stages[0].parallelism, "threads", source=source))
    return Evidence(
        "the most that one thread of the input must do for a batch",
        Quantity(load.seconds, "s", source=source),
        Quantity(most, "s", origin="given"),
        "below",
    )


CHECK = Check("input-cpu-contention", "Input and step fight for the cores", "input", __doc__, run, rank=2)

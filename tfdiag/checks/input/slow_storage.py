"""The step waits for reads, and the processors idle.

What it measures
    The time that a stage which reads files needs for a batch, alone on one thread, the part of it in
    which no processor works, and the bytes that come out of it in a second. It fires when the step
    waits for this stage, at least half of its time is waiting, and it can't just take several files
    instead of one (that is `sequential-source`).
Why it matters
    Network file systems, object stores and cold disks answer late, or let only so many bytes through.
    More threads help against the first; against the second only fewer or nearer bytes do.
How to fix it
    Read more at a time than there are cores (`num_parallel_calls=16`, and for a map also
    `options.threading.private_threadpool_size=16`, because functions share as many threads as there are
    cores), keep what fits in memory (`cache()`), copy the data to a local disk, and pack many small
    files into few large ones.
When to ignore it
    When the first epoch only is slow: the system keeps files that were read in memory.
References
    https://www.tensorflow.org/guide/data_performance_analysis
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.order import beneath_cache, inner_datasets, is_reader, kind, makes_datasets
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.checks import facts
from tfdiag.checks.input.sequential_source import reads_one_by_one
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.pipeline import MOST_STREAMS
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding, Suggestion
from tfdiag.remedies import caching, reading

__all__ = ["CHECK"]

_WAITS = 0.5


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for a stage that waits for its files."""
    wait = facts.waits(analysis)
    if not wait:
        return
    slow = facts.bottleneck(analysis)
    model, stage = slow.model, slow.stage
    if not (is_reader(stage) or _map_of_files(stage)) or beneath_cache(model, stage):
        return
    if reads_one_by_one(model, stage):
        return
    waiting = stage.waiting
    if waiting is None:
        raise Undecided(f"whether {stage.label} waits or computes is not known: it was not run alone")
    if waiting < _WAITS:
        return
    cost = wait * slow.part
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    evidence = [
        facts.wait_evidence(analysis, facts.COST_SHARE),
        facts.stage_evidence(stage),
        Evidence(
            f"part of its time in which {stage.label} waits",
            Quantity(waiting, "share", source="processor time of this stage alone"),
            Quantity(_WAITS, "share", origin="given"),
            "above",
        ),
    ]
    if stage.element_bytes and stage.per_batch_s > 0:
        evidence.append(
            Evidence(
                "what one thread reads",
                Quantity(
                    stage.element_bytes * stage.per_batch / stage.per_batch_s,
                    "B/s",
                    origin="estimated",
                    source="bytes of its elements over its time",
                ),
            )
        )
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{stage.label} waits for storage, and the step waits for it",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, the part of this stage"),
            evidence=tuple(evidence),
            where=stage.label,
        ),
        tuple(_suggestions(analysis, model, stage)),
    )


def _map_of_files(stage: StageTime) -> bool:
    function = stage.function
    return function is not None and kind(stage) == "Map" and function.reads_files and not function.python


def _suggestions(analysis: Analysis, model: PipelineModel, stage: StageTime) -> Iterator[Suggestion]:
    if kind(stage) == "Map":
        yield reading.suggest_parallel_reads(analysis, CHECK.id, model, stage)
    elif makes_datasets(stage):
        files = inner_datasets(model, stage)
        cores = usable_cores(analysis.measurements)
        streams = int(max(MOST_STREAMS, 2 * stage.parallelism, 2 * cores))
        streams = streams if files is None else min(streams, files)
        if streams > stage.parallelism:
            yield reading.suggest_interleave(analysis, CHECK.id, model, stage, streams=streams)
    for place in caching.places(model):
        size = caching.size_of(analysis, place.stage)
        room = caching.FREE_PART * analysis.measurements.environment.memory_bytes
        if stage in place.kept and not isinstance(size, Missing) and size.value <= room:
            yield caching.suggest(analysis, CHECK.id, model, place)
            break


CHECK = Check("slow-storage", "The input waits for storage", "input", __doc__, run)

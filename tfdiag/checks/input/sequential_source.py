"""Files are read one after the other while the step waits.

What it measures
    The time that the reading stage needs for a batch, alone on one thread, and how many files or
    datasets it takes its elements from. It fires when the step waits for this stage, there are at least
    two files, and either other cores are free or the stage mostly waits itself.
Why it matters
    A reader without an interleave works on one file on one thread: other cores idle, and each wait for
    storage is a wait for all.
How to fix it
    `files.interleave(tf.data.TFRecordDataset, cycle_length=n, num_parallel_calls=n)`. Give both
    numbers: left out, `cycle_length` is a third of the cores, and AUTOTUNE gives waiting readers no
    more threads than there are cores. Where the order of elements is free, add `deterministic=False`,
    so that one slow file holds up nobody.
When to ignore it
    When the elements must come in the order of the files.
References
    https://www.tensorflow.org/guide/data_performance#parallelizing_data_extraction
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.order import beneath_cache, inner_datasets, is_reader, kind, makes_datasets
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import reading

__all__ = ["CHECK", "reads_one_by_one"]

_FILES = 2
_WAITS = 0.5
"""A stage that waits for this part of its time gains by more streams even on one core."""
_CORES = 2


def reads_one_by_one(model: PipelineModel, stage: StageTime) -> bool:
    """Say whether a stage takes several files or datasets one after the other."""
    if not (is_reader(stage) or makes_datasets(stage)):
        return False
    if stage.asynchronous or stage.parallelism > 1 or (kind(stage) == "Interleave" and not stage.serial):
        return False
    count = inner_datasets(model, stage)
    if count is None:
        return makes_datasets(stage)  # one that is written for several has several
    return count >= _FILES


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for a reader that takes one file at a time."""
    wait = facts.waits(analysis)
    if not wait:
        return
    slow = facts.bottleneck(analysis)
    model, stage = slow.model, slow.stage
    if not reads_one_by_one(model, stage) or beneath_cache(model, stage):
        return
    if stage.node is not None and stage.node.compression:
        return  # compressed-source says what to do
    cores = usable_cores(analysis.measurements)
    waiting = stage.waiting
    if cores < _CORES and (waiting is None or waiting < _WAITS):
        return
    cost = wait * slow.part
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    count = inner_datasets(model, stage)
    evidence = [facts.wait_evidence(analysis, facts.COST_SHARE), facts.stage_evidence(stage)]
    if count is not None:
        evidence.append(
            Evidence(
                "files or datasets that it reads",
                Quantity(count, "files", source="graph"),
                Quantity(_FILES, "files", origin="given"),
                "above",
            )
        )
    evidence.append(Evidence("files read at a time", Quantity(1, "files", source="graph")))
    if waiting is not None:
        evidence.append(
            Evidence(
                f"part of its time in which {stage.label} waits",
                Quantity(waiting, "share", source="processor time of this stage alone"),
            )
        )
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{stage.label} reads one file at a time and the step waits for it",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, the part of this stage"),
            evidence=tuple(evidence),
            where=stage.label,
        ),
        (
            reading.suggest_interleave(analysis, CHECK.id, model, stage)
            if reading.helps(stage)
            else reading.suggest_fewer_files(CHECK.id, model, stage),
        ),
    )


CHECK = Check("sequential-source", "Files are read one after the other", "input", __doc__, run)

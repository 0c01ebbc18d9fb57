"""Unpacking compressed files is what the step waits for.

What it measures
    The time that the reading stage needs for a batch, alone on one thread, the part of it in which a
    processor works, and the compression that it was told. It fires when the step waits for this stage,
    its files are compressed, and it computes for more than half of its time.
Why it matters
    GZIP and ZLIB give some 100 to 400 MB/s on a core, and a file can only be unpacked from its
    beginning on one thread. Storage that is faster than that is held up by it.
How to fix it
    Write the files without compression, or compress only what is large inside the records (JPEG, PNG).
    With several files, unpack them side by side: `interleave` with `num_parallel_calls`.
When to ignore it
    When storage or network is slower than unpacking, so that larger files would take longer.
References
    https://www.tensorflow.org/api_docs/python/tf/data/TFRecordDataset
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.order import beneath_cache, is_reader
from tfdiag.checks import facts
from tfdiag.checks.input.sequential_source import reads_one_by_one
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import reading, uncompressed

__all__ = ["CHECK"]

_COMPUTES = 0.5


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for a reader that unpacks."""
    wait = facts.waits(analysis)
    if not wait:
        return
    slow = facts.bottleneck(analysis)
    model, stage = slow.model, slow.stage
    if not is_reader(stage) or beneath_cache(model, stage):
        return
    compression = stage.node.compression if stage.node is not None else ""
    if not compression:
        return
    waiting = stage.waiting
    if waiting is None:
        raise Undecided(f"whether {stage.label} waits or unpacks is not known: it was not run alone")
    if 1 - waiting <= _COMPUTES:
        return
    cost = wait * slow.part
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    suggestions = [uncompressed.suggest(analysis, CHECK.id, model, stage)]
    if reads_one_by_one(model, stage) and usable_cores(analysis.measurements) >= 2:
        suggestions.append(reading.suggest_interleave(analysis, CHECK.id, model, stage))
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{stage.label} unpacks {compression} and the step waits for it",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait for input, the part of this stage"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                facts.stage_evidence(stage),
                Evidence(
                    f"part of its time in which {stage.label} computes",
                    Quantity(1 - waiting, "share", source="processor time of this stage alone"),
                    Quantity(_COMPUTES, "share", origin="given"),
                    "above",
                ),
            ),
            where=stage.label,
        ),
        tuple(suggestions),
    )


CHECK = Check("compressed-source", "Unpacking files holds up the step", "input", __doc__, run)

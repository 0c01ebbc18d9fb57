"""Saving the model takes a share of every step.

What it measures
    The time in callbacks that save (`ModelCheckpoint`, `BackupAndRestore`), and in `model.save`,
    `model.save_weights` and `tf.train.Checkpoint` wherever else a callback or a step of your own calls them,
    spread over the steps; how often that happens, and the bytes that are written. Steps right behind a save
    find cold caches: what they take longer than others is counted with it.
Why it matters
    Saving copies all weights to the host, packs and writes them while the next step waits. `save_freq=1`
    counts batches, not epochs: a job that meant to save now and then saves after each step.
How to fix it
    `save_freq="epoch"`, or a number of batches that lie minutes apart; `save_weights_only=True` where the
    optimizer's state is not needed; `save_best_only=True`.
When to ignore it
    When the machine can be taken away at any time, and a lost minute costs more than the saving.
References
    https://keras.io/api/callbacks/model_checkpoint/
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, hosted
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import rarer_callback

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for each callback whose saving costs a share of the step worth naming."""
    facts.watched(analysis)
    own = hosted.own_step(analysis)
    for work in (*hosted.works(analysis), *([own] if own is not None else [])):
        seconds = hosted.saves_of(analysis, work)
        if not seconds:
            continue
        after = hosted.behind(analysis, seconds) if work.methods else 0.0
        cost = analysis.share(seconds + after)
        often = hosted.every(work.saves)
        evidence = [
            Evidence(
                f"saving in {work.name} per step",
                Quantity(seconds, "s", source="timed in fit" if work.methods else "timed in the step"),
                hosted.limit(analysis),
                "above",
            )
        ]
        evidence += hosted.behind_evidence(after)
        if work.saves > 0:
            evidence.append(
                Evidence(
                    "steps from one to the next", Quantity(1 / work.saves, "steps", source="calls that save")
                )
            )
            evidence.append(
                Evidence("time of one", Quantity(seconds / work.saves, "s", source="timed in fit"))
            )
        if work.written_bytes > 0 and work.saves > 0:
            written = Quantity(work.written_bytes / work.saves, "B", source="bytes that the thread wrote")
            evidence.append(Evidence("written each time", written))
        yield Result(
            Finding(
                check=CHECK.id,
                title=f"Saving takes {cost:.0%} of each step"
                + (f": {work.name} saves {often}" if often else ""),
                severity=severity_of(cost),
                cost=facts.share(cost, source="time in saving, and what it makes slower"),
                evidence=tuple(evidence),
                where=f"{work.name}.{work.worst}" if work.worst else work.name,
            ),
            (rarer_callback.suggest_checkpoint(analysis, CHECK.id, work, seconds + after),),
        )


CHECK = Check("frequent-checkpoint", "Saving the model takes a share of every step", "host", __doc__, run)

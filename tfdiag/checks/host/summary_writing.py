"""Writing summaries takes a share of every step.

What it measures
    The time in Keras' `TensorBoard` callback, and in `tf.summary` wherever another callback or a step of your
    own calls it, spread over the steps; how many summaries that are, and how the callback is set. Steps right
    behind that find cold caches: what they take longer than others is counted with it.
Why it matters
    A histogram reads and sorts every weight of the model, an image is encoded, and each batch that is written
    (`update_freq="batch"`) is a wait for its values. All of it happens between steps.
How to fix it
    `update_freq="epoch"` or every few hundred batches, `histogram_freq=0` or every tenth epoch,
    `write_images=False`; in code of your own, write every hundredth step.
When to ignore it
    In the hour in which you look at the curves.
References
    https://keras.io/api/callbacks/tensorboard/
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
    """Fire for each callback whose summaries cost a share of the step worth naming."""
    facts.watched(analysis)
    own = hosted.own_step(analysis)
    for work in (*hosted.works(analysis), *([own] if own is not None else [])):
        seconds = hosted.summaries_of(analysis, work)
        if not seconds:
            continue
        after = hosted.behind(analysis, seconds) if work.methods else 0.0
        cost = analysis.share(seconds + after)
        evidence = [
            Evidence(
                f"writing summaries in {work.name} per step",
                Quantity(seconds, "s", source="timed in fit" if work.methods else "timed in the step"),
                hosted.limit(analysis),
                "above",
            )
        ]
        if work.summaries > 0:
            number = Quantity(work.summaries, "summaries", source="calls of tf.summary")
            evidence.append(Evidence("summaries and flushes per step", number))
        evidence += hosted.behind_evidence(after)
        evidence += [
            Evidence(f"of the time in {item.name.rsplit('.', 1)[1]}", item.per_step) for item in work.methods
        ]
        settings = work.facts.settings if work.facts is not None else ()
        yield Result(
            Finding(
                check=CHECK.id,
                title=f"{work.name} writes summaries for {cost:.0%} of each step",
                severity=severity_of(cost),
                cost=facts.share(cost, source="time in summaries, and what it makes slower"),
                evidence=tuple(evidence),
                where=f"{work.name}.{work.worst}" if work.worst else work.name,
                detail=", ".join(f"{name}={value}" for name, value in settings),
            ),
            (rarer_callback.suggest_summaries(analysis, CHECK.id, work, seconds + after),),
        )


CHECK = Check("summary-writing", "Writing summaries takes a share of every step", "host", __doc__, run)

"""A callback takes a share of every step.

What it measures
    The time in each method of each callback of the running `fit`, timed there, spread over the steps.
    Callbacks are followed into lists of callbacks. Where one works for long now and then, the steps right
    behind it find cold caches: what they take longer than others is counted with it. What saving
    (`frequent-checkpoint`), summaries (`summary-writing`) and waits for values (`host-sync-per-step`) take of
    it has findings of its own and is taken off here.
Why it matters
    Callbacks run between steps, on the thread that dispatches them: while one works, nothing trains.
How to fix it
    Do the expensive part every so many batches, or once an epoch; write files in the background; leave
    the value of a loss on the device until somebody looks at it.
When to ignore it
    When what the callback does is worth the time, for instance a checkpoint of a job that gets preempted.
References
    https://www.tensorflow.org/guide/keras/writing_your_own_callbacks
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
    """Fire for each callback that costs a share of the step worth naming."""
    facts.watched(analysis)
    for work in hosted.works(analysis):
        name, total = work.name, hosted.rest(analysis, work)
        if not hosted.worth_naming(analysis, total):
            continue
        after = hosted.behind(analysis, total)
        cost = analysis.share(total + after)
        worst = max(work.methods, key=lambda item: item.per_step.value)
        part = total / work.seconds if work.seconds > 0 else 1.0
        others = work.seconds - total
        inside = "" if work.facts is None else work.facts.inside
        yield Result(
            Finding(
                check=CHECK.id,
                title=f"{name} takes {cost:.0%} of each step",
                severity=severity_of(cost),
                cost=facts.share(cost, source="time in this callback, and what it makes slower"),
                evidence=(
                    Evidence(
                        f"time in {name} per step",
                        Quantity(total, "s", source="timed in fit"),
                        hosted.limit(analysis),
                        "above",
                    ),
                    *(
                        Evidence(f"of it in {item.name.rsplit('.', 1)[1]}", item.per_step.scaled(part))
                        for item in work.methods
                    ),
                    *hosted.behind_evidence(after),
                    *(
                        [
                            Evidence(
                                "not in it: saving, summaries, waits",
                                Quantity(others, "s", source="timed in fit"),
                            )
                        ]
                        if others > 0
                        else []
                    ),
                ),
                where=f"{name}.{work.worst}",
                detail=f"it stands in {inside}" if inside else "",
            ),
            (
                rarer_callback.suggest(
                    analysis, CHECK.id, name, work.worst, part * worst.per_step.value + after
                ),
            ),
        )


CHECK = Check("slow-callback", "A callback takes a share of every step", "host", __doc__, run)

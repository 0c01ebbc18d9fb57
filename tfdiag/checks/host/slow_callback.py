"""A callback takes a share of every step.

What it measures
    The time in each method of each callback of the running `fit`, timed there, spread over the steps.
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
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding, HostItem
from tfdiag.remedies import rarer_callback

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for each callback that costs a share of the step worth naming."""
    facts.watched(analysis)
    assert not isinstance(analysis.step, Missing)
    by_callback: dict[str, list[HostItem]] = {}
    for item in analysis.step.host_items:
        if item.name.startswith("callback "):
            name = item.name.removeprefix("callback ").rsplit(".", 1)[0]
            by_callback.setdefault(name, []).append(item)
    for name, items in by_callback.items():
        total = sum(item.per_step.value for item in items)
        cost = analysis.share(total)
        if not analysis.crosses(cost, facts.COST_SHARE):
            continue
        worst = max(items, key=lambda item: item.per_step.value)
        method = worst.name.rsplit(".", 1)[1]
        limit = Quantity(facts.COST_SHARE * analysis.step.mean_s, "s", origin="given")
        yield Result(
            Finding(
                check=CHECK.id,
                title=f"{name} takes {cost:.0%} of each step",
                severity=severity_of(cost),
                cost=facts.share(cost, source="time in this callback"),
                evidence=(
                    Evidence(
                        f"time in {name} per step",
                        Quantity(total, "s", source="timed in fit"),
                        limit,
                        "above",
                    ),
                    *(Evidence(f"of it in {item.name.rsplit('.', 1)[1]}", item.per_step) for item in items),
                ),
                where=f"{name}.{method}",
            ),
            (rarer_callback.suggest(analysis, CHECK.id, name, method, worst.per_step.value),),
        )


CHECK = Check("slow-callback", "A callback takes a share of every step", "host", __doc__, run)

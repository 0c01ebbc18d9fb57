"""The device idles for a large part of the step.

What it measures
    From the device's timeline: the part of the step in which neither a kernel nor a copy is under way, and
    what the device waits for meanwhile. It fires from 30 % on.
Why it matters
    It is what a faster or second GPU could not change. The cause is in the step's other parts; where a
    finding names it, this one only adds up what there is to win.
How to fix it
    As the largest of its causes says: input (`input_wait`), dispatch (`launch`), Python between steps
    (`host`).
When to ignore it
    When another finding names the cause.
References
    https://www.tensorflow.org/guide/gpu_performance_analysis
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding

__all__ = ["CHECK"]

_SHARE = 0.3
_CAUSES = {
    "input_wait": "for input",
    "launch": "for the host to launch the next kernel",
    "host": "for Python between steps",
    "compile": "for tracing and compiling",
    "unexplained": "for something that the trace does not show",
}


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the device does nothing for long, and say what it waits for."""
    traced = facts.device(analysis)
    if traced is None:
        return
    parts = {name: analysis.segment(name) for name in _CAUSES}
    idle = sum(parts.values())
    cost = analysis.share(idle)
    if not analysis.crosses(cost, _SHARE):
        return
    cause = max(parts, key=lambda name: parts[name])
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The device idles {cost:.0%} of the step, mostly waiting {_CAUSES[cause]}",
            severity=severity_of(cost),
            cost=facts.share(cost, source="neither kernels nor copies"),
            evidence=(
                Evidence(
                    "idle per step",
                    Quantity(idle, "s", source="device trace", count=traced.steps.count),
                    Quantity(_SHARE * facts.mean(analysis), "s", origin="given"),
                    "above",
                ),
                *(
                    Evidence(f"of it {_CAUSES[name]}", Quantity(seconds, "s", source="device trace"))
                    for name, seconds in sorted(parts.items(), key=lambda part: -part[1])
                    if seconds > 0
                ),
            ),
            where=traced.device.name,
        )
    )


CHECK = Check("idle-gpu", "The device idles", "device", __doc__, run, rank=2)

"""Exchanging gradients between devices holds up the step.

What it measures
    From the device's timeline: how long collectives (all-reduce and the like) run in a step while nothing
    is computed. It fires from a tenth of the step on.
Why it matters
    Devices that wait for each other's gradients compute nothing. With more devices the exchange takes
    longer, so that a job can become slower by adding some.
How to fix it
    A bigger batch for each device exchanges the same gradients less often; half precision halves them;
    NVLink instead of PCIe carries them faster. Where one device is late, the others wait in the collective:
    look at each worker's own report.
When to ignore it
    When the exchange is hidden behind the backward pass: then it is not in this number.
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
from tfdiag.remedies import more_steps_per_call

__all__ = ["CHECK"]

_SHARE = 0.1


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when collectives that nothing hides take a share of the step."""
    traced = facts.device(analysis)
    if traced is None or not traced.device.collectives:
        return
    seconds = facts.segment(analysis, "collective")
    cost = analysis.share(seconds)
    if not analysis.crosses(cost, _SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Exchanging gradients takes {cost:.0%} of the step",
            severity=severity_of(cost),
            cost=facts.share(cost, source="collectives while nothing is computed"),
            evidence=(
                Evidence(
                    "collectives that nothing hides, per step",
                    Quantity(seconds, "s", source="device trace", count=traced.device.collectives),
                    Quantity(_SHARE * facts.mean(analysis), "s", origin="given"),
                    "above",
                ),
                Evidence(
                    "collectives per step",
                    Quantity(
                        traced.per_step(traced.device.collectives), "collectives", source="device trace"
                    ),
                ),
            ),
            where=traced.device.name,
        ),
        (more_steps_per_call.suggest_bigger_batch(analysis, CHECK.id, seconds),),
    )


CHECK = Check("collective-bound", "Exchanging gradients holds up the step", "device", __doc__, run)

"""Copying the batch to the device is a large part of the step.

What it measures
    From the device's timeline: how long copies to the device are under way in a step, how many bytes cross,
    how fast, and for how much of that the device does nothing else. It fires when copies take at least a
    quarter of the step and the device idles for a part of it.
Why it matters
    The bus is tens of times slower than the device's own memory. What crosses it in every step is paid for
    in every step, and a faster GPU waits just as long.
How to fix it
    Send less: uint8 images instead of float32 are a quarter of the bytes, so cast and normalise on the
    device; resize before the copy; put augmentation that makes data larger into the model. Send it while
    the device computes (`prefetch_to_device`), which hides the copy as far as there is computing to hide it
    behind.
When to ignore it
    When the model does so little with each byte that a CPU would be the better place for it.
References
    https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#data-transfer-between-host-and-device
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import less_transfer

__all__ = ["CHECK"]

_SHARE = 0.25


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when copies to the device take the step, and it idles meanwhile."""
    traced = facts.device(analysis)
    copies = None if traced is None else traced.device.copy("host_to_device")
    if traced is None or copies is None:
        return
    cost = analysis.share(facts.segment(analysis, "host_to_device"))
    busy = traced.per_step(copies.busy_s)
    if not analysis.crosses(cost, facts.COST_SHARE) or not analysis.crosses(analysis.share(busy), _SHARE):
        return
    evidence = [
        Evidence(
            "copies to the device per step",
            Quantity(busy, "s", source="device trace", count=copies.count),
            Quantity(_SHARE * facts.mean(analysis), "s", origin="given"),
            "above",
        ),
        facts.copy_evidence(analysis, facts.COST_SHARE),
    ]
    evidence += facts.bytes_evidence(traced, copies)
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Copying to the device takes {analysis.share(busy):.0%} of the step",
            severity=severity_of(cost),
            cost=facts.share(cost, source="copies while the device does nothing else"),
            evidence=tuple(evidence),
            where="the batch",
        ),
        (less_transfer.suggest_smaller(analysis, CHECK.id),),
    )


CHECK = Check("oversized-transfer", "Copies to the device take the step", "transfer", __doc__, run)

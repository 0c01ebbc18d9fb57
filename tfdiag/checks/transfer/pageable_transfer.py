"""Batches are copied from pageable memory.

What it measures
    From the device's timeline: how many of the bytes that go to the device come from pageable memory, and
    how fast they cross. It fires when more than half do, slower than the slowest link of a current GPU lets
    through, and the device idles for the copies.
Why it matters
    The device can fetch from page-locked memory by itself. From pageable memory the driver copies each
    batch once more on a core of the host, and the call that starts the copy waits for it.
How to fix it
    TensorFlow decides where batches lie. Copies made ahead (`prefetch_to_device`) take the second copy out
    of the step; fewer bytes make it shorter.
When to ignore it
    When the copies are hidden behind computing, or tiny.
References
    https://developer.nvidia.com/blog/how-optimize-data-transfers-cuda-cc/
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import less_transfer

__all__ = ["CHECK"]

_PAGEABLE = 0.5
_LINK = 8e9
"""Bytes a second: page-locked copies reach more on any PCIe link of the last ten years with 16 lanes."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when slow copies from pageable memory hold up the device."""
    traced = facts.device(analysis)
    copies = None if traced is None else traced.device.copy("host_to_device")
    if copies is None:
        return
    cost = analysis.share(facts.segment(analysis, "host_to_device"))
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    if isinstance(copies.pageable_bytes, Missing):
        raise Undecided(copies.pageable_bytes.reason)
    bandwidth = copies.bandwidth
    if isinstance(bandwidth, Missing) or isinstance(copies.bytes, Missing):
        raise Undecided("the trace does not tell how fast the copies are")
    part = copies.pageable_bytes.value / max(1.0, copies.bytes.value)
    if part <= _PAGEABLE or bandwidth.value >= _LINK:
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title="Batches are copied to the device from pageable memory",
            severity=severity_of(cost),
            cost=facts.share(cost, source="copies while the device does nothing else"),
            evidence=(
                Evidence(
                    "part of the bytes that comes from pageable memory",
                    Quantity(part, "share", source="device trace", count=copies.count),
                    Quantity(_PAGEABLE, "share", origin="given"),
                    "above",
                ),
                Evidence("bandwidth", bandwidth, Quantity(_LINK, "B/s", origin="given"), "below"),
                facts.copy_evidence(analysis, facts.COST_SHARE),
            ),
            where="the batch",
        ),
        (less_transfer.suggest_ahead(analysis, CHECK.id),),
    )


CHECK = Check("pageable-transfer", "Copies come from pageable memory", "transfer", __doc__, run)

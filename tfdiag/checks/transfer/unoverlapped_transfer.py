"""Copies and kernels take turns, although they could run side by side.

What it measures
    From the device's timeline: the part of the time of copies to the device in which kernels run as well.
    It fires when that is less than a fifth, the device idles for the copies, and there is enough computing
    to hide them behind.
Why it matters
    A GPU has engines of its own for copies. A batch that is copied while the one before it is computed
    costs nothing; one that is copied first makes the kernels wait.
How to fix it
    End the dataset with `prefetch_to_device`: it copies the next batch while the step runs. It has to be
    the last transformation, and Keras has to get the dataset as it is, without a strategy.
When to ignore it
    When the device's memory has no room for one more batch.
References
    https://www.tensorflow.org/api_docs/python/tf/data/experimental/prefetch_to_device
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

_OVERLAP = 0.2


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when copies that could be hidden are not."""
    traced = facts.device(analysis)
    copies = None if traced is None else traced.device.copy("host_to_device")
    if traced is None or copies is None or copies.busy_s <= 0:
        return
    hidden = copies.overlapped_s / copies.busy_s
    exposed = facts.segment(analysis, "host_to_device")
    could = min(exposed, facts.segment(analysis, "device_compute"))
    cost = analysis.share(could)
    if hidden >= _OVERLAP or not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The device waits for each batch to be copied: {cost:.0%} of the step could be hidden",
            severity=severity_of(cost),
            cost=facts.share(cost, source="copies that computing could hide"),
            evidence=(
                facts.copy_evidence(analysis, facts.COST_SHARE),
                Evidence(
                    "part of the copies in which kernels run",
                    Quantity(hidden, "share", source="device trace", count=copies.count),
                    Quantity(_OVERLAP, "share", origin="given"),
                    "below",
                ),
                *facts.bytes_evidence(traced, copies),
            ),
            where="the end of the dataset",
        ),
        (less_transfer.suggest_overlap(analysis, CHECK.id, could),),
    )


CHECK = Check("unoverlapped-transfer", "Copies and kernels take turns", "transfer", __doc__, run)

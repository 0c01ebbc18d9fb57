"""What the step computes a second, held against what the machine can; without numpy, as reports show it."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.model.compute import Compute, Peak
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["Arithmetic", "arithmetic", "best_peak"]

_NO_PEAK = 1.25
"""A step that computes faster than this part of the peak shows that it was none."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The operations of a step, and what they would take at the machine's best."""

    flops: Quantity
    """Per step."""
    achieved: Maybe
    """FLOP/s while the step computes."""
    at_peak_s: Maybe
    """What the operations would take at the machine's own peak."""
    share: Maybe
    """The peak's time over the time in which the step computes."""


def best_peak(compute: Compute, dtype: str, *, aligned: bool = True) -> Peak | Missing:
    """Give the best that the machine reached in a type."""
    found = [each for each in compute.peaks if each.dtype == dtype and each.aligned == aligned]
    if not found:
        return Missing(compute.peaks_missing or f"what the machine computes in {dtype} was not measured")
    return max(found, key=lambda each: each.rate.value)


def arithmetic(compute: Compute | Missing, computing: Maybe) -> Arithmetic | Missing:
    """Hold the operations of a step against the seconds in which it computes."""
    if isinstance(compute, Missing):
        return compute
    if isinstance(compute.flops, Missing):
        return compute.flops
    at_peak = _at_peak(compute)
    achieved: Maybe = Missing("the time in which the step computes is not known")
    share: Maybe = achieved
    if isinstance(computing, Quantity) and computing.value > 0:
        achieved = compute.flops.scaled(1 / computing.value, "FLOP/s")
        share = at_peak
        if isinstance(at_peak, Quantity):
            share = Quantity(
                at_peak.value / computing.value, "share", origin="estimated",
                source="the operations at the machine's measured peak, over the time that the step computes",
            )  # fmt: skip
            if share.value > _NO_PEAK:
                at_peak = share = Missing(
                    f"the step computes {share.value:.1f} times as fast as the machine did in the benchmark "
                    "of its peak: it was slower then"
                )
    return Arithmetic(compute.flops, achieved, at_peak, share)


def _at_peak(compute: Compute) -> Maybe:
    seconds = 0.0
    for dtype, flops in compute.by_dtype.items():
        peak = best_peak(compute, dtype)
        if isinstance(peak, Missing):
            return peak
        seconds += flops / peak.rate.value
    return Quantity(seconds, "s", origin="estimated", source="operations over the machine's measured peak")

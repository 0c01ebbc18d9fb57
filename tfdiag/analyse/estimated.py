"""A call on a device split without a trace: by copies alone, and by what grows with the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfdiag import stats
from tfdiag.model.estimates import DeviceEstimates
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.stats import Estimate

__all__ = ["CopyCost", "copy_cost", "estimated"]

_FEW = 3
_QUICK = (0.1, 0.25, 0.5)
_CALL_S = 0.2e-3
"""What a call and the waking up after it may take; what a copy takes beyond that is its own."""
_BACK = Missing("copies to the host are not told from dispatch without a trace")


@dataclass(frozen=True, slots=True)
class CopyCost:
    """What copying a batch takes, in seconds."""

    batch: Estimate
    growing: float
    """The part that goes with the bytes."""
    bandwidth: float
    """Bytes a second."""
    latency_s: float


def copy_cost(estimates: DeviceEstimates) -> CopyCost | Missing:
    """Fit latency and bandwidth: of the largest tensor, whose bytes matter most."""
    if estimates.copies_missing:
        return Missing(estimates.copies_missing)
    known = [copy for copy in estimates.copies if min(len(copy.whole_s), len(copy.quarter_s)) >= _FEW]
    if not known:
        return Missing("copies to the device were not timed")
    largest = max(known, key=lambda copy: copy.bytes)
    whole, quarter = (stats.median(np.asarray(series)) for series in (largest.whole_s, largest.quarter_s))
    calling = float(np.median(estimates.op_s)) if estimates.op_s else 0.0
    more = largest.bytes - largest.quarter_bytes
    per_byte = max(0.0, whole.value - quarter.value) / more if more > 0 else 0.0
    fixed = max(0.0, whole.value - per_byte * largest.bytes)
    latency = max(0.0, fixed - calling)
    count, size = len(estimates.tensors), sum(estimates.tensors)
    growing = per_byte * size
    # Noise of both medians on the part that grows; and at most all that the calls took.
    spread = (whole.high - whole.low + quarter.high - quarter.low) / 2
    spread *= size / more if more > 0 else 0.0
    value = growing + count * max(0.0, latency - _CALL_S)
    return CopyCost(
        Estimate(value, max(0.0, growing - spread), growing + count * fixed + spread, whole.count),
        growing,
        1 / per_byte if per_byte > 0 else float("inf"),
        latency,
    )


def estimated(
    estimates: DeviceEstimates, inside: Quantity, batches: int, empty: Estimate | Missing
) -> dict[str, Maybe]:
    """Split what a call takes beside its wait into copies, computing and dispatch, as well as can be told.

    `inside` is that time, `batches` how many a call takes, `empty` a call with a step that does nothing.
    """
    whole = inside.value
    cost = copy_cost(estimates)
    copies: Maybe = cost if isinstance(cost, Missing) else _copies(cost, batches, whole)
    copied = copies.value if isinstance(copies, Quantity) else 0.0
    growth = _growth(estimates)
    if isinstance(growth, Missing):
        source = "the call less its wait" + (" and its copies" if copied else "") + ", with dispatch"
        rest = Quantity(whole - copied, "s", 0.0, whole - copied, "estimated", source, inside.count)
        launch: Maybe = Missing(f"what of a call is fixed is not known without a trace: {growth.reason}")
        return {"host_to_device": copies, "device_compute": rest, "launch": launch, "device_to_host": _BACK}
    growing = 0.0 if isinstance(cost, Missing) else cost.growing * batches
    compute = min(max(0.0, growth.value - growing), whole - copied)
    fixed = whole - copied - compute
    floor = empty.value if isinstance(empty, Estimate) else 0.0
    low_copies, high_copies = (
        (0.0, 0.0) if isinstance(copies, Missing) else (copies.low or 0.0, copies.high or copied)
    )
    lowest = min(compute, max(0.0, growth.low - growing - (high_copies - copied)))
    # What does not grow may be computing all the same: variables are updated once a step.
    highest = max(compute, min(whole - low_copies, growth.high - growing + max(0.0, fixed - floor)))
    source = "what a call takes longer on a batch with each row twice"
    if growing:
        source += ", less the copy of the rows"
    told = "the call less its wait, its copies and what grows with the batch"
    return {
        "host_to_device": copies,
        "device_compute": Quantity(compute, "s", lowest, highest, "estimated", source, growth.count),
        "launch": Quantity(
            fixed, "s", max(0.0, whole - high_copies - highest), max(fixed, whole - low_copies - lowest),
            "estimated", told, growth.count,
        ),
        "device_to_host": _BACK,
    }  # fmt: skip


def _copies(cost: CopyCost, batches: int, whole: float) -> Quantity:
    low, value, high = (
        min(whole, each * batches) for each in (cost.batch.low, cost.batch.value, cost.batch.high)
    )
    source = "copies of the batch's tensors by themselves"
    return Quantity(value, "s", min(low, value), max(high, value), "estimated", source, cost.batch.count)


def _undisturbed(series: tuple[float, ...]) -> Estimate:
    """Give a quick call: what others do on the machine makes calls longer and never shorter."""
    low, value, high = (float(each) for each in np.quantile(series, _QUICK))
    return Estimate(value, low, high, len(series))


def _growth(estimates: DeviceEstimates) -> Estimate | Missing:
    """Give what a call takes longer with each row twice."""
    if estimates.twice_missing:
        return Missing(estimates.twice_missing)
    if min(len(estimates.once_s), len(estimates.twice_s)) < _FEW:
        return Missing("a batch of twice the size was called fewer than three times")
    once, twice = (_undisturbed(series) for series in (estimates.once_s, estimates.twice_s))
    return Estimate(
        max(0.0, twice.value - once.value),
        max(0.0, twice.low - once.high),
        max(0.0, twice.high - once.low),
        twice.count,
    )

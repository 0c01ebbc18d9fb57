"""From calls on several devices to what `compare_devices` says about them."""

from __future__ import annotations

from tfdiag.analyse.devices import costs_of, crossing, median_of, speedup_at
from tfdiag.model.comparison import Crossing, DeviceCost
from tfdiag.model.devices import DeviceRun
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["BUS_BYTES_PER_S", "crossings_of", "device_cost", "limit_of", "transfer_of"]

BUS_BYTES_PER_S = 12e9
"""What a PCIe 3.0 x16 slot carries in one direction: an assumption, where there is no accelerator to ask."""


def device_cost(run: DeviceRun, rows: int, *, copies_inside: bool) -> DeviceCost:
    """Condense what was measured on a device."""
    size = run.at(rows)
    if size is None:
        reason = Missing(run.failed or "there was no time to measure it")
        return DeviceCost(
            run.device, run.kind, reason, reason, reason, reason, reason, reason, run.first_call_s,
            run.calls, run.ran_on, run.failed,
        )  # fmt: skip
    costs = costs_of(run)
    host = run.kind == "CPU"
    there = Missing("the arguments are in the host's memory" if host else "there is no array to copy")
    if copies_inside and not host:
        there = Missing("the call copies numpy's arrays itself: it is in the call")
    back = Missing("the result is in the host's memory already")
    measured_there = median_of(size.there_s, "copying the arguments, apart from the call")
    return DeviceCost(
        device=run.device,
        kind=run.kind,
        call=median_of(size.call_s, "calls, each until its result was there"),
        returns=median_of(size.returns_s, "the same calls until they came back"),
        there=there if copies_inside or not size.there_s else measured_there,
        back=median_of(size.back_s, "reading the result") if size.back_s else back,
        fixed=costs.fixed,
        per_row=costs.per_row,
        first_call=run.first_call_s,
        calls=run.calls,
        ran_on=run.ran_on,
        failed=run.failed,
    )


def crossings_of(runs: tuple[DeviceRun, ...], rows: int, *, copies_inside: bool) -> tuple[Crossing, ...]:
    """Hold each device against the first one."""
    known = [run for run in runs if run.sizes]
    return tuple(
        Crossing(
            device=other.device,
            against=known[0].device,
            speedup=speedup_at(known[0], other, rows),
            rows=crossing(known[0], other),
            with_transfers=crossing(known[0], other, transfers=True, copies_inside=copies_inside),
        )
        for other in known[1:]
    )


def limit_of(cost: DeviceCost) -> Maybe:
    """Give how many times as fast a call could be if what grows with its size took no time at all."""
    if isinstance(cost.call, Missing):
        return cost.call
    if isinstance(cost.fixed, Missing):
        return cost.fixed
    if cost.fixed.value <= 0:
        return Missing("no part of the call was found to be fixed")
    value = max(1.0, cost.call.value / cost.fixed.value)
    low, high = cost.fixed.low, cost.fixed.high
    return Quantity(
        value,
        "x",
        None if not high else min(value, max(1.0, cost.call.value / high)),
        None if not low else max(value, cost.call.value / low),
        "estimated",
        "the whole call over its fixed part",
    )


def transfer_of(size_bytes: float) -> Maybe:
    """Give what these bytes would take over a usual bus."""
    if size_bytes <= 0:
        return Missing("the call has no arrays to copy")
    return Quantity(
        size_bytes / BUS_BYTES_PER_S,
        "s",
        origin="estimated",
        source=f"an assumption, not measured: {BUS_BYTES_PER_S / 1e9:.0f} GB/s, as PCIe 3.0 x16 carries",
    )

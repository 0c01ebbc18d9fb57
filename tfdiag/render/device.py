"""What a report says about the device: a line for each thing that it did or waited for."""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.model.device import Copies, DeviceTimes, DeviceTrace, TracedSteps
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.format import clean, duration, number, share, size

__all__ = ["device_lines"]

_KERNELS = 5
_DIRECTIONS = {
    "host_to_device": "copies to the device",
    "device_to_host": "copies to the host",
    "device_to_device": "copies between devices",
}
_NAME = 44


def device_lines(trace: DeviceTrace | Missing) -> Iterator[tuple[str, str]]:
    """Give name and description of each line, per step."""
    if isinstance(trace, Missing) or isinstance(trace.steps, Missing):
        return
    steps = trace.steps
    yield "traced", _traced(trace, steps)
    for device in trace.devices:
        yield clean(_name(trace, device)), clean(_device(device, steps))
        for copies in device.copies:
            yield f"  {_DIRECTIONS[copies.direction]}", clean(_copies(copies, steps))
    if trace.idle_devices:
        yield "did nothing", clean(", ".join(trace.idle_devices))
    for each in trace.busiest[:_KERNELS]:
        # What tells ops apart stands at their end; kernels of one template differ at the beginning.
        name = f"…{each.op[1 - _NAME :]}" if len(each.op) > _NAME else each.op
        name = name or (f"{each.name[: _NAME - 1]}…" if len(each.name) > _NAME else each.name)
        layer = f", layer {each.layer}" if each.layer else ""
        yield (
            f"  {clean(name)}",
            clean(f"{duration(each.total_s / steps.count)} a step in {number(each.count)} kernels{layer}"),
        )


def _name(trace: DeviceTrace, device: DeviceTimes) -> str:
    return f"{device.host} {device.name}" if len(trace.hosts) > 1 else device.name


def _traced(trace: DeviceTrace, steps: TracedSteps) -> str:
    count = "1 step" if steps.count == 1 else f"{steps.count:,} steps"
    events = sum(trace.events.values())
    return clean(f"{count} of {duration(steps.mean_s)}, {steps.found_by}; {events:,} events")


def _device(device: DeviceTimes, steps: TracedSteps) -> str:
    if not device.kernels:
        parts = ["no kernels"]
    else:
        busy = device.busy_s / steps.count
        part = f" ({share(busy / steps.mean_s)})" if steps.mean_s > 0 else ""
        parts = [
            f"{number(round(device.kernels / steps.count, 1))} kernels a step",
            f"busy {duration(busy)}{part}",
            f"median kernel {duration(device.median_kernel_s)}",
        ]
    if device.launches:
        parts.append(f"launch {duration(device.launch_s / device.launches)} each")
        if device.short_kernels:
            parts.append(
                f"{share(device.short_kernels / device.launches)} of the kernels shorter than their launch"
            )
    if device.late_gaps:
        parts.append(f"idle for late launches {duration(device.late_gap_s / steps.count)}")
    if device.collectives:
        parts.append(f"collectives {duration(device.collective_s / steps.count)}")
    return ", ".join(parts)


def _copies(copies: Copies, steps: TracedSteps) -> str:
    parts = [f"{number(round(copies.count / steps.count, 1))} a step", duration(copies.busy_s / steps.count)]
    if isinstance(copies.bytes, Quantity):
        parts.append(size(copies.bytes.value / steps.count))
        if isinstance(copies.bandwidth, Quantity):
            parts.append(f"{size(copies.bandwidth.value)}/s")
        pageable = copies.pageable_bytes
        if isinstance(pageable, Quantity) and copies.bytes.value > 0 and pageable.value > 0:
            parts.append(f"{share(pageable.value / copies.bytes.value)} from pageable memory")
    if copies.busy_s > 0:
        parts.append(f"{share(copies.overlapped_s / copies.busy_s)} of it while kernels run")
    return ", ".join(parts)

"""Columns -> `DeviceTrace`: what the device did in each step, and what it waited for while it did nothing.

While a kernel runs the time is `device_compute`. Where none runs a collective, a copy to the device or one
from it takes the time; what is left is idle time, and goes to what the device was waiting for: a batch
(`input_wait`), a compilation (`compile`), the host that was to launch the next kernel (`launch`), or the
host's own work between steps (`host`). Idle although the next kernel had long been launched is
`unexplained`. Copies from one device to another count as collectives: without a library for them that is
what these are made of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from tfdiag.model.device import Busiest, Copies, DeviceTimes, DeviceTrace, Direction, TracedSteps
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.timeline import intervals
from tfdiag.timeline import names as words
from tfdiag.timeline.columns import Column, Line, Timeline, Work
from tfdiag.timeline.intervals import EMPTY, Spans, union, within
from tfdiag.timeline.steps import Host, Steps, find_steps, host_of, within_epochs

__all__ = ["condense"]

_SEGMENTS = (
    "device_compute", "collective", "host_to_device", "device_to_host", "input_wait", "compile",
    "unexplained", "launch", "host",
)  # fmt: skip
_SERIES = 256
_BUSIEST = 12
_QUEUED_NS = 100_000
"""A queue takes some microseconds from one kernel to the next; far longer is a wait for something else."""
_SKEW = 0.01
_NS = 1e-9
_SOURCE = "the trace"
_CUPTI = (
    "the trace holds no event of a device: the profiler may not read the GPU's counters, or can't load its "
    "tracing library"
)
_PERMIT = (
    "; with NVIDIA, load libcupti (LD_LIBRARY_PATH) and permit profiling to users (options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0, or run the container with --cap-add=SYS_ADMIN)"
)
_DIRECTIONS: tuple[tuple[tuple[int, ...], Direction], ...] = (
    ((Work.H2D,), "host_to_device"),
    ((Work.D2H,), "device_to_host"),
    ((Work.D2D, Work.PEER), "device_to_device"),
)


@dataclass(slots=True)
class _Device:
    """The events of all streams of one device, in order of begin."""

    host: str
    name: str
    start: Column
    end: Column
    label: Column
    work: Column
    op: Column
    correlation: Column
    bytes: Column
    pinned: Column

    def spans(self, *kinds: int) -> Spans:
        rows = np.isin(self.work, kinds)
        return union(self.start[rows], self.end[rows])

    def where(self, rows: Column) -> _Device:
        columns = ("start", "end", "label", "work", "op", "correlation", "bytes", "pinned")
        return _Device(self.host, self.name, *(getattr(self, column)[rows] for column in columns))


def condense(timeline: Timeline, *, ends_of_epochs: Collection[int] = ()) -> DeviceTrace:
    """Say what a trace tells, in a few numbers.

    What lies behind the steps of these numbers is the end of an epoch, and no part of a step.
    """
    warnings = list(dict.fromkeys([*timeline.warnings, *_untangle(timeline)]))
    devices = list(_devices(timeline))
    hosts = {name: host_of(timeline, name) for name in timeline.hosts}
    steps = {name: find_steps(timeline, name) for name in timeline.hosts}
    for name, found in steps.items():
        steps[name] = None if found is None else within_epochs(found, ends_of_epochs)
    events = _count(timeline)
    if sum(events.values()) == 0:
        steps = dict.fromkeys(steps)
    rows: list[tuple[Steps, Column, float]] = []
    times = []
    pieces = []
    for device in devices:
        bounds = steps[device.host]
        if bounds is None:
            continue
        seen = union(bounds.start, bounds.end)
        inner = device.where(intervals.inside(seen, device.start))
        times.append(_times(inner, hosts[device.host], seen))
        pieces.append(inner)
        if len(inner.start) and np.isin(inner.work, (Work.KERNEL, Work.COLLECTIVE)).any():
            host = hosts[device.host]
            rows.append((bounds, _segments(device, host, bounds), _wait(host, bounds)))
    unknown = list(_unknown(timeline, devices))
    if not rows:
        rows = _of_the_host(timeline, hosts, steps, devices)
    acted = {(device.host, device.name) for device in devices}
    return DeviceTrace(
        source=timeline.source,
        form=timeline.form,
        events=events,
        hosts=tuple(timeline.hosts),
        devices=tuple(times),
        idle_devices=tuple(name for host, name in timeline.devices if (host, name) not in acted),
        steps=_together(rows, pieces, timeline),
        busiest=tuple(_busiest(pieces, timeline.names)),
        input_wait_s=float(np.mean([wait for _, _, wait in rows])) if rows else 0.0,
        unknown=tuple(unknown),
        warnings=(*warnings, *_skew(devices, hosts)),
    )


# Getting ready


def _untangle(timeline: Timeline) -> Iterator[str]:
    """Put events in order, and say what was wrong with them."""
    backwards = overlapping = 0
    for line in timeline.lines:
        if not len(line.start):
            continue
        wrong = line.end < line.start
        if wrong.any():
            backwards += int(wrong.sum())
            line.end = np.maximum(line.end, line.start)
        if line.kind == "device":
            start, end = np.sort(line.start), line.end[np.argsort(line.start, kind="stable")]
            overlapping += int((start[1:] < end[:-1]).sum())
    if backwards:
        yield f"{backwards:,} events end before they begin: the clock ran backwards; they count as moments"
    if overlapping:
        yield f"{overlapping:,} events overlap on a stream, which does one thing at a time; time counts once"


def _count(timeline: Timeline) -> dict[str, int]:
    kinds = {
        Work.KERNEL: "kernels", Work.COLLECTIVE: "collectives", Work.H2D: "copies to the device",
        Work.D2H: "copies to the host", Work.D2D: "copies between devices", Work.MEMSET: "fills",
        Work.PEER: "copies to other devices",
    }  # fmt: skip
    events: dict[str, int] = {}
    for line in timeline.lines:
        if not len(line.start):
            continue
        if line.work is not None:
            for work, count in zip(*np.unique(line.work, return_counts=True), strict=True):
                events[kinds[int(work)]] = events.get(kinds[int(work)], 0) + int(count)
            continue
        if line.correlation is not None:
            calls = int((line.correlation > 0).sum())
            events["launches by the host"] = events.get("launches by the host", 0) + calls
        else:
            calls = 0
        kind = "on the host" if line.kind == "host" else "summaries of others"
        events[kind] = events.get(kind, 0) + len(line.start) - calls
    if timeline.extra:
        events["marks for the viewer"] = timeline.extra
    return events


def _devices(timeline: Timeline) -> Iterator[_Device]:
    lines: dict[tuple[str, str], list[Line]] = {}
    for line in timeline.of("device"):
        lines.setdefault((line.host, line.plane), []).append(line)
    for (host, name), own in lines.items():
        start = np.concatenate([line.start for line in own])
        order = np.argsort(start, kind="stable")

        def column(name: str, own: list[Line] = own, order: Column = order) -> Column:
            missing = -1
            parts = [getattr(line, name) for line in own]
            parts = [
                np.full(len(line.start), missing, np.int64) if part is None else part
                for line, part in zip(own, parts, strict=True)
            ]
            joined: Column = np.concatenate(parts)[order]
            return joined

        columns = ("end", "label", "work", "op", "correlation", "bytes", "pinned")
        yield _Device(host, name, start[order], *(column(each) for each in columns))


# One device


def _segments(device: _Device, host: Host, steps: Steps) -> Column:
    """Give ns of each segment in each step: rows are steps, columns `_SEGMENTS`."""
    return _exclusive(
        [
            ("device_compute", device.spans(Work.KERNEL, Work.D2D, Work.MEMSET)),
            ("collective", device.spans(Work.COLLECTIVE, Work.PEER)),
            ("host_to_device", device.spans(Work.H2D)),
            ("device_to_host", device.spans(Work.D2H)),
            ("input_wait", host.gets_next),
            ("compile", host.compiling),
            ("unexplained", _queued(device, host)),
            ("launch", host.dispatch),
            ("host", host.python),
        ],
        steps,
        rest="host" if host.known and not steps.whole else "unexplained",
    )


def _exclusive(states: list[tuple[str, Spans]], steps: Steps, rest: str) -> Column:
    """Give each moment to the first of the states that holds, and what is left to `rest`."""
    # Moments may be there twice: what lies between them then counts nothing.
    points = np.concatenate([*(part for _, spans in states for part in spans), steps.start, steps.end])
    points.sort(kind="stable")
    points = points[(points >= steps.start[0]) & (points <= steps.end[-1])]
    at, lasts = points[:-1], np.diff(points)
    code = np.full(len(at), _SEGMENTS.index(rest), np.int64)
    for segment, spans in reversed(states):
        code[intervals.inside(spans, at)] = _SEGMENTS.index(segment)
    step = np.searchsorted(steps.start, at, "right") - 1
    lasts[at >= steps.end[step]] = 0  # between steps, where some were left out
    flat = np.bincount(step * len(_SEGMENTS) + code, lasts, minlength=len(steps.start) * len(_SEGMENTS))
    result: Column = flat.reshape(len(steps.start), len(_SEGMENTS))
    return result


def _launched(device: _Device, host: Host) -> tuple[Column, Column]:
    """Give when the host's call for each event of a device began and ended, -1 where there is none."""
    start = np.full(len(device.start), -1, np.int64)
    end = start.copy()
    if not len(host.launch_id) or not len(start):
        return start, end
    at = np.searchsorted(host.launch_id, device.correlation)
    at[at == len(host.launch_id)] = 0
    known = (host.launch_id[at] == device.correlation) & (device.correlation > 0)
    start[known] = host.launch_start[at[known]]
    end[known] = host.launch_end[at[known]]
    return start, end


def _idle(device: _Device, host: Host) -> tuple[Spans, Column, Column, Column]:
    """Give the gaps between whatever a device does, when what ends each was launched, and what that is."""
    every = union(device.start, device.end)
    between = intervals.gaps(every)
    # Events are in order of begin: the one that ends a gap is the first that begins there.
    following = np.searchsorted(device.start, between.end, "left")
    begun, done = _launched(device, host)
    return between, begun[following], done[following], device.work[following]


def _queued(device: _Device, host: Host) -> Spans:
    """Find where a device idles although what it does next had been launched before."""
    if len(device.start) < 2:
        return EMPTY
    between, begun, done, _ = _idle(device, host)
    rows = (begun >= 0) & (done <= between.start) & (between.end - between.start > _QUEUED_NS)
    return Spans(between.start[rows], between.end[rows])


def _times(device: _Device, host: Host, seen: Spans) -> DeviceTimes:
    kernels = device.work == Work.KERNEL
    collectives = device.work == Work.COLLECTIVE
    took = device.end - device.start
    begun, done = _launched(device, host)
    joined = (begun >= 0) & kernels
    late = late_s = queued_s = 0.0
    if len(device.start) > 1:
        between, gap_begun, gap_done, before = _idle(device, host)
        lasts = between.end - between.start
        lasts[within(seen, between.start, between.end) < lasts] = 0  # over a step that was left out
        is_late = (lasts > 0) & (gap_begun >= 0) & (gap_done > between.start) & (before == Work.KERNEL)
        late, late_s = float(is_late.sum()), float(lasts[is_late].sum()) * _NS
        is_queued = (gap_begun >= 0) & (gap_done <= between.start) & (lasts > _QUEUED_NS)
        queued_s = float(lasts[is_queued].sum()) * _NS
    busy = device.spans(Work.KERNEL)
    return DeviceTimes(
        name=device.name,
        host=device.host,
        kernels=int(kernels.sum()),
        kernel_s=float(took[kernels].sum()) * _NS,
        busy_s=intervals.length(busy) * _NS,
        median_kernel_s=float(np.median(took[kernels])) * _NS if kernels.any() else 0.0,
        short_kernels=int((took[joined] < (done - begun)[joined]).sum()),
        launches=int(joined.sum()),
        launch_s=float((done - begun)[joined].sum()) * _NS,
        late_gaps=int(late),
        late_gap_s=late_s,
        queued_gap_s=queued_s,
        collectives=int(collectives.sum()),
        collective_s=intervals.length(device.spans(Work.COLLECTIVE)) * _NS,
        copies=tuple(_copies(device, busy)),
    )


def _copies(device: _Device, busy: Spans) -> Iterator[Copies]:
    for kinds, direction in _DIRECTIONS:
        rows = np.isin(device.work, kinds)
        if not rows.any():
            continue
        spans = union(device.start[rows], device.end[rows])
        size, pinned = device.bytes[rows], device.pinned[rows]
        told = size >= 0
        told_kind = told & (pinned >= 0)
        fields: dict[str, Maybe] = {}
        if told.all():
            fields["bytes"] = _bytes(size)
            fields["largest_bytes"] = Quantity(float(size.max()), "B", source=_SOURCE)
        if told_kind.all():
            fields["pinned_bytes"] = _bytes(size[pinned == 1])
            fields["pageable_bytes"] = _bytes(size[pinned == 0])
        yield Copies(
            direction,
            int(rows.sum()),
            intervals.length(spans) * _NS,
            intervals.overlap(spans, busy) * _NS,
            **fields,
        )


def _bytes(sizes: Column) -> Quantity:
    return Quantity(float(sizes.sum()), "B", source=_SOURCE, count=len(sizes))


# All together


def _wait(host: Host, steps: Steps) -> float:
    return float(within(host.gets_next, steps.start, steps.end).mean()) * _NS


def _of_the_host(
    timeline: Timeline, hosts: dict[str, Host], steps: dict[str, Steps | None], devices: list[_Device]
) -> list[tuple[Steps, Column, float]]:
    """Break down a step on a machine without an accelerator: there the ops run on the host."""
    if timeline.devices or devices or _wants_device(timeline):
        return []
    rows = []
    for name, host in hosts.items():
        bounds = steps[name]
        if bounds is None or not len(host.processing.start):
            continue
        split = _exclusive(
            [
                # While a step waits for its batch, the ops that run are the input's.
                ("input_wait", host.gets_next),
                ("compile", host.compiling),
                ("device_compute", host.processing),
                ("launch", host.dispatch),
                ("host", host.python),
            ],
            bounds,
            rest="unexplained" if bounds.whole else "host",
        )
        rows.append((bounds, split, _wait(host, bounds)))
    return rows


def _together(
    rows: list[tuple[Steps, Column, float]], devices: list[_Device], timeline: Timeline
) -> TracedSteps | Missing:
    """Take all devices together: each has its own exclusive segments of the same steps."""
    if not rows:
        if not any(len(line.start) for line in timeline.lines):
            return Missing("the trace is empty")
        if timeline.devices or _wants_device(timeline):
            return Missing(_CUPTI + _PERMIT)
        return Missing("the trace holds no work of a device and no ops of the host")
    count = sum(len(steps.start) for steps, _, _ in rows)
    total = sum(segments.sum(axis=0) for _, segments, _ in rows) / count * _NS
    first = rows[0][0]
    shown = slice(0, _SERIES)
    start, end = first.start[shown], first.end[shown]
    busy: Column = np.zeros(len(start))
    kernels: Column = np.zeros(len(start), np.int64)
    if devices:
        own = next(d for d in devices if np.isin(d.work, (Work.KERNEL, Work.COLLECTIVE)).any())
        busy = within(own.spans(Work.KERNEL), start, end) * _NS
        begins = own.start[own.work == Work.KERNEL]
        kernels = np.searchsorted(begins, end) - np.searchsorted(begins, start)
    return TracedSteps(
        found_by=first.found_by,
        count=len(first.start),
        mean_s=float(total.sum()),
        segments={name: float(total[index]) for index, name in enumerate(_SEGMENTS)},
        duration_s=tuple(((end - start) * _NS).tolist()),
        busy_s=tuple(busy.tolist()),
        kernels=tuple(kernels.tolist()),
        whole=first.whole,
    )


def _busiest(devices: list[_Device], names: list[str]) -> Iterator[Busiest]:
    if not devices:
        return
    label = np.concatenate([device.label for device in devices]).astype(np.int64)
    op = np.concatenate([device.op for device in devices]).astype(np.int64)
    took = np.concatenate([device.end - device.start for device in devices])
    work = np.concatenate([device.work for device in devices])
    rows = np.isin(work, (Work.KERNEL, Work.COLLECTIVE))
    label, op, took = label[rows], op[rows], took[rows]
    key, inverse, counts = np.unique(
        label * (len(names) + 1) + op + 1, return_inverse=True, return_counts=True
    )
    total = np.bincount(inverse, took, minlength=len(key))
    for index in np.argsort(-total, kind="stable")[:_BUSIEST].tolist():
        kernel, of = divmod(int(key[index]), len(names) + 1)
        op_name = names[of - 1] if of else ""
        yield Busiest(
            names[kernel], op_name, words.layer_of(op_name), int(counts[index]), float(total[index]) * _NS
        )


def _wants_device(timeline: Timeline) -> bool:
    """Say whether a trace without a device is one of a job that uses one."""
    complaint = " ".join(timeline.errors).lower()
    if any(word in complaint for word in ("cupti", "gpu", "roctracer", "rocprofiler")):
        return True
    if any(line.name.startswith("tf_gpu_") for line in timeline.lines):
        return True
    return bool(len(words.matching(timeline.names, words.LAUNCH_CALL)))


def _unknown(timeline: Timeline, devices: list[_Device]) -> Iterator[tuple[str, str]]:
    if not devices and (timeline.devices or _wants_device(timeline)):
        yield "what the device did", _CUPTI + _PERMIT
    for error in timeline.errors[:3]:
        yield "what the profiler could not trace", error.strip()[:300]
    if devices and not timeline.of("host"):
        yield "what the device waited for", "the trace holds no events of the host"
    elif devices and not any(line.correlation is not None for line in timeline.of("host")):
        yield (
            "when kernels were launched",
            "the host's launches are not in the trace, or carry no correlation id",
        )


def _skew(devices: list[_Device], hosts: dict[str, Host]) -> Iterator[str]:
    for device in devices:
        begun, _ = _launched(device, hosts[device.host])
        known = begun >= 0
        early = int((device.start[known] < begun[known]).sum())
        if known.any() and early > _SKEW * known.sum():
            ahead = float(np.max((begun - device.start)[known])) * _NS
            yield (
                f"{device.name}: {early:,} of {int(known.sum()):,} pieces of work begin before they were "
                f"launched: the clocks of host and device differ by up to {ahead:.2g} s"
            )

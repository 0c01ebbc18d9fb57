"""Builds traces: an XSpace as bytes, event by event, and jobs of a known make-up in it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MS", "US", "Event", "Plane", "Ref", "job", "space"]

US = 1_000
MS = 1_000_000
"""Times are ns."""


@dataclass(frozen=True)
class Ref:
    """A text that an XSpace keeps once, among the names of its stats."""

    text: str


@dataclass(frozen=True)
class Event:
    """An event with its stats."""

    name: str
    start: int
    took: int
    stats: Mapping[str, float | str | Ref] = field(default_factory=dict)


@dataclass(frozen=True)
class Plane:
    """A device or a host: its lines by name, each with its zero and its events."""

    name: str
    lines: Mapping[str, Sequence[Event]]
    zero: int = 0
    stats: Mapping[str, float | str | Ref] = field(default_factory=dict)
    """Of the plane itself."""
    reverse_fields: bool = False
    """Write the fields of events in another order, as no writer does."""


def varint(value: int) -> bytes:
    """Write a number as protobuf does; negative ones as if they had 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field_number: int, value: int) -> bytes:
    """Write a field with a number."""
    return varint(field_number << 3) + varint(value)


def nested(field_number: int, value: bytes | str) -> bytes:
    """Write a field with bytes, a text or a message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field_number << 3 | 2) + varint(len(value)) + value


class _Names:
    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self.ids.setdefault(name, len(self.ids) + 1)

    def entries(self, field_number: int) -> bytes:
        return b"".join(
            nested(field_number, number(1, key) + nested(2, number(1, key) + nested(2, name)))
            for name, key in self.ids.items()
        )


def _stat(names: _Names, name: str, value: float | str | Ref) -> bytes:
    key = number(1, names[name])
    if isinstance(value, Ref):
        return key + number(7, names[value.text])
    if isinstance(value, float):
        return key + varint(2 << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, str):
        return key + nested(5, value)
    return key + (number(3, value) if value >= 0 else number(4, value))


def _event(plane: Plane, events: _Names, stats: _Names, event: Event) -> bytes:
    parts = [number(1, events[event.name]), number(2, event.start * 1000), number(3, event.took * 1000)]
    parts += [nested(4, _stat(stats, name, value)) for name, value in event.stats.items()]
    return nested(4, b"".join(reversed(parts) if plane.reverse_fields else parts))


def space(*planes: Plane, errors: Sequence[str] = (), hostname: str = "") -> bytes:
    """Give the bytes of an XSpace."""
    out = []
    for plane in planes:
        events, stats = _Names(), _Names()
        lines = b""
        for index, (name, own) in enumerate(plane.lines.items()):
            head = number(1, index) + nested(2, name) + number(3, plane.zero)
            tail = number(9, 10**6) + number(10, 7)
            lines += nested(3, head + b"".join(_event(plane, events, stats, each) for each in own) + tail)
        own = b"".join(nested(6, _stat(stats, name, value)) for name, value in plane.stats.items())
        out.append(
            nested(
                1, number(1, 1) + nested(2, plane.name) + own + lines + events.entries(4) + stats.entries(5)
            )
        )
    out += [nested(2, error) for error in errors]
    if hostname:
        out.append(nested(4, hostname))
    return b"".join(out)


def job(
    steps: int = 6,
    *,
    host: int = 0,
    wait: int = 0,
    copy: int = 0,
    late: int = 0,
    kernels: int = 4,
    kernel: int = MS,
    launch: int = 5 * US,
    back: int = 0,
    collective: int = 0,
    copy_bytes: int = 1_000_000,
    memory: str = "pageable",
    overlap: bool = False,
    device: str = "/device:GPU:0",
    correlated: bool = True,
    epoch: int = 0,
    pause: int = 0,
    **planes: Any,
) -> bytes:
    """Give a trace of equal steps: Python, a wait for input, a copy, late launches of kernels, a copy back.

    Each part follows the one before it, so that an analysis has to give the numbers back. With `overlap` the
    copy runs beside the kernels. Each `epoch` steps there is a pause.
    """
    main: list[Event] = []
    get: list[Event] = []
    calls: list[Event] = []
    compute: list[Event] = []
    to: list[Event] = []
    back_: list[Event] = []
    now = 0
    identity = 0

    def put(stream: list[Event], name: str, begin: int, took: int, called: int, **stats: Any) -> None:
        nonlocal identity
        identity += 1
        known = {"correlation_id": identity} if correlated else {}
        stream.append(Event(name, begin, took, {**known, **stats}))
        calls.append(Event("cuLaunchKernel", called, launch, known))

    for step in range(steps):
        now += host + (pause if epoch and step and step % epoch == 0 else 0)
        begin = now
        if wait:
            get.append(Event("IteratorGetNextOp::DoCompute", now, wait, {"id": step}))
            now += wait
        details = f"kind_src:{memory} kind_dst:device size:{copy_bytes} dest:0 async:1"
        if copy:
            put(to, "MemcpyH2D", now, copy, now, memcpy_details=details)
            now += 0 if overlap else copy
        for index in range(kernels):
            put(
                compute, "gemm" if index % 2 else "relu", now + late, kernel, now + max(0, late - launch),
                tf_op=Ref(f"gradient_tape/sequential/dense_{index % 2}/MatMul:MatMul"),
            )  # fmt: skip
            now += late + kernel
        if collective:
            put(compute, "ncclAllReduceRingLLKernel_sum_f32", now, collective, now)
            now += collective
        if back:
            put(
                back_,
                "MemcpyD2H",
                now,
                back,
                now,
                memcpy_details="kind_src:device kind_dst:pinned size:4 async:1",
            )
            now += back
        main.append(Event("EagerLocalExecute: __inference_one_step_on_iterator_12", begin, now - begin))
        main.append(Event("FunctionRun", begin, now - begin, {"id": step, "_r": 1}))
    lines = {"Stream #13(Compute)": compute}
    if to:
        lines["Stream #14(MemcpyH2D)"] = to
    if back_:
        lines["Stream #15(MemcpyD2H)"] = back_
    hosts = {"python": main, "tf_data_iterator_get_next/1": get, "tf_gpu/2": calls}
    return space(Plane(device, lines), Plane("/host:CPU", hosts), **planes)

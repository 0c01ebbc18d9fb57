"""The door to when ops ran: spans of ops, kernels and copies from a short trace.

Private names and where they were seen, with what happens when they are gone: nothing is timed.

- `tensorflow.tsl.profiler.protobuf.xplane_pb2` (2.16 to 2.21), the form of the trace.
- The name `ExecutorState::Process` (2.16 to 2.21): ops that are too quick to be told are not seen together
either.
- The statistic `tf_op` of kernels (2.3 to 2.21): which op a kernel belongs to is not known.
- Ops are named `name:Type` on lines of `/host:CPU`; kernels and copies stand on lines of `/device:GPU:0`,
  copies with `Memcpy` and `H2D`, `D2H` or `HtoD`, `DtoH` in their names (2.13 to 2.21).
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfdiag.model.quantity import Missing

__all__ = ["OpSpan", "Spans", "read_spans"]

_OP = re.compile(r"^([A-Za-z0-9.][\w.\\/>-]*):(_?[A-Z]\w*)$")
_WORKING = "ExecutorState::Process"
_DERIVED = ("XLA Ops", "XLA Modules", "Steps", "TensorFlow Ops", "TensorFlow Name Scope", "Source")
"""Lines that say again what others say."""


@dataclass(frozen=True, slots=True)
class OpSpan:
    """An op that ran on a thread, or, with an empty type, a kernel or a copy on a device."""

    name: str
    op: str
    line: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Spans:
    """What ran when, in seconds on one clock."""

    ops: tuple[OpSpan, ...]
    kernels: tuple[tuple[float, float], ...] = ()
    copies: tuple[tuple[str, float, float], ...] = ()
    """Direction, begin and end."""
    kernel_ops: tuple[str, ...] = ()
    """The op of each kernel, as `name:Type`; empty where the trace does not tell."""
    working: tuple[tuple[float, float], ...] = ()
    """When threads worked through the ops of a step, also those that are too quick to be told."""


def read_spans(folder: Path) -> Spans | Missing:
    """Read a trace that the profiler wrote."""
    files = sorted(folder.rglob("*.xplane.pb"))
    if not files:
        return Missing("the profiler wrote no trace")
    try:
        form = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    except ImportError as error:
        return Missing(f"the trace can't be read: {error}")
    space = form.XSpace.FromString(files[-1].read_bytes())
    ops: list[OpSpan] = []
    kernels: list[tuple[float, float]] = []
    copies: list[tuple[str, float, float]] = []
    launched_by: list[str] = []
    working: list[tuple[float, float]] = []
    for plane in space.planes:
        names = {key: str(value.name) for key, value in plane.event_metadata.items()}
        if plane.name.startswith("/host:"):
            _host(plane, names, ops, working)
        elif plane.name.startswith("/device:") and "CUSTOM" not in plane.name:
            _device(plane, names, kernels, copies, launched_by)
    if not ops:
        return Missing("the trace holds no ops: this TensorFlow names its events otherwise")
    told = tuple(launched_by) if any(launched_by) else ()
    return Spans(tuple(ops), tuple(kernels), tuple(copies), told, tuple(working))


def _host(plane: Any, names: dict[int, str], ops: list[OpSpan], working: list[tuple[float, float]]) -> None:
    at_work = {key for key, name in names.items() if name == _WORKING}
    matches = {key: _OP.match(name.split("#", 1)[0]) for key, name in names.items()}
    for number, line in enumerate(plane.lines):
        base = line.timestamp_ns * 1e-9
        for event in line.events:
            match = matches.get(event.metadata_id)
            if match is not None:
                begin = base + event.offset_ps * 1e-12
                ops.append(OpSpan(match[1], match[2], number, begin, begin + event.duration_ps * 1e-12))
            elif event.metadata_id in at_work:
                begin = base + event.offset_ps * 1e-12
                working.append((begin, begin + event.duration_ps * 1e-12))


def _device(
    plane: Any,
    names: dict[int, str],
    kernels: list[tuple[float, float]],
    copies: list[tuple[str, float, float]],
    launched_by: list[str],
) -> None:
    stats = {key: str(value.name) for key, value in plane.stat_metadata.items()}
    for line in plane.lines:
        if line.name in _DERIVED or line.name.startswith("Framework"):
            continue
        base = line.timestamp_ns * 1e-9
        for event in line.events:
            begin = base + event.offset_ps * 1e-12
            end = begin + event.duration_ps * 1e-12
            name = names.get(event.metadata_id, "")
            if "memcpy" in name.lower():
                copies.append((_direction(name), begin, end))
            elif "memset" not in name.lower():
                kernels.append((begin, end))
                launched_by.append(_op_of(event, stats))


def _direction(name: str) -> str:
    for marks, direction in (
        (("H2D", "HtoD", "HostToDevice"), "host to device"),
        (("D2H", "DtoH", "DeviceToHost"), "device to host"),
    ):
        if any(mark in name for mark in marks):
            return direction
    return "device to device"


def _op_of(event: Any, stats: dict[int, str]) -> str:
    """Give the op that launched a kernel, empty where the trace does not tell."""
    for stat in event.stats:
        if stats.get(stat.metadata_id) == "tf_op":
            return str(stat.str_value) or stats.get(stat.ref_value, "")
    return ""

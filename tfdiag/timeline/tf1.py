"""Reads a TensorFlow 1 timeline (of `RunMetadata`), a Chrome trace in JSON, into columns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tfdiag.timeline import names as words
from tfdiag.timeline.columns import Line, Timeline, Work

__all__ = ["is_timeline", "is_trace_viewer", "read_tf1"]

_STREAM = re.compile(
    r"^(?P<device>/(?:\w+:\w+/)*(?:device:)?gpu:\d+|/device:\w+:\d+)/(?P<lane>stream:\w+|memcpy)",
    re.IGNORECASE,
)
_SUMMARY = "stream:all"
_HOST = "host"
_FAR_US = 1e16
"""Later than this no clock is: times from 1970 on are a tenth of it."""


def is_timeline(data: Any) -> bool:
    """Say whether parsed JSON is a timeline of TensorFlow 1."""
    if not isinstance(data, dict) or not isinstance(data.get("traceEvents"), list):
        return False
    return any(name.endswith((" Compute", " Tensors")) for name in _processes(data["traceEvents"]).values())


def is_trace_viewer(data: Any) -> bool:
    """Say whether parsed JSON is another Chrome trace: TensorBoard writes one beside its XSpace."""
    return isinstance(data, dict) and isinstance(data.get("traceEvents"), list)


def _processes(events: list[Any]) -> dict[Any, str]:
    return {
        event.get("pid"): str(event.get("args", {}).get("name", ""))
        for event in events
        if isinstance(event, dict) and event.get("ph") == "M" and event.get("name") == "process_name"
    }


def read_tf1(data: dict[str, Any], source: str) -> Timeline:
    """Turn a parsed timeline into columns; it has no more events than a viewer can show."""
    events = data["traceEvents"]
    processes = _processes(events)
    timeline = Timeline(source, "TF1 timeline", [], hosts=[_HOST], joined=False)
    known: dict[str, int] = {}
    rows: dict[tuple[Any, Any], list[tuple[float, float, int, int]]] = {}
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            timeline.extra += 1
            continue
        try:
            start, took = float(event["ts"]), float(event.get("dur", 0))
        except (KeyError, TypeError, ValueError):
            timeline.extra += 1
            continue
        if not (abs(start) < _FAR_US and abs(took) < _FAR_US):  # nor what is no number
            timeline.extra += 1
            continue
        details = event.get("args")
        details = details if isinstance(details, dict) else {}
        label = str(details.get("op") or event.get("name", ""))
        node = str(details.get("name", ""))
        op = known.setdefault(f"{node}:{label}" if node else label, len(known))
        row = (start, start + took, known.setdefault(label, len(known)), op)
        rows.setdefault((event.get("pid"), event.get("tid")), []).append(row)
    timeline.names = list(known)
    zero = min((row[0] for own in rows.values() for row in own), default=0.0)
    for (process, _), own in rows.items():
        timeline.lines.append(_line(processes.get(process, ""), own, zero, timeline.names))
    _summaries_alone(timeline)
    _no_gpu_twice(timeline)
    devices = {line.plane for line in timeline.lines if line.kind == "device"}
    timeline.devices = [(_HOST, name) for name in sorted(devices)]
    return timeline


def _line(process: str, rows: list[tuple[float, float, int, int]], zero: float, names: list[str]) -> Line:
    start, end, label, op = (np.array(column) for column in zip(*rows, strict=True))
    stream = _STREAM.match(process)
    line = Line(
        kind="device" if stream else "host",
        plane=stream["device"] if stream else process,
        name=stream["lane"] if stream else process,
        host=_HOST,
        start=np.round((start - zero) * 1e3).astype(np.int64),
        end=np.round((end - zero) * 1e3).astype(np.int64),
        label=label.astype(np.int32),
    )
    if stream:
        if stream["lane"] == _SUMMARY:
            line.kind = "derived"
        line.work = np.array([words.work_of(names[index]) for index in label.tolist()], np.int8)
        line.op = np.where(line.work == Work.KERNEL, op, -1).astype(np.int32)
    return line


def _summaries_alone(timeline: Timeline) -> None:
    """Take the summary of all streams for the streams where there is nothing else."""
    real = {line.plane for line in timeline.lines if line.kind == "device"}
    for line in timeline.lines:
        if line.kind == "derived" and line.plane not in real:
            line.kind = "device"


def _no_gpu_twice(timeline: Timeline) -> None:
    for line in timeline.lines:
        if line.kind == "derived":
            line.work = line.op = None

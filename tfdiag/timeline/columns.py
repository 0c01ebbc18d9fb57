"""A trace in memory: numpy columns, one entry an event, line by line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

__all__ = ["Column", "Form", "Line", "Timeline", "Work", "merged"]

Column: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Form: TypeAlias = Literal["XSpace", "TF1 timeline"]


class Work:
    """Codes of what a device does."""

    KERNEL = 0
    COLLECTIVE = 1
    H2D = 2
    D2H = 3
    D2D = 4
    MEMSET = 5
    PEER = 6
    """From one device to another."""


@dataclass(slots=True)
class Line:
    """The events of one thread or one stream. Times are ns since the trace's own zero."""

    kind: Literal["host", "device", "derived"]
    """Derived lines repeat what other lines show: steps, modules, ops, name scopes."""
    plane: str
    name: str
    host: str
    start: Column
    end: Column
    label: Column
    """Index into the timeline's names."""
    correlation: Column | None = None
    """Joins a host's call with what it launched, -1 where there is none."""
    work: Column | None = None
    """`Work` of each event, on devices."""
    op: Column | None = None
    """Index into the timeline's names, -1 where the trace does not tell."""
    bytes: Column | None = None
    """-1 where the trace does not tell."""
    pinned: Column | None = None
    """1 page-locked, 0 pageable, -1 not told."""
    step: Column | None = None
    """Step number of markers, -1 elsewhere."""
    run: Column | None = None
    """Identity of the run of a function that an event belongs to, -1 elsewhere."""


@dataclass(slots=True)
class Timeline:
    """A whole trace."""

    source: str
    form: Form
    names: list[str]
    lines: list[Line] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    devices: list[tuple[str, str]] = field(default_factory=list)
    """Host and name of each device plane, also of those without events."""
    errors: list[str] = field(default_factory=list)
    """What the profiler itself complained of."""
    warnings: list[str] = field(default_factory=list)
    joined: bool = True
    """Launches can be joined with what they launched."""
    extra: int = 0
    """Entries that are no events: names of processes, arrows, counters."""

    def of(self, kind: str) -> list[Line]:
        """Give the lines of a kind that have events."""
        return [line for line in self.lines if line.kind == kind and len(line.start)]


def merged(timelines: list[Timeline]) -> Timeline:
    """Put the traces of several hosts together; each keeps a clock of its own."""
    whole = timelines[0]
    for other in timelines[1:]:
        shift = len(whole.names)
        whole.names += other.names
        for line in other.lines:
            line.label += shift
            if line.op is not None:
                line.op[line.op >= 0] += shift
        whole.lines += other.lines
        whole.hosts += other.hosts
        whole.devices += other.devices
        whole.errors += other.errors
        whole.warnings += other.warnings
        whole.extra += other.extra
    return whole

"""Reads an XSpace, the form of `tf.profiler`, Keras' TensorBoard callback and JAX, into columns.

The numbers of the fields are those of `xplane.proto` in OpenXLA, unchanged since TensorFlow 2.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tfdiag.timeline import names as words
from tfdiag.timeline.columns import Column, Line, Timeline, Work
from tfdiag.timeline.wire import PADDING, Buffer, CutError, fields

__all__ = ["looks_like_xspace", "read_xspace"]

_FAR_NS = 86_400 * 10**9
_BLOCK = 1 << 15
"""Events decoded at a time: what is needed for a moment only stays in the processor's cache."""
_ENVIRONMENT = "Task Environment"
_EVENT = 0x22
_STAT = 0x22
_DETAIL = re.compile(rb"(kind|kind_src|kind_dst|size|num_bytes|dest):([\w.]+)")


@dataclass(slots=True)
class _Plane:
    name: str = ""
    lines: list[tuple[int, int]] = field(default_factory=list)
    events: dict[int, str] = field(default_factory=dict)
    stats: dict[int, str] = field(default_factory=dict)
    own_stats: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Stats:
    """Stats of events by what they tell; -1 where there is none."""

    correlation: Column
    step: Column
    run: Column
    bytes: Column
    details: Column
    """Where the text about a copy begins."""
    details_end: Column
    """Where it ends, or -1 where `details` is the number of a shared text."""
    op: Column
    op_end: Column


def looks_like_xspace(head: bytes) -> bool:
    """Say whether bytes may begin an XSpace: with a plane, or with what the profiler complained of."""
    if head[:1] in (b"\x12", b"\x1a", b"\x22"):
        return True
    # A plane begins with its number or its name; text that begins with an empty line does not.
    return re.match(rb"\x0a[\x80-\xff]{0,5}[\x00-\x7f]([\x08\x12]|$)", head, re.DOTALL) is not None


def read_xspace(data: Column, source: str, host: str = "") -> Timeline:
    """Read the bytes of a file, `PADDING` zeros behind them, into columns."""
    buffer = Buffer(data)
    timeline = Timeline(source, "XSpace", [])
    planes: list[tuple[int, int]] = []
    try:
        for number, begin, end in fields(buffer.raw, 0, buffer.size):
            if number == 1:
                planes.append((begin, end))
            elif number in (2, 3):
                timeline.errors.append(buffer.text(begin, end))
            elif number == 4 and not host:
                host = buffer.text(begin, end)
    except CutError as error:
        if not planes:
            raise
        timeline.warnings.append(f"the trace is cut: {error}; what comes before that was read")
    timeline.hosts.append(host or "host")
    raw: list[tuple[Line, int]] = []
    started = 0
    known: dict[str, int] = {}
    for begin, end in planes:
        try:
            reader = _Reader(buffer, timeline, known, timeline.hosts[0])
            raw += reader.plane(begin, end)
            started = max(started, reader.started)
        except CutError as error:
            timeline.warnings.append(f"a part of the trace makes no sense and was left out: {error}")
    timeline.names = list(known)
    timeline.warnings += _to_one_clock([(line, _since(started, base)) for line, base in raw])
    timeline.lines = [line for line, _ in raw]
    return timeline


def _since(started: int, base: int) -> int:
    """Give a line's zero on the profiler's clock: what began before it keeps the time of the day."""
    return base - started if started > _FAR_NS and abs(base - started) < _FAR_NS else base


def _to_one_clock(raw: list[tuple[Line, int]]) -> Iterator[str]:
    """Move lines, which count from times of their own, to the zero of the earliest; say which can't be."""
    begins = []
    for line, base in raw:
        # Picoseconds until here: rounded after the sum, so that what follows without a gap still does.
        line.end += line.start
        line.start //= 1000
        line.end //= 1000
        begins.append(base + int(line.start.min()) if len(line.start) else None)
    known = sorted(begin for begin in begins if begin is not None)
    if not known:
        return
    middle = known[len(known) // 2]
    near = [begin is not None and abs(begin - middle) < _FAR_NS for begin in begins]
    zero = min(base for (_, base), is_near in zip(raw, near, strict=True) if is_near)
    for (line, base), is_near in zip(raw, near, strict=True):
        if is_near:
            line.start += base - zero
            line.end += base - zero
        elif len(line.start):
            line.kind = "derived"
            yield f"the clock of line {line.name!r} is days away from the others: it was left out"


class _Reader:
    def __init__(self, buffer: Buffer, timeline: Timeline, known: dict[str, int], host: str) -> None:
        self.buffer = buffer
        self.timeline = timeline
        self.known = known
        self.host = host
        self.started = 0
        """When the profiler started, as far as this plane tells."""

    def plane(self, begin: int, end: int) -> Iterator[tuple[Line, int]]:
        plane = self._outline(begin, end)
        is_device = plane.name.startswith("/device:") and "CPU" not in plane.name
        if is_device:
            self.timeline.devices.append((self.host, plane.name))
        if plane.name == _ENVIRONMENT:
            self.started = self._number(plane, "profile_start_time")
        labels = self._labels(plane)
        for line_begin, line_end in plane.lines:
            yield from self._line(plane, labels, line_begin, line_end, is_device=is_device)

    def _outline(self, begin: int, end: int) -> _Plane:
        """Read a plane's names and find its lines; the names come behind the lines."""
        buffer, plane = self.buffer, _Plane()
        for number, at, stop in fields(buffer.raw, begin, end):
            if number == 2:
                plane.name = buffer.text(at, stop)
            elif number == 3:
                plane.lines.append((at, stop))
            elif number == 6:
                plane.own_stats.append((at, stop))
            elif number in (4, 5):
                key, name = self._entry(at, stop)
                (plane.events if number == 4 else plane.stats)[key] = name
        return plane

    def _number(self, plane: _Plane, name: str) -> int:
        """Read a number that a plane tells of itself, 0 where it does not."""
        for begin, end in plane.own_stats:
            told = {number: value for number, value, _ in fields(self.buffer.raw, begin, end)}
            if plane.stats.get(told.get(1, 0)) == name:
                return told.get(3, told.get(4, 0))
        return 0

    def _entry(self, begin: int, end: int) -> tuple[int, str]:
        key, name = 0, ""
        for number, at, stop in fields(self.buffer.raw, begin, end):
            if number == 1:
                key = at
            elif number == 2:
                for inner, inner_at, inner_stop in fields(self.buffer.raw, at, stop):
                    if inner == 2:
                        name = self.buffer.text(inner_at, inner_stop)
        return key, name

    def _labels(self, plane: _Plane) -> tuple[Column, Column]:
        """Give the keys of a plane's names, sorted, and the index of each among all names."""
        keys = sorted(plane.events)
        indices = [self._name(plane.events[key]) for key in keys]
        return np.array(keys, np.int64), np.array(indices, np.int32)

    def _name(self, name: str) -> int:
        return self.known.setdefault(name, len(self.known))

    def _line(
        self, plane: _Plane, labels: tuple[Column, Column], begin: int, end: int, *, is_device: bool
    ) -> Iterator[tuple[Line, int]]:
        buffer = self.buffer
        name = shown = ""
        base = 0
        starts: list[Column] = []
        at = begin
        while at < end:
            if buffer.raw[at] == _EVENT:
                found, at = buffer.starts(at, end, _EVENT)
                starts.append(found)
                continue
            for number, first, last in fields(buffer.raw, at, end):
                if number == 2:
                    name = buffer.text(first, last)
                elif number == 11:
                    shown = buffer.text(first, last)
                elif number == 3:
                    base = _signed(first)
                at = last
                if at < end and buffer.raw[at] == _EVENT:
                    break
        name = shown or name
        kind: Literal["host", "device", "derived"] = "device" if is_device else "host"
        if is_device and words.is_derived(name):
            kind = "derived"
        every = np.concatenate(starts) if starts else np.empty(0, np.int64)
        del starts
        count = len(every)
        line = Line(
            kind,
            plane.name,
            name,
            self.host,
            start=np.empty(count, np.int64),
            end=np.empty(count, np.int64),
            label=np.empty(count, np.int32),
        )
        stats_at = np.empty(len(every), np.int64)
        stats_end = np.empty(len(every), np.int64)
        for low in range(0, len(every), _BLOCK):
            block = slice(low, min(low + _BLOCK, len(every)))
            key, line.start[block], line.end[block], stats_at[block], stats_end[block] = self._decode(
                every[block]
            )
            line.label[block] = self._indexed(labels, key)
        del every
        if kind == "device":
            self._describe_device(line, plane, name, stats_at, stats_end)
        elif kind == "host":
            self._describe_host(line, plane, stats_at, stats_end)
        yield line, base

    def _indexed(self, labels: tuple[Column, Column], key: Column) -> Column:
        keys, indices = labels
        if not len(keys):
            return np.full(len(key), self._name("(no name)"), np.int32)
        at = np.searchsorted(keys, key)
        at[at == len(keys)] = 0
        index = indices[at]
        wrong = keys[at] != key
        if wrong.any():
            index[wrong] = self._name("(no name)")
        return index

    def _decode(self, at: Column) -> tuple[Column, Column, Column, Column, Column]:
        """Decode events, all at once: number of the name, begin and duration in ps, where the stats are."""
        buffer = self.buffer
        data = buffer.bytes
        size, cursor = buffer.varints(at + 1)
        end = cursor + size
        named = data[cursor] == 0x08
        key, cursor = self._optional(cursor, end, 0x08)
        start, cursor = self._optional(cursor, end, 0x10)
        took, cursor = self._optional(cursor, end, 0x18)
        odd = np.flatnonzero(~named | (cursor > end) | ((cursor < end) & (data[cursor] != _STAT)))
        for index in odd.tolist():  # fields in another order, or new ones: rare
            key[index], start[index], took[index], cursor[index] = self._odd(int(at[index]), int(end[index]))
        return key, start, took, cursor, end

    def _optional(self, cursor: Column, end: Column, tag: int) -> tuple[Column, Column]:
        there = (self.buffer.bytes[cursor] == tag) & (cursor < end)
        if there.all():
            return self.buffer.varints(cursor + 1)
        value = np.zeros(len(cursor), np.int64)
        after = cursor.copy()
        rows = np.flatnonzero(there)
        value[rows], after[rows] = self.buffer.varints(cursor[rows] + 1)
        return value, after

    def _odd(self, at: int, end: int) -> tuple[int, int, int, int]:
        values = [0, 0, 0]
        stats = end
        ((_, begin, stop),) = list(fields(self.buffer.raw, at, end))
        before = begin
        for number, value, after in fields(self.buffer.raw, begin, stop):
            if number in (1, 2, 3):
                values[number - 1] = _signed(value)
            elif number == 4:
                stats = min(stats, before)
            before = after
        return values[0], values[1], values[2], stats

    # --- stats ---------------------------------------------------------------------------------------

    def _describe_device(self, line: Line, plane: _Plane, name: str, at: Column, end: Column) -> None:
        work = self._work(line, name)
        stats = self._stats(plane, at, end)
        line.work = work
        line.correlation = stats.correlation
        line.bytes = np.where(stats.bytes >= 0, stats.bytes, -1)
        line.pinned = np.full(len(work), -1, np.int8)
        self._copies(line, plane, stats)
        line.op = self._ops(plane, stats)

    def _work(self, line: Line, name: str) -> Column:
        present, inverse = np.unique(line.label, return_inverse=True)
        known = list(self.known)
        of = np.array([words.work_of(known[index]) for index in present.tolist()], np.int8)
        work = of[inverse] if len(of) else np.empty(0, np.int8)
        # A stream that only copies says so; its events may have other names.
        alone = re.fullmatch(r"Stream #\d+\((\w+)\)", name)
        only = {"MemcpyH2D": Work.H2D, "MemcpyD2H": Work.D2H, "MemcpyD2D": Work.D2D, "Memset": Work.MEMSET}
        if alone and alone[1] in only:
            work[work == Work.KERNEL] = only[alone[1]]
        return work

    def _copies(self, line: Line, plane: _Plane, stats: _Stats) -> None:
        """Read the texts about copies; copies are few, and their texts repeat."""
        assert line.bytes is not None and line.pinned is not None
        raw = self.buffer.raw
        seen: dict[bytes, tuple[int, int, int, int]] = {}
        own = plane.name.rpartition(":")[2]
        rows = np.flatnonzero(stats.details >= 0)
        spans = zip(
            rows.tolist(), stats.details[rows].tolist(), stats.details_end[rows].tolist(), strict=True
        )
        for row, begin, stop in spans:
            text = plane.stats.get(begin, "").encode() if stop < 0 else bytes(raw[begin:stop])
            known = seen.get(text)
            if known is None:
                known = seen[text] = _copy_details(text)
            size, pinned, work, to = known
            line.bytes[row] = size
            line.pinned[row] = pinned
            assert line.work is not None
            if work >= 0 and line.work[row] == Work.KERNEL:
                line.work[row] = work
            if line.work[row] == Work.D2D and to >= 0 and str(to) != own:
                line.work[row] = Work.PEER

    def _ops(self, plane: _Plane, stats: _Stats) -> Column:
        op = np.full(len(stats.op), -1, np.int32)
        shared = np.flatnonzero((stats.op >= 0) & (stats.op_end < 0))
        if len(shared):
            present, inverse = np.unique(stats.op[shared], return_inverse=True)
            index = [self._name(plane.stats.get(key, "")) for key in present.tolist()]
            op[shared] = np.array(index, np.int32)[inverse]
        own = np.flatnonzero(stats.op_end >= 0)
        for row, begin, stop in zip(
            own.tolist(), stats.op[own].tolist(), stats.op_end[own].tolist(), strict=True
        ):
            op[row] = self._name(self.buffer.text(begin, stop))
        return op

    def _describe_host(self, line: Line, plane: _Plane, at: Column, end: Column) -> None:
        """Read the stats of the few names that have interesting ones; the first event of a name tells."""
        if not len(line.label):
            return
        _, first, inverse = np.unique(line.label, return_index=True, return_inverse=True)
        sample = self._stats(plane, at[first], end[first])
        known = list(self.known)
        present = line.label[first].tolist()
        with_runs = (words.RUN, words.GETS_NEXT, words.PROCESSING)
        runs = np.array([any(pattern.match(known[one]) for pattern in with_runs) for one in present])
        told = (sample.correlation >= 0) | (sample.step >= 0) | (runs & (sample.run != -1))
        rows = np.flatnonzero(told[inverse])
        if not len(rows):
            return
        stats = self._stats(plane, at[rows], end[rows])
        for column, values in (
            ("correlation", stats.correlation), ("step", stats.step), ("run", stats.run),
        ):  # fmt: skip
            if (values != -1).any():  # numbers of runs are drawn from all of 64 bits
                whole = np.full(len(line.label), -1, np.int64)
                whole[rows] = values
                setattr(line, column, whole)

    def _stats(self, plane: _Plane, at: Column, end: Column) -> _Stats:
        """Decode the stats of events: the first of all, then the second of those that have two, and so on."""
        ids: dict[str, set[int]] = {}
        for key, name in plane.stats.items():
            ids.setdefault(_MEANING.get(name, ""), set()).add(key)
            if name in _NO_OPS:
                ids.setdefault("no op", set()).add(key)
        count = len(at)
        found = _Stats(*(np.full(count, -1, np.int64) for _ in range(8)))
        told = [key for what, keys in ids.items() if what not in ("", "no op") for key in keys]
        wanted = np.array(sorted(told), np.int64)
        if not len(wanted):
            return found
        for low in range(0, count, _BLOCK):
            block = np.arange(low, min(low + _BLOCK, count))
            self._walk_stats(found, ids, wanted, block[at[block] < end[block]], at, end)
        return found

    def _walk_stats(
        self, found: _Stats, ids: dict[str, set[int]], wanted: Column, rows: Column, at: Column, end: Column
    ) -> None:
        data = self.buffer.bytes
        cursor = at[rows]
        while len(rows):
            if (data[cursor] != _STAT).any():
                fits = data[cursor] == _STAT
                rows, cursor = rows[fits], cursor[fits]  # what comes behind the stats is new to us
            size, begin = self.buffer.varints(cursor + 1)
            after = begin + size
            kind, value_at = self._optional(begin, after, 0x08)
            use = np.flatnonzero(np.isin(kind, wanted) & (value_at < after))
            self._store(found, ids, rows[use], kind[use], value_at[use], after[use])
            left = (after < end[rows]) & (after > cursor)
            rows, cursor = rows[left], after[left]

    def _store(
        self, found: _Stats, ids: dict[str, set[int]], rows: Column, key: Column, at: Column, end: Column
    ) -> None:
        if not len(rows):
            return
        tag = self.buffer.bytes[at]
        value, after = self.buffer.varints(at + 1)
        text = (tag == 0x2A) | (tag == 0x32)
        number = (tag == 0x18) | (tag == 0x20)
        for what in ("correlation", "step", "run", "bytes"):
            if what in ids:
                mask = np.isin(key, list(ids[what])) & number
                getattr(found, what)[rows[mask]] = value[mask]
        for what, begin, stop in (
            ("details", found.details, found.details_end),
            ("hlo", found.op, found.op_end),
            ("op", found.op, found.op_end),
        ):
            if what not in ids:
                continue
            mine = np.isin(key, list(ids[what]))
            if what == "hlo":  # TensorFlow's own name says more, where there is one
                mine &= begin[rows] < 0
            shared, own = mine & (tag == 0x38), mine & text
            if what == "op" and "no op" in ids:
                shared &= ~np.isin(value, list(ids["no op"]))
            begin[rows[shared]] = value[shared]
            stop[rows[shared]] = -1
            begin[rows[own]] = after[own]
            stop[rows[own]] = end[own]


_MEANING = {
    "correlation_id": "correlation",
    "step_num": "step",
    "id": "run",
    "bytes": "bytes",
    "num_bytes": "bytes",
    "memcpy_details": "details",
    "tf_op": "op",
    "hlo_op": "hlo",
}
_NO_OPS = ("XlaModule:", "XlaModule", ":")
"""What XLA puts in the place of an op where it has none."""


def _copy_details(text: bytes) -> tuple[int, int, int, int]:
    """Read bytes, page-locked or not, direction and the receiving device from what is said of a copy."""
    told = {key: value.lower() for key, value in _DETAIL.findall(text)}
    size = told.get(b"size", told.get(b"num_bytes", b""))
    ends = (told.get(b"kind_src", b""), told.get(b"kind_dst", b""))
    host = {b"pageable": 0, b"pinned": 1, b"host": -1}
    pinned = next((host[end] for end in ends if end in host), -1)
    work = -1
    if ends[0] in host and ends[1] == b"device":
        work = Work.H2D
    elif ends[0] == b"device" and ends[1] in host:
        work = Work.D2H
    elif ends == (b"device", b"device"):
        work = Work.D2D
    kind = told.get(b"kind", b"")
    if kind in (b"pageable", b"pinned"):
        pinned = host[kind]
    to = told.get(b"dest", b"")
    return int(size) if size.isdigit() else -1, pinned, work, int(to) if to.isdigit() else -1


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def padded(data: bytes) -> Column:
    """Give bytes as the array that `read_xspace` takes."""
    array = np.zeros(len(data) + PADDING, np.uint8)
    array[: len(data)] = np.frombuffer(data, np.uint8)
    return array

"""The log of the simulated GPU as numpy columns: what really happened, to the nanosecond."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_TEXT = ("kind", "name", "op")
_FLAGS = ("pinned", "async", "overrun")


@dataclasses.dataclass(frozen=True)
class Truth:
    """One row for each kernel, copy and fill, in the order in which they ended. Times are ns since the epoch."""

    kind: np.ndarray  # "kernel", "h2d", "d2h", "d2d", "memset"
    device: np.ndarray  # as the process numbered it
    stream: np.ndarray  # -1: a copy that the host waited for
    name: np.ndarray
    op: np.ndarray  # "node:Type" of the TensorFlow op, where there is one
    api0: np.ndarray  # the host's call ...
    api1: np.ndarray
    t0: np.ndarray  # ... and the device's work
    t1: np.ndarray
    bytes: np.ndarray
    correlation: np.ndarray
    tid: np.ndarray
    pinned: np.ndarray
    asynchronous: np.ndarray
    overrun: np.ndarray  # the host took longer than the modelled GPU would have
    peer: np.ndarray  # of a copy between GPUs: the one that receives
    marks: tuple[tuple[str, int], ...] = ()

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def read(cls, path: Path) -> Truth:
        """Parse the file that `SIMGPU_LOG` named; rows that a crash cut short are left out."""
        with path.open(newline="") as file:
            reader = csv.reader(file)
            header = next(reader)
            rows = [row for row in reader if len(row) == len(header)]
        marks = tuple((row[3], int(row[7])) for row in rows if row[0] == "mark")
        rows = [row for row in rows if row[0] != "mark"]
        columns = dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))
        arrays = {
            name: np.array(values, dtype=str) if name in _TEXT else np.array(values, dtype=np.int64)
            for name, values in columns.items()
        }
        for name in _FLAGS:
            arrays[name] = arrays[name].astype(bool)
        arrays["asynchronous"] = arrays.pop("async")
        return cls(**arrays, marks=marks)

    def where(self, rows: np.ndarray) -> Truth:
        """Only the rows that a mask or an index selects."""
        columns = {f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self) if f.name != "marks"}
        return Truth(**columns, marks=self.marks)

    def of(self, *kinds: str, device: int | None = None) -> Truth:
        """Only these kinds of work, of one device."""
        rows = np.isin(self.kind, kinds) if kinds else np.ones(len(self), bool)
        return self.where(rows if device is None else rows & (self.device == device))

    def between(self, first: str, last: str) -> Truth:
        """What started on the device between two marks."""
        return self.where((self.t0 >= self.moment(first)) & (self.t0 < self.moment(last)))

    def moment(self, mark: str) -> int:
        """When a mark was set, for the first time."""
        for name, time in self.marks:
            if name == mark:
                return time
        raise KeyError(f"no mark {mark!r}; there are {sorted({name for name, _ in self.marks})}")

    @property
    def busy_ns(self) -> int:
        """Time during which at least one of the rows was under way."""
        return union_ns(self.t0, self.t1)

    @property
    def total_ns(self) -> int:
        """Sum of the durations."""
        return int((self.t1 - self.t0).sum())


def union_ns(t0: np.ndarray, t1: np.ndarray) -> int:
    """Length of the union of intervals."""
    if len(t0) == 0:
        return 0
    order = np.argsort(t0, kind="stable")
    start, end = t0[order], np.maximum.accumulate(t1[order])
    reached = np.concatenate(([start[0]], end[:-1]))
    return int(np.maximum(0, end - np.maximum(start, reached)).sum())


def overlap_ns(a: Truth, b: Truth) -> int:
    """Time during which both were under way."""
    both = union_ns(np.concatenate((a.t0, b.t0)), np.concatenate((a.t1, b.t1)))
    return a.busy_ns + b.busy_ns - both


def names(rows: Iterable[str]) -> dict[str, int]:
    """How often each name occurs, most often first."""
    values, counts = np.unique(np.array(list(rows), dtype=str), return_counts=True)
    return {str(values[i]): int(counts[i]) for i in np.argsort(-counts, kind="stable")}

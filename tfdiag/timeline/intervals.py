"""Arithmetic on intervals of time: sorted, disjoint pairs of begin and end, all at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfdiag.timeline.columns import Column

__all__ = ["EMPTY", "Spans", "covered", "gaps", "inside", "joined", "length", "overlap", "union", "within"]


class Spans(NamedTuple):
    """Disjoint intervals in order."""

    start: Column
    end: Column


EMPTY = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Column, end: Column) -> Spans:
    """Merge intervals that overlap or touch."""
    real = end > start
    if not real.all():
        start, end = start[real], end[real]
    if not len(start):
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.empty(len(start), bool)
    first[0] = True
    np.greater(start[1:], reach[:-1], out=first[1:])
    begins = np.flatnonzero(first)
    return Spans(start[begins], reach[np.append(begins[1:] - 1, len(start) - 1)])


def length(spans: Spans) -> int:
    """Give the time that all intervals cover."""
    return int((spans.end - spans.start).sum())


def covered(spans: Spans, until: Column) -> Column:
    """Give how much the intervals cover before each moment."""
    if not len(spans.start):
        return np.zeros(len(until), np.int64)
    total = np.concatenate(([0], np.cumsum(spans.end - spans.start)))
    index = np.searchsorted(spans.start, until, "right")
    last = spans.end[np.maximum(index - 1, 0)]
    over: Column = np.where(index > 0, np.maximum(last - until, 0), 0)
    result: Column = total[index] - over
    return result


def within(spans: Spans, start: Column, end: Column) -> Column:
    """Give how much the intervals cover of each window."""
    result: Column = covered(spans, end) - covered(spans, start)
    return result


def overlap(one: Spans, other: Spans) -> int:
    """Give the time that both cover."""
    return int(within(one, other.start, other.end).sum())


def inside(spans: Spans, at: Column) -> Column:
    """Say for each moment whether an interval covers it; the end of one does not belong to it."""
    if not len(spans.start):
        return np.zeros(len(at), bool)
    index = np.searchsorted(spans.start, at, "right") - 1
    result: Column = (index >= 0) & (at < spans.end[np.maximum(index, 0)])
    return result


def gaps(spans: Spans) -> Spans:
    """Give what lies between the intervals."""
    return Spans(spans.end[:-1], spans.start[1:])


def joined(parts: list[Spans]) -> Spans:
    """Give the union of several sets of intervals."""
    if not parts:
        return EMPTY
    return union(np.concatenate([p.start for p in parts]), np.concatenate([p.end for p in parts]))

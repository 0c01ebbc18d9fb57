"""From the spans of a trace to how long ops of a kind hold up a step: pure."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tfdiag.collect.walked import normal
from tfdiag.compat.op_spans import OpSpan, Spans
from tfdiag.model.placement import CopyTime, Kind, OpTime, PlacedOp

__all__ = [
    "Pairs", "beside", "bridged", "copy_times", "held_up", "length", "op_times", "seconds_of_each", "union",
]  # fmt: skip

Pairs = list[tuple[float, float]]


def op_times(spans: Spans, kind_of: Mapping[tuple[str, str], Kind], calls: int) -> tuple[OpTime, ...]:
    """Measure how long ops of each kind run in a call, and how long nothing else does."""
    kinds: dict[Kind, list[OpSpan]] = {}
    for span in spans.ops:
        kind = kind_of.get((normal(span.name), span.op))
        if kind is not None:
            kinds.setdefault(kind, []).append(span)
    found = []
    for kind, mine in sorted(kinds.items()):
        running = union((span.begin, span.end) for span in mine)
        alone = _around(running, spans) if spans.kernels else _alone(mine, spans.ops)
        found.append(OpTime(kind, length(running) / calls, length(alone) / calls))
    return tuple(found)


def seconds_of_each(
    spans: Spans, marked: Mapping[tuple[str, str], PlacedOp], calls: int
) -> dict[tuple[str, str], float]:
    """Measure how long each of the marked ops runs in a call, by name and type."""
    found: dict[tuple[str, str], float] = {}
    for span in spans.ops:
        op = marked.get((normal(span.name), span.op))
        if op is not None:
            found[op.name, op.op] = found.get((op.name, op.op), 0.0) + (span.end - span.begin) / calls
    return found


def copy_times(spans: Spans, calls: int) -> tuple[CopyTime, ...]:
    """Measure how long copies of each direction take in a call while no kernel runs."""
    directions: dict[Any, Pairs] = {}
    for direction, begin, end in spans.copies:
        directions.setdefault(direction, []).append((begin, end))
    kernels = union(spans.kernels)
    return tuple(
        CopyTime(direction, len(pairs) / calls, length(_without(union(pairs), kernels)) / calls)
        for direction, pairs in sorted(directions.items())
    )


def held_up(mine: list[OpSpan], kernels: Iterable[tuple[float, float]], spans: Spans) -> float:
    """Measure how long these ops hold up the step: on a GPU their kernels, and its idle time for them."""
    running = union((span.begin, span.end) for span in mine)
    if not spans.kernels:
        return length(_alone(mine, spans.ops))
    return length(union([*kernels, *_around(running, spans)]))


def beside(mine: list[OpSpan], spans: Spans) -> tuple[float, float]:
    """Measure how long these ops ran while others did too: their part of that, and all of it.

    Each moment belongs in equal parts to the threads that work in it. On a device there is no such time:
    what the host does beside a kernel is not waited for.
    """
    if spans.kernels:
        return 0.0, 0.0
    others: dict[int, Pairs] = {}
    for span in _others(mine, spans.ops):
        others.setdefault(span.line, []).append((span.begin, span.end))
    ours = [union(pairs) for pairs in _by_line(mine).values()]
    theirs = [union(pairs) for pairs in others.values()]
    edges = np.array(
        [
            edge
            for which, lines in ((0, ours), (1, theirs))
            for pairs in lines
            for begin, end in pairs
            for edge in ((begin, 1, which), (end, -1, which))
        ]
    ).reshape(-1, 3)
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    working = np.cumsum(edges[:, 1:2] * (edges[:, 2:] == (0, 1)), axis=0)[:-1]
    both = np.diff(edges[:, 0]) * np.all(working > 0, axis=1)
    parts = working[:, 0] / np.maximum(1, working.sum(axis=1))
    return float(np.sum(both * parts)), float(np.sum(both))


def _alone(mine: list[OpSpan], ops: Iterable[OpSpan]) -> Pairs:
    """Give when some of these ops ran and no other: what runs inside of them is theirs."""
    busy = union((span.begin, span.end) for span in _others(mine, ops))
    return _without(bridged(union((span.begin, span.end) for span in mine), busy), busy)


def _others(mine: list[OpSpan], ops: Iterable[OpSpan]) -> list[OpSpan]:
    own = {id(span) for span in mine}
    by_line = _by_line(mine)
    return [span for span in ops if id(span) not in own and not _related(span, by_line.get(span.line, []))]


def _by_line(spans: list[OpSpan]) -> dict[int, Pairs]:
    found: dict[int, Pairs] = {}
    for span in spans:
        found.setdefault(span.line, []).append((span.begin, span.end))
    for pairs in found.values():
        pairs.sort()
    return found


def bridged(mine: Pairs, others: Pairs) -> Pairs:
    """Close the gaps in which nothing else runs: dispatching the next of these ops is theirs as well."""
    begins = [begin for begin, _ in others]
    found: Pairs = []
    for begin, end in mine:
        if found:
            before = found[-1][1]
            at = bisect.bisect_left(begins, begin)
            if at == 0 or others[at - 1][1] <= before:
                found[-1] = (found[-1][0], end)
                continue
        found.append((begin, end))
    return found


def _related(span: OpSpan, mine: Pairs) -> bool:
    """Say whether a span lies within one of these on the same thread, or around one."""
    at = bisect.bisect_right(mine, (span.begin, float("inf")))
    inside = at > 0 and mine[at - 1][1] >= span.end
    return inside or (at < len(mine) and mine[at][1] <= span.end)


def _around(running: Pairs, spans: Spans) -> Pairs:
    """Give when a device stood idle because of ops on the host: with the copies to them and from them."""
    kernels = union(spans.kernels)
    begins, ends = [begin for begin, _ in kernels], [end for _, end in kernels]
    found: Pairs = []
    for at in range(len(kernels) + 1):
        idle = (ends[at - 1] if at else -np.inf, begins[at] if at < len(kernels) else np.inf)
        inside = [each for each in running if each[0] < idle[1] and each[1] > idle[0]]
        if not inside:
            continue
        first, last = max(inside[0][0], idle[0]), min(inside[-1][1], idle[1])
        for direction, begin, end in spans.copies:
            if begin < idle[0] or end > idle[1]:
                continue
            if direction == "device to host" and begin < last:
                first = min(first, begin)
            elif direction == "host to device" and end > first:
                last = max(last, end)
        found.append((first, last))
    return found


def union(pairs: Iterable[tuple[float, float]]) -> Pairs:
    """Give what pairs cover together: sorted, and none overlaps another."""
    found: Pairs = []
    for begin, end in sorted(pairs):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _without(pairs: Pairs, others: Pairs) -> Pairs:
    """Take from sorted pairs that don't overlap what such others cover."""
    found: Pairs = []
    at = 0
    for begin, end in pairs:
        while at < len(others) and others[at][1] <= begin:
            at += 1
        reach, look = begin, at
        while look < len(others) and others[look][0] < end:
            if others[look][0] > reach:
                found.append((reach, others[look][0]))
            reach = max(reach, others[look][1])
            look += 1
        if reach < end:
            found.append((reach, end))
    return found


def length(pairs: Pairs) -> float:
    """Add up pairs that don't overlap."""
    return float(sum(end - begin for begin, end in pairs))

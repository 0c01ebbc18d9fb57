"""From the spans of a trace to how long parts of a step hold it up: pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tfdiag.collect.op_times import Pairs, beside, bridged, held_up, length, union
from tfdiag.collect.walked import normal
from tfdiag.compat.op_spans import OpSpan, Spans

__all__ = ["PartTime", "Slowdown", "part_times", "times_of_ops", "unseen_time"]

K = TypeVar("K", bound=Hashable)

_CARRIES = (
    "Identity", "Enter", "Exit", "Switch", "Merge", "NextIteration", "LoopCond", "Const", "NoOp", "_Arg",
    "_Retval", "PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf",
)  # fmt: skip
_OF_LOOPS = ("TensorList", "While", "StatelessWhile")
"""Beginnings of the names of ops that pass a loop its rows, or are one."""
_LEAST_LEFT = 0.8
"""Of its even share: loops of small ops took 0.86 and 0.93 of it. What slows a call more is no recording."""
_STRETCH_S = 30e-6
"""Dispatching the next op takes less."""


@dataclass(frozen=True, slots=True)
class PartTime:
    """What a part of a step takes in a call."""

    alone_s: float
    """Time in which nothing but its ops ran; on a GPU: in which its kernels ran, or the GPU idled between."""
    op_s: float
    """What an op of it takes, as a mean; those left out that only carry values."""
    repeats: float
    """How often an op of it runs."""
    beside_s: float = 0.0
    """Its part of the time in which others worked as well …"""
    beside_most_s: float = 0.0
    """… and all of that time."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """What the profiler adds to a call: it goes with the ops, so that many small ones bear more than few.

    How much more can't be told from the trace, which leaves most of them out: small ops take between
    their even share and a little less, large ones between that and all that was seen. On a device what the
    host does is slowed, and so all of it.
    """

    traced_s: float
    plain_s: float
    evenly: bool = False

    def off_small(self, seconds: float) -> tuple[float, float, float]:
        """Give what so many seconds in small ops take without tracing: most likely, at least, at most."""
        even = self._even(seconds)
        least = (
            even if self.evenly else max(_LEAST_LEFT * even, seconds - max(0.0, self.traced_s - self.plain_s))
        )
        return (even + least) / 2, least, even

    def off_large(self, seconds: float) -> float:
        """Give what so many seconds in few large ops take without tracing."""
        even = self._even(seconds)
        return even if self.evenly else (even + min(seconds, self.plain_s)) / 2

    def _even(self, seconds: float) -> float:
        return seconds * (min(1.0, self.plain_s / self.traced_s) if self.traced_s > 0 else 1.0)


def part_times(
    spans: Spans, member: Callable[[str], K | None], calls: int, *, loops: bool = False
) -> dict[K, PartTime]:
    """Measure each part; `member` says to which one an op belongs, by its name without what inlining adds.

    The profiler leaves out ops that are quick once they have run often. In a loop that may be most of them:
    what the executor does between two ops of others is the loop's, where one op of it shows that it runs
    then.
    """
    part_of: dict[str, K | None] = {}

    def part(name: str) -> K | None:
        if name not in part_of:
            part_of[name] = member(normal(name))
        return part_of[name]

    ops: dict[K, list[OpSpan]] = {}
    others: list[tuple[float, float]] = []
    for span in spans.ops:
        key = part(span.name)
        if key is None:
            others.append((span.begin, span.end))
        else:
            ops.setdefault(key, []).append(span)
    if spans.kernel_ops:
        return _on_device(spans, part, ops, calls)
    found = {}
    for key, mine in ops.items():
        alone = held_up(mine, [], spans)
        if loops and spans.working:
            alone = max(alone, _between(mine, others, spans.working))
        part_s, most_s = beside(mine, spans)
        found[key] = PartTime(
            alone_s=alone / calls,
            op_s=_mean(mine),
            repeats=_repeats(mine) / calls,
            beside_s=part_s / calls,
            beside_most_s=most_s / calls,
        )
    return found


def times_of_ops(spans: Spans, member: Callable[[str], K | None], calls: int) -> dict[K, float]:
    """Sum up what ops of each part take in a call; what belongs to loops is left out."""
    found: dict[K, float] = {}
    for span in spans.ops:
        key = None if span.op.startswith(_OF_LOOPS) else member(normal(span.name))
        if key is not None:
            found[key] = found.get(key, 0.0) + (span.end - span.begin) / calls
    return found


def unseen_time(spans: Spans, member: Callable[[str], K | None], count: int, calls: int) -> float | None:
    """Measure so many loops of which no op is seen: the longest stretches of work without others' ops."""
    seen = [span for span in spans.ops if member(normal(span.name)) is not None]
    others = [(span.begin, span.end) for span in spans.ops if member(normal(span.name)) is None]
    work = _Sorted(union(spans.working))
    shown = _Sorted(union((span.begin, span.end) for span in seen))
    took = [work.within(gap) for gap in _gaps(others) if not shown.within(gap)]
    longest = sorted((each for each in took if each >= _STRETCH_S), reverse=True)[: count * calls]
    if len(longest) < calls:
        return None if not spans.working else 0.0
    # A call that something disturbed must not decide.
    return float(np.median(longest)) * count


def _on_device(
    spans: Spans, part: Callable[[str], K | None], ops: dict[K, list[OpSpan]], calls: int
) -> dict[K, PartTime]:
    kernels: dict[K, Pairs] = {}
    keys = [part(op.split(":", 1)[0]) for op in spans.kernel_ops]
    for key, pair in zip(keys, spans.kernels, strict=False):
        if key is not None:
            kernels.setdefault(key, []).append(pair)
    found = {}
    for key, mine in kernels.items():
        others = union(pair for other, pair in zip(keys, spans.kernels, strict=False) if other != key)
        own = ops.get(key, [])
        alone = length(bridged(union(mine), others))
        mean = sum(end - begin for begin, end in mine) / len(mine)
        found[key] = PartTime(alone / calls, mean, _repeats(own) / calls if own else 0.0)
    return found


def _between(mine: list[OpSpan], others: Pairs, working: tuple[tuple[float, float], ...]) -> float:
    """Measure the work between ops of others, where some of these ops ran."""
    own = union((span.begin, span.end) for span in mine)
    work, shown = _Sorted(union([*working, *own])), _Sorted(own)
    return sum(work.within(gap) for gap in _gaps(others) if shown.within(gap))


def _gaps(others: Pairs) -> Iterator[tuple[float, float]]:
    busy = union(others)
    for (_, begin), (end, _) in itertools.pairwise(busy):
        yield begin, end


class _Sorted:
    """Pairs that don't overlap, to ask for parts of them again and again."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        self._until = np.concatenate(([0.0], np.cumsum(self._pairs[:, 1] - self._pairs[:, 0])))

    def within(self, gap: tuple[float, float]) -> float:
        """Measure what of them lies in a gap."""
        return self._before(gap[1]) - self._before(gap[0])

    def _before(self, moment: float) -> float:
        at = int(np.searchsorted(self._pairs[:, 0], moment))
        if at == 0:
            return 0.0
        begin, end = self._pairs[at - 1]
        return float(self._until[at - 1] + min(moment, end) - begin)


def _mean(mine: list[OpSpan]) -> float:
    took = [span.end - span.begin for span in mine if span.op not in _CARRIES]
    return sum(took) / len(took) if took else 0.0


def _repeats(mine: list[OpSpan]) -> float:
    """Give how often most of the ops ran."""
    often = Counter(Counter(span.name for span in mine).values())
    return float(max(often, key=lambda times: (often[times], times)))

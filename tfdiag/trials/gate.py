"""A gate between two steps, or two epochs: jobs that share a model run by turns, and none notices the others.

The thread of a job passes its gate before each step, or the first one of each epoch. While it is its turn the
moment is noted, and that is all; when the turn is over it stays there until the next one. Threads that work
ahead for it fill their buffers meanwhile, so a turn begins with steps that don't count. Between two epochs
nothing works ahead.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfdiag.compat.tfdata import ModelReader
from tfdiag.model.pipeline import Stage

__all__ = ["EpochGate", "Gate", "Turn", "batches_ahead"]

_PRELUDE = 0.4
"""Of a turn: what was ready is used up, and what worked ahead for the others comes to rest."""
_COUNTED_LEAST = 4
_DRAINED_MOST = 0.6
"""Of a turn, at most, is spent on steps that don't count; deep buffers make turns longer, up to twice."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The steps of one turn that count, or its epochs."""

    periods_s: tuple[float, ...]
    """From each call of the train function, or beginning of an epoch, to the next."""
    skipped: int
    """How many before them did not count."""


class Gate:
    """Where one job stops between two of its steps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._go = threading.Event()
        self._reader = ModelReader()
        self._stamps: list[float] = []
        self._seconds = 0.0
        self._ahead = 0
        """Batches that lay ready when the turn, or the last stretch of draining it, began …"""
        self._drained_at = 0
        """… and the call by which they are used up."""
        self._counts_from = 0
        self._parked = False
        self.ended = False
        """The job is to come to its end at once."""

    # --- on the job's thread ------------------------------------------------------------------------

    def passes(self, iterator: Any = None) -> bool:
        """Note that a step begins, and stay while it is the turn of others; False when it is all over."""
        now = self._clock()
        if not self.ended and self._stamps and self._is_over(now, iterator):
            self._stamps.append(now)
            self._parked = True
            self._told.put("parked")
            self._go.wait()
            self._go.clear()
            self._parked = False
            self._stamps = []
            self._ahead = self._drained_at = batches_ahead(self._reader, iterator)
            now = self._clock()
        self._stamps.append(now)
        return not self.ended

    def leave(self) -> None:
        """Say that the job is out."""
        self._told.put("out")

    def _is_over(self, now: float, iterator: Any) -> bool:
        begin = self._stamps[0]
        calls = len(self._stamps)
        if not self._counts_from:
            drained = now - begin >= _PRELUDE * self._seconds and self._is_drained(calls, iterator)
            if drained or now - begin >= 2 * _DRAINED_MOST * self._seconds:
                self._counts_from = calls
            return False
        return now - begin >= self._seconds and calls - self._counts_from >= _COUNTED_LEAST

    def _is_drained(self, calls: int, iterator: Any) -> bool:
        """Say whether what lay ready is used up, with what was made meanwhile, where the input is slower."""
        if calls <= self._drained_at:
            return False
        more = batches_ahead(self._reader, iterator) if self._ahead else 0
        if not 0 < more < self._ahead:
            return True
        self._ahead, self._drained_at = more, calls + more
        return False

    # --- on the conductor's thread ------------------------------------------------------------------

    def begin(self, seconds: float) -> None:
        """Let the job run for a while, on the thread that stays at the gate or that is about to come."""
        self._seconds = seconds
        self._counts_from = 0
        if self._parked:
            self._go.set()

    def wait(self, timeout_s: float) -> str:
        """Wait until the job is `parked` again or `out`; empty when it came to neither in time."""
        try:
            return self._told.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return ""

    def turn(self) -> Turn:
        """Give what was seen in the turn that is over."""
        stamps = self._stamps
        begin = self._counts_from
        periods = tuple(b - a for a, b in zip(stamps[begin - 1 :], stamps[begin:], strict=False))
        return Turn(periods, begin)

    def end(self) -> None:
        """Let the job come to its end."""
        self.ended = True
        self._go.set()


class EpochGate(Gate):
    """Where one job stops between two of its epochs: a turn is whole ones, and all of them count."""

    def _is_over(self, now: float, iterator: Any) -> bool:
        self._counts_from = 1
        return now - self._stamps[0] >= self._seconds


def batches_ahead(reader: ModelReader, iterator: Any) -> int:
    """Give how many batches lie ready in the buffers of a pipeline, 0 where the runtime does not tell."""
    if iterator is None:
        return 0
    read = reader.stages(iterator)
    if read is None:
        return 0
    if read.given <= 0:
        return 0
    return round(sum(_batches(stage, read.given) for stage in read.stages))


def _batches(stage: Stage, given: int) -> float:
    """Give what a stage's buffer holds, in batches; a shuffle's stays full, and is none of it."""
    if not stage.asynchronous or stage.elements <= 0 or stage.buffered <= 0:
        return 0.0
    return float(stage.buffered) * given / stage.elements

"""A gate between two steps: jobs that share one model run by turns, and none notices the others.

The thread of a job passes its gate before each step. While it is its turn the moment is noted, and that
is all; when the turn is over it stays there until the next one. Threads that work ahead for it fill their
buffers meanwhile, so a turn begins with steps that don't count.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfdiag.compat.tfdata import ModelReader
from tfdiag.model.pipeline import Stage

__all__ = ["Gate", "Turn", "batches_ahead"]

_PRELUDE = 0.4
"""Of a turn: what was ready is used up, and what worked ahead for the others comes to rest."""
_COUNTED_LEAST = 4
_DRAINED_MOST = 0.6
"""Of a turn, at most, is spent on steps that don't count; deep buffers make turns longer, up to twice."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The steps of one turn that count."""

    periods_s: tuple[float, ...]
    """From each call of the train function to the next."""
    skipped: int
    """How many calls before them did not count."""


class Gate:
    """Where one job stops between two of its steps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._go = threading.Event()
        self._reader = ModelReader()
        self._stamps: list[float] = []
        self._seconds = 0.0
        self._drain: int | None = None
        self._counts_from = 0
        self._parked = False
        self.ended = False
        """The job is to come to its end at once."""

    # --- on the job's thread ------------------------------------------------------------------------

    def passes(self, iterator: Any = None) -> bool:
        """Note that a step begins, and stay while it is the turn of others; False when it is all over."""
        now = self._clock()
        if not self.ended and self._stamps and self._is_over(now):
            self._parked = True
            self._told.put("parked")
            self._go.wait()
            self._go.clear()
            self._parked = False
            self._stamps = []
            self._drain = batches_ahead(self._reader, iterator)
            now = self._clock()
        self._stamps.append(now)
        return not self.ended

    def leave(self) -> None:
        """Say that the job is out."""
        self._told.put("out")

    def _is_over(self, now: float) -> bool:
        begin = self._stamps[0]
        calls = len(self._stamps)
        if not self._counts_from:
            drained = calls > (self._drain or 0) and now - begin >= _PRELUDE * self._seconds
            if drained or now - begin >= 2 * _DRAINED_MOST * self._seconds:
                self._counts_from = calls
            return False
        return now - begin >= self._seconds and calls - self._counts_from >= _COUNTED_LEAST

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

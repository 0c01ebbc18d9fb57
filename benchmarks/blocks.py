"""Two callbacks compared in one process: blocks of steps follow each other as A B B A."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

__all__ = ["Blocks", "Compared"]


class Clock(keras.callbacks.Callback):
    """Notes the time at two steps of a block, and nothing else; the return of `fit` is not a clock."""

    async_safe = True

    def __init__(self, first: int, last: int) -> None:
        """Nothing is noted yet."""
        super().__init__()
        self._first, self._last = first, last
        self._began = self._ended = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Look at the clock at the first and the last of the steps that count."""
        if batch == self._first:
            self._began = time.perf_counter()
        elif batch == self._last:
            self._ended = time.perf_counter()

    def per_step(self) -> float:
        """Give seconds per step."""
        return (self._ended - self._began) / (self._last - self._first)


@dataclass(frozen=True)
class Compared:
    """What the blocks gave."""

    ratios: list[float]
    """Of each A B B A: the steps with B over those with A."""
    step_s: float
    """With A."""


@dataclass(frozen=True)
class Blocks:
    """A compiled model and its input, trained block by block; a clock inside the loop is the same for all."""

    model: Any
    dataset: Any
    steps: int
    skipped: int
    """The first steps of a block, which do not count."""

    def run(self, callback: Any) -> float:
        """Train one block, and give seconds per step."""
        clock = Clock(self.skipped, self.steps - 1)
        self.model.fit(
            self.dataset, steps_per_epoch=self.steps, callbacks=[callback, clock], verbose=0, shuffle=False
        )
        # Its iterator, while it is young: taking down an old one waits for its tuning thread.
        gc.collect()
        return clock.per_step()

    def compare(
        self, one: Callable[[], Any], other: Callable[[], Any], *, quads: int, warmup: int
    ) -> Compared:
        """Train with new callbacks A and B by turns, so that drift falls on both alike."""
        for _ in range(warmup):
            self.run(one())
            self.run(other())
        ratios, steps = [], []
        for _ in range(quads):
            first = self.run(one())
            theirs = self.run(other()) + self.run(other())
            ours = first + self.run(one())
            ratios.append(theirs / ours)
            steps.append(ours / 2)
        return Compared(ratios, statistics.median(steps))

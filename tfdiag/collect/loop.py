"""A loop of the caller's own: one step function, one batch after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfdiag.collect.recorder import Recorder

__all__ = ["run_own_loop"]


def run_own_loop(
    dataset: Any,
    train_step: Callable[[Any], Any],
    recorder: Recorder,
    *,
    should_stop: Callable[[], bool],
) -> None:
    """Take batches and train on them until told to stop; a finite dataset is begun again."""
    clock = recorder.clock
    watch, spent = recorder.watch, recorder.part_of_loop("step")
    recorder.event("train_begin")
    taken = -1
    while taken and not should_stop():
        taken = 0
        for_epoch = iter(dataset)
        once = for_epoch is dataset
        waits: list[float] = []
        recorder.event("epoch_begin")

        def call(_: Any, source: Any = for_epoch, waited: list[float] = waits) -> None:
            begin = clock()
            batch = next(source)
            waited.append(clock() - begin)
            if watch is not None:
                watch.cell = spent
            train_step(batch)
            if watch is not None:
                watch.cell = None

        step = recorder.instrument(call, None, waited=waits)
        while not should_stop():
            try:
                step(for_epoch)
            except StopIteration:
                break
            taken += 1
        recorder.event("epoch_end")
        if once:
            break
    recorder.look()
    recorder.event("train_end")

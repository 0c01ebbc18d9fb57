"""Compare `DiagnosticsCallback` with an empty callback, in steps below a millisecond.

    python -m benchmarks.callback_cost [--quads N]

One process and one compiled model: blocks of steps with an empty Keras callback (A) and with ours
(B) follow each other as A B B A, so that drift falls on both alike. A clock inside the loop, the
same in both, times the steps after the first few of each block; the return of `fit` is not a clock.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import keras

import tfdiag
from benchmarks.jobs import Tape, input_of, plain_model
from benchmarks.stats import Goal, bootstrap, report

LIMIT = 1.01
STEPS = 600
SKIPPED = 60
WARMUP_BLOCKS = 4


class Clock(keras.callbacks.Callback):
    """Notes the time at two steps of a block, and nothing else."""

    async_safe = True

    def __init__(self) -> None:
        """Nothing is noted yet."""
        super().__init__()
        self.first = self.last = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Look at the clock at the first and the last of the steps that count."""
        if batch == SKIPPED:
            self.first = time.perf_counter()
        elif batch == STEPS - 1:
            self.last = time.perf_counter()

    def per_step(self) -> float:
        """Give seconds per step."""
        return (self.last - self.first) / (STEPS - 1 - SKIPPED)


def block(model: Any, dataset: Any, callback: Any) -> float:
    """Train one block, and give seconds per step."""
    clock = Clock()
    model.fit(dataset, steps_per_epoch=STEPS, callbacks=[callback, clock], verbose=0, shuffle=False)
    return clock.per_step()


def main() -> None:
    """Measure the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quads", type=int, default=40)
    chosen = parser.parse_args()

    model, dataset = plain_model(), input_of("memory", 0.0, Tape())
    for _ in range(WARMUP_BLOCKS):
        block(model, dataset, keras.callbacks.Callback())
        block(model, dataset, tfdiag.DiagnosticsCallback())
    ratios, steps = [], []
    for _ in range(chosen.quads):
        first = block(model, dataset, keras.callbacks.Callback())
        ours = block(model, dataset, tfdiag.DiagnosticsCallback())
        ours += block(model, dataset, tfdiag.DiagnosticsCallback())
        empty = first + block(model, dataset, keras.callbacks.Callback())
        ratios.append(ours / empty)
        steps.append(empty / 2)
    value, low, high = bootstrap(ratios)
    step = statistics.median(steps)
    print(f"step with an empty callback: {step * 1e3:.3f} ms")
    print(f"ours adds {step * (value - 1) * 1e6:.2f} microseconds a step")
    goals = [
        Goal("step with ours over step with an empty callback", value, LIMIT, low=low, high=high),
        Goal("step with an empty callback", step * 1e3, 1.0, unit="ms"),
    ]
    report("callback_cost", goals, {"ratios": ratios, "step_s": step})


if __name__ == "__main__":
    main()

"""Compare `DiagnosticsCallback` with an empty callback, in steps below a millisecond.

    python -m benchmarks.callback_cost [--quads N]

One process and one compiled model: blocks of steps with an empty Keras callback (A) and with ours
(B) follow each other as A B B A, so that drift falls on both alike. A clock inside the loop, the
same in both, times the steps after the first few of each block; the return of `fit` is not a clock.
"""

from __future__ import annotations

import argparse

import keras

import tfdiag
from benchmarks.blocks import Blocks
from benchmarks.jobs import Tape, input_of, plain_model
from benchmarks.stats import Goal, bootstrap, report

LIMIT = 1.01
STEPS = 600
SKIPPED = 60
WARMUP_BLOCKS = 4


def main() -> None:
    """Measure the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quads", type=int, default=40)
    chosen = parser.parse_args()

    blocks = Blocks(plain_model(), input_of("memory", 0.0, Tape()), STEPS, SKIPPED)
    found = blocks.compare(
        keras.callbacks.Callback, tfdiag.DiagnosticsCallback, quads=chosen.quads, warmup=WARMUP_BLOCKS
    )
    value, low, high = bootstrap(found.ratios)
    step = found.step_s
    print(f"step with an empty callback: {step * 1e3:.3f} ms")
    print(f"ours adds {step * (value - 1) * 1e6:.2f} microseconds a step")
    goals = [
        Goal("step with ours over step with an empty callback", value, LIMIT, low=low, high=high),
        Goal("step with an empty callback", step * 1e3, 1.0, unit="ms"),
    ]
    report("callback_cost", goals, {"ratios": found.ratios, "step_s": step})


if __name__ == "__main__":
    main()

"""Time `diagnose`: within its budget and 10 %, whatever the input is and however it blocks.

    python -m benchmarks.budget [--only PART_OF_A_NAME]

The last job, with steps of 5 ms and the default budget, has to be done within 20 s.
"""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import tfdiag
from benchmarks.jobs import Plan, Tape, batch_arrays, build, input_of, plain_model
from benchmarks.stats import Goal, report

OVER = 1.1
DEFAULT_WITHIN_S = 20.0
BLOCKS_AT = 10

Made = tuple[Any, Any, dict[str, Any]]


def planned(plan: Plan) -> Made:
    """Give what is handed to `diagnose` for a planned job."""
    job = build(plan)
    return job.model, job.dataset, {"fit_kwargs": job.fit_kwargs}


def arrays() -> Made:
    """Give arrays with the default batch size."""
    x = np.random.default_rng(0).standard_normal((20_000, 16)).astype("float32")
    return plain_model(), x, {"y": x.sum(axis=1, keepdims=True), "fit_kwargs": {"epochs": 100}}


def generator() -> Made:
    """Give a Python generator, which can't be begun again."""

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in itertools.count():
            time.sleep(0.005)
            yield batch_arrays()

    return plain_model(), batches(), {}


def finite() -> Made:
    """Give a dataset of thirty batches."""
    return plain_model(), input_of("no overlap", 0.005, Tape()).take(30), {}


def blocked_input() -> Made:
    """Give an input that stops for a minute after some batches."""
    stop = threading.Event()

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for index in itertools.count():
            if index == BLOCKS_AT:
                stop.wait(60.0)
            yield batch_arrays()

    return plain_model(), batches(), {"release": stop}


def blocked_step() -> Made:
    """Give a job whose step takes a minute."""
    stop = threading.Event()
    return plain_model(inside=lambda: stop.wait(60.0)), forever(), {"release": stop}


def slow_steps() -> Made:
    """Give a job with steps of which two fit into the budget."""
    return plain_model(inside=lambda: time.sleep(2.0)), forever(), {}


def long_validation() -> Made:
    """Give a job whose validation takes longer than the budget."""
    validation = input_of("no overlap", 0.02, Tape()).take(1000)
    return plain_model(), forever().take(20), {"fit_kwargs": {"validation_data": validation}}


def forever() -> tf.data.Dataset:
    """Give an endless input in memory."""
    return input_of("memory", 0.0, Tape())


KINDS: dict[str, tuple[float, Callable[[], Made]]] = {
    "endless dataset": (6.0, lambda: planned(Plan("", 1.0))),
    "finite dataset": (6.0, finite),
    "slow input": (6.0, lambda: planned(Plan("", 1.0, "no overlap", 100.0))),
    "prefetched input": (6.0, lambda: planned(Plan("", 1.0, "autotune", 10.0))),
    "very slow input": (6.0, lambda: planned(Plan("", 1.0, "no overlap", 1500.0))),
    "from_generator": (6.0, lambda: planned(Plan("", 1.0, "generator", 10.0))),
    "PyDataset": (6.0, lambda: planned(Plan("", 1.0, "PyDataset", 10.0))),
    "arrays": (6.0, arrays),
    "Python generator": (6.0, generator),
    "eager": (6.0, lambda: planned(Plan("", 1.0, run_eagerly=True))),
    "steps_per_execution": (6.0, lambda: planned(Plan("", 1.0, steps_per_execution=8))),
    "long validation": (6.0, long_validation),
    "slow steps": (6.0, slow_steps),
    "blocked step": (4.0, blocked_step),
    "blocked input": (4.0, blocked_input),
    "tiny budget": (0.5, lambda: planned(Plan("", 1.0))),
}


def timed(make: Callable[[], Made], **budget: float) -> tuple[tfdiag.Report, float]:
    """Diagnose a job, and say how long that took."""
    model, dataset, kwargs = make()
    release = kwargs.pop("release", None)
    begin = time.perf_counter()
    try:
        found = tfdiag.diagnose(model, dataset, **kwargs, **budget)
        took = time.perf_counter() - begin
    finally:
        if release is not None:
            release.set()
    return found, took


def main() -> None:
    """Run all kinds of input, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()

    rows: list[dict[str, Any]] = []
    for name, (budget, make) in KINDS.items():
        if chosen.only in name:
            found, took = timed(make, budget=budget)
            ratio = took / budget
            rows.append({"name": name, "budget_s": budget, "took_s": took, "ratio": ratio})
            print(f"{name:<22} {took:6.2f} s of {budget:g} s   {found.verdict.code}", flush=True)
    goals = []
    if rows:
        worst = max(row["ratio"] for row in rows)
        goals.append(Goal("longest diagnosis, as a multiple of its budget", worst, OVER))
    if chosen.only in "default budget":
        found, took = timed(lambda: planned(Plan("", 4.5)))
        rows.append({"name": "default budget", "took_s": took, "verdict": found.verdict.code})
        goals.append(Goal("default diagnosis of a job with steps of 5 ms", took, DEFAULT_WITHIN_S, unit="s"))
    report("budget", goals, rows)


if __name__ == "__main__":
    main()

"""Where the CPU stops being faster, on a simulated GPU whose knobs and log say where that is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from .harness import Run, Simgpu

WIDTH = 256
GRID = [4 * 2**step for step in range(13)]
"""Rows at which both devices are timed by hand."""
WITHIN = 2.0
"""On a machine that does other things as well; benchmarks/crossover.py holds it to 1.5."""


def compared(probe: Any, width: int, grid: list[int], budget: float) -> Any:
    import time

    import tensorflow as tf

    import tfdiag

    def layer(x: Any, w: Any) -> Any:
        return tf.matmul(x, w)

    with tf.device("/CPU:0"):
        w = tf.random.normal((width, width))
        x = tf.random.normal((grid[2], width))
    found = tfdiag.compare_devices(layer, x, w, budget=budget)

    host = {}
    with tf.device("/GPU:0"):
        there = tf.identity(w)
    for rows in grid:
        with tf.device("/CPU:0"):
            mine = tf.random.normal((rows, width))
            tf.matmul(mine, w)
            taken = []
            for _ in range(40):
                begin = time.perf_counter()
                tf.matmul(mine, w)
                taken.append(time.perf_counter() - begin)
        host[rows] = sorted(taken)[len(taken) // 4]
        with tf.device("/GPU:0"):
            theirs = tf.identity(mine)
            tf.reduce_sum(theirs).numpy()  # a copy that is under way would be in the calls
            for _ in range(12):
                probe.mark(f"call {rows}")
                tf.matmul(theirs, there)
                probe.mark("returned")
                time.sleep(0.002)
    probe.mark("end")

    def fails(x: Any) -> Any:
        if "GPU" in tf.zeros(()).device:
            raise RuntimeError("not on this one")
        return x + 1.0

    half = tfdiag.compare_devices(fails, x, budget=1)

    import numpy as np

    with tf.Graph().as_default() as graph:
        given = tf.compat.v1.placeholder(tf.float32, (None, width))
        weights = tf.compat.v1.get_variable("weights", (width, width))
        product = tf.matmul(given, weights)
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(weights.initializer)
            script = tfdiag.compare_devices(
                lambda value: session.run(product, {given: value}), np.ones((8, width), "float32"), budget=3
            )
    return {
        "found": found.to_dict(),
        "text": str(found),
        "host": host,
        "half": half.to_dict(),
        "half text": str(half),
        "script": script.to_dict(),
    }


def gpu_seconds(run: Run, rows: int) -> float:
    """What a call takes by the log: from the call until its kernel has ended."""
    log = run.truth
    begins = np.array([at for name, at in log.marks if name == f"call {rows}"])[2:]
    kernels = log.where((log.kind == "kernel") & (log.name == "MatMul"))
    ends = np.sort(kernels.t1)
    return float(np.quantile(ends[np.searchsorted(ends, begins)] - begins, 0.25)) * 1e-9


def true_crossing(run: Run, grid: list[int]) -> float:
    """Rows at which the hand-timed CPU and the log's GPU take the same."""
    gain = [math.log(run.result["host"][str(rows)] / gpu_seconds(run, rows)) for rows in grid]
    turns = [index for index in range(1, len(grid)) if gain[index - 1] <= 0 < gain[index]]
    assert turns, f"the CPU is not overtaken in truth: {dict(zip(grid, gain, strict=True))}"
    # Of several turns, which only noise makes, the one with fewest sizes on its wrong side.
    turn = max(turns, key=lambda index: sum(gain[index:]) - sum(gain[:index]))
    part = -gain[turn - 1] / (gain[turn] - gain[turn - 1])
    return float(grid[turn - 1] * (grid[turn] / grid[turn - 1]) ** part)


def test_the_crossing_is_that_of_the_log(simgpu: Simgpu) -> None:
    """Near enough; what transfers add moves it up; a device that fails does not end the others."""
    knobs = {"launch_us": 1000, "compute": 0, "copy_us": 300}
    run = simgpu(compared, WIDTH, GRID, 6.0, preset="slow bus", knobs=knobs)
    found, text = run.result["found"], run.result["text"]
    (crossing,) = found["crossings"]
    true = true_crossing(run, GRID)
    assert "missing" not in crossing["rows"], text
    assert 1 / WITHIN < crossing["rows"]["value"] / true < WITHIN, f"{true} rows in truth\n{text}"
    moved = crossing["with_transfers"]
    assert "missing" in moved or moved["value"] > crossing["rows"]["value"]

    host, gpu = found["devices"]
    assert (host["ran_on"], gpu["ran_on"]) == (["/CPU:0"], ["/GPU:0"])
    assert gpu["fixed"]["value"] == pytest.approx(gpu_seconds(run, GRID[0]), rel=0.3)
    # A launch holds the host; the copies of three hundred microseconds are in the transfers.
    assert gpu["returns"]["value"] > 0.9e-3
    assert gpu["back"]["value"] > 0.3e-3
    assert gpu["there"]["value"] > 0.6e-3
    assert found["notes"] == []

    ok, failed = run.result["half"]["devices"]
    assert "not on this one" in failed["failed"]
    assert ok["call"]["value"] > 0
    assert "/GPU:0 failed" in run.result["half text"]

    # A script of TensorFlow 1, whose graph was copied to each device: a launch and a kernel, or neither.
    script = run.result["script"]
    here, there = script["devices"]
    assert here["fixed"]["value"] < 1e-3 < there["fixed"]["value"], script
    assert any("a copy of it ran on /CPU:0 and /GPU:0" in note for note in script["notes"]), script["notes"]
    assert not any("kernel" in note for note in script["notes"]), script["notes"]

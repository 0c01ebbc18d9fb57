"""A diagnosis whose step is faster on the CPU, on a simulated GPU that is slow to launch."""

from __future__ import annotations

import math
import statistics
from typing import Any

from .harness import Simgpu

ROWS, WIDTH, UNITS, LAYERS = 32, 256, 256, 2
GRID = [ROWS, *(256 * 2**step for step in range(5))]
BUDGET_S = 20.0
WITHIN = 2.0
"""On a machine that does other things as well; benchmarks/crossover.py holds it to 1.5."""


def diagnosed(
    probe: Any, rows: int, width: int, units: int, layers: int, grid: list[int], budget: float
) -> Any:
    import statistics
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    import tfdiag
    from tests.traces_left import leaves_no_trace

    def make() -> Any:
        keras.utils.set_random_seed(1)
        hidden = [keras.layers.Dense(units, "relu") for _ in range(layers)]
        model = keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        return model

    def batch(count: int) -> Any:
        rng = np.random.default_rng(0)
        return rng.standard_normal((count, width)).astype("float32"), np.zeros((count, 1), "float32")

    dataset = tf.data.Dataset.from_tensors(batch(rows)).repeat(3000)
    model = make()
    model.optimizer.build(model.trainable_variables)
    with leaves_no_trace(model, dataset=dataset):
        report = tfdiag.diagnose(model, dataset, budget=budget, verify=False, steps=200)
    found = [finding for finding in report.to_dict()["findings"] if finding["check"] == "better-on-cpu"]

    # By turns: a machine that is slow for a second is so on both devices and at every size.
    timed: dict[tuple[str, int], tuple[Any, Any, list[float]]] = {}
    for device in ("/CPU:0", "/GPU:0"):
        with tf.device(device if device == "/CPU:0" else None):
            model = make()
            for count in grid:
                iterator = iter(tf.data.Dataset.from_tensors(batch(count)).repeat())
                model.train_function = None
                model.make_train_function()
                timed[device, count] = model.train_function, iterator, []
    turns, warm_up = 24, 3
    for turn in range(turns):
        for (device, _), (step, iterator, taken) in timed.items():
            with tf.device(device if device == "/CPU:0" else None):
                begin = time.perf_counter()
                step(iterator)["loss"].numpy()
                if turn >= warm_up:
                    taken.append(time.perf_counter() - begin)
    truth = {
        f"{device} {count}": statistics.median(taken) for (device, count), (_, _, taken) in timed.items()
    }
    from tfdiag.analyse.devices import crossing
    from tfdiag.collect.step_devices import measure_step
    from tfdiag.compat.devices import computing_devices
    from tfdiag.model.codec import encode

    data = tf.data.Dataset.from_tensors(batch(rows))
    directly = measure_step(
        make(),
        next(iter(data)),
        data.element_spec,
        rows,
        computing_devices(),
        until=time.perf_counter() + budget / 2,
        clock=time.perf_counter,
    )
    at = crossing(*directly.runs)
    hidden = [keras.layers.Dense(1024, "relu") for _ in range(3)]
    large = keras.Sequential([keras.Input((1024,)), *hidden, keras.layers.Dense(1)])
    large.compile("sgd", "mse", jit_compile=False)
    one = np.zeros((512, 1024), "float32"), np.zeros((512, 1), "float32")
    data = tf.data.Dataset.from_tensors(one)
    until = time.perf_counter() + 1.5
    worth_it = measure_step(
        large,
        next(iter(data)),
        data.element_spec,
        512,
        computing_devices(),
        until=until,
        clock=time.perf_counter,
    )
    return {
        "finding": found[0] if found else None,
        "suggestions": [each for each in report.to_dict()["suggestions"] if each["check"] == "better-on-cpu"],
        "not_run": dict(report.not_run),
        "steps": report.to_dict()["measurements"]["step_devices"],
        "phases": report.measurements.overhead.phases_s,
        "total": report.measurements.overhead.total_s,
        "text": str(report),
        "truth": truth,
        "crossing": encode(at),
        "worth it": encode(worth_it),
    }


def true_crossing(truth: dict[str, float], grid: list[int]) -> float:
    """Give the batch at which hand-timed steps take the same on both devices."""
    gain = [math.log(truth[f"/CPU:0 {rows}"] / truth[f"/GPU:0 {rows}"]) for rows in grid]
    turns = [index for index in range(1, len(grid)) if gain[index - 1] <= 0 < gain[index]]
    # Of several turns, which only noise makes, the one with fewest sizes on its wrong side.
    turn = max(turns, key=lambda index: sum(gain[index:]) - sum(gain[:index]))
    part = -gain[turn - 1] / (gain[turn] - gain[turn - 1])
    return float(grid[turn - 1] * (grid[turn] / grid[turn - 1]) ** part)


def test_better_on_cpu_with_the_batch_from_which_it_is_not(simgpu: Simgpu) -> None:
    """Fires where launches take most of the step; ratio and batch are those of hand-timed steps."""
    job = (ROWS, WIDTH, UNITS, LAYERS)
    run = simgpu(diagnosed, *job, GRID, BUDGET_S, preset="slow launch", knobs={"launch_us": 60, "compute": 0})
    said = run.result
    assert said["finding"] is not None, said["text"]
    evidence = {each["name"]: each["quantity"] for each in said["finding"]["evidence"]}
    ratio = said["truth"][f"/GPU:0 {ROWS}"] / said["truth"][f"/CPU:0 {ROWS}"]
    assert 1 / WITHIN < evidence["times as fast on the CPU"]["value"] / ratio < WITHIN, said["text"]
    # How many sizes a diagnosis has time for depends on the machine; with time enough it is this.
    assert "value" in said["crossing"], said["crossing"]
    batch = said["crossing"]["value"]
    assert 1 / WITHIN < batch / true_crossing(said["truth"], GRID) < WITHIN, (
        f"{said['truth']}\n{said['text']}"
    )
    assert "/CPU:0" in said["suggestions"][0]["code"]
    assert "The step on each device" in said["text"]
    assert said["total"] < 1.1 * BUDGET_S

    # A step that is worth its launches, in the same process.
    host, device = (statistics.median(each["sizes"][-1]["call_s"]) for each in said["worth it"]["runs"])
    assert device < host

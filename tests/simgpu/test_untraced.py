"""Without a trace: estimates of the step held against the GPU's log, and the callback beside the caller's own fit."""

from __future__ import annotations

from typing import Any

import pytest

from .harness import Simgpu
from .test_diagnosis import truth_of

WITHIN = 0.12
"""Of the step."""


def untraced(probe: Any, rows: int, width: int, units: int, layers: int, seconds: float) -> Any:
    """Diagnose a job without a trace; then train it with the callback, and once more until a batch fails."""
    import json
    import threading
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    import tfdiag

    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Dense(units, "relu") for _ in range(layers)]
    model = keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x = np.random.default_rng(0).standard_normal((rows, width)).astype("float32")
    data = tf.data.Dataset.from_tensors((x, np.zeros((rows, 1), "float32"))).repeat(5000)
    model.optimizer.build(model.trainable_variables)
    state = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    report = tfdiag.diagnose(model, data, budget=14, steps=50, verify=False, trace=False, progress=probe.mark)
    now = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    kept = all(np.array_equal(one, other) for one, other in zip(state, now, strict=True))
    kept = kept and model.train_function is None

    def watchers() -> list[str]:
        return sorted(t.name for t in threading.enumerate() if t.name.startswith("tfdiag"))

    class Ends(keras.callbacks.Callback):
        async_safe = True

        def __init__(self, fails: bool) -> None:
            super().__init__()
            self.fails, self.seen = fails, []

        def on_train_begin(self, logs: Any = None) -> None:
            self.begin = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.fails and batch == 2:
                raise RuntimeError("a disk is full")
            if not self.fails and time.perf_counter() - self.begin > seconds:
                self.seen, self.model.stop_training = watchers(), True

    callback, ends = tfdiag.DiagnosticsCallback(), Ends(False)
    model.fit(data, verbose=0, callbacks=[callback, ends])
    after, watched = watchers(), callback.report()
    raised, ended = "", 0.0
    try:
        model.fit(data, verbose=0, callbacks=[tfdiag.DiagnosticsCallback(), Ends(True)])
    except RuntimeError as error:
        raised, ended = str(error), time.perf_counter()
    for thread in threading.enumerate():
        if thread.name.startswith("tfdiag"):
            thread.join(30)
    segments = report.step.segments.items()
    return {
        "kept": kept,
        "verdict": report.verdict.code,
        "step": report.step.mean_s,
        "origins": {name: getattr(part, "origin", "") for name, part in segments},
        "segments": {name: getattr(part, "value", None) for name, part in segments},
        "ends": {name: (getattr(part, "low", None), getattr(part, "high", None)) for name, part in segments},
        "failed": [reason for _, reason in report.not_run if "the check failed" in reason],
        "text": f"{report}\n{report.measurements.estimates}\n{watched}",
        "during": ends.seen,
        "after": after,
        "raised": raised,
        "ended_s": time.perf_counter() - ended,
        "left": watchers(),
        "watched": json.loads(watched.to_json()),
    }


def test_without_a_trace(simgpu: Simgpu) -> None:
    """Copy and compute are told as estimates; the callback finds the heat, and its threads end with the fit."""
    knobs = {"pageable_gbps": 0.05, "gflops": 60, "compute": 0}
    nvml = {"throttle": 0x40, "temperature_c": 91, "sm_mhz": 700}
    run = simgpu(untraced, 256, 1024, 512, 4, 2.5, knobs=knobs, nvml=nvml)
    said, truth = run.result, truth_of(run, 256 * 1024 * 4, ("reading the input without the model",))

    assert said["failed"] == []
    assert said["kept"]
    assert said["verdict"] == "transfer-bound", said["text"]
    segments, step = said["segments"], said["step"]
    for name in ("host_to_device", "device_compute"):
        assert said["origins"][name] == "estimated"
        assert segments[name] / step == pytest.approx(truth[name] / truth["step"], abs=WITHIN), said["text"]
        low, high = said["ends"][name]
        assert low <= segments[name] <= high
    assert sum(part for part in segments.values() if part is not None) == pytest.approx(step)

    assert said["during"] == ["tfdiag-gpu", "tfdiag-host"]
    assert said["after"] == said["left"] == []
    assert said["raised"] == "a disk is full"
    assert said["ended_s"] < 1.0  # a period, and what a busy machine adds
    measured = said["watched"]["measurements"]
    (gpu,) = measured["gpu"]["gpus"]
    assert gpu["tensorflow"] == "GPU:0"
    assert gpu["samples"]["temperature"]["values"][0] == 91
    assert measured["machine"]["machine_busy"]["values"][-1] > 0
    findings = {finding["check"]: finding for finding in said["watched"]["findings"]}
    assert "heat" in findings["throttled-gpu"]["title"], said["text"]
    undecided = {check for check, _ in said["watched"]["not_run"]}
    assert not undecided & {"shared-gpu", "slow-link"}

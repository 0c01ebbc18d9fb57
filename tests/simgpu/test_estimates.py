"""Without a trace: what copies and a longer batch tell of the step, held against the simulated GPU's log."""

from __future__ import annotations

from typing import Any

import pytest

from .harness import Simgpu
from .test_diagnosis import truth_of

WITHIN = 0.12
"""Of the step."""


def untraced(probe: Any, rows: int, width: int, units: int, layers: int) -> Any:
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
    report = tfdiag.diagnose(model, data, budget=9, trace=False, progress=probe.mark)
    now = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    return {
        "kept": all(np.array_equal(one, other) for one, other in zip(state, now, strict=True))
        and model.train_function is None,
        "verdict": report.verdict.code,
        "step": report.step.mean_s,
        "origins": {name: getattr(part, "origin", "") for name, part in report.step.segments.items()},
        "segments": {name: getattr(part, "value", None) for name, part in report.step.segments.items()},
        "ends": {
            name: (getattr(part, "low", None), getattr(part, "high", None))
            for name, part in report.step.segments.items()
        },
        "failed": [reason for _, reason in report.not_run if "the check failed" in reason],
        "text": f"{report}\n{report.measurements.estimates}",
    }


def test_copies_and_compute_without_a_trace(simgpu: Simgpu) -> None:
    """A copy as long as the compute: both are told, as estimates with their ends, and nothing is left behind."""
    knobs = {"pageable_gbps": 0.05, "gflops": 60, "compute": 0}
    run = simgpu(untraced, 256, 1024, 512, 4, knobs=knobs)
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

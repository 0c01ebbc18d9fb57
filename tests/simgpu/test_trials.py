"""What is suggested for a device is tried on the simulated GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pace import enough

from .harness import Simgpu


def diagnosed(probe: Any, budget: float) -> Any:
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    import tfdiag

    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Dense(256, "relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((2048,)), *hidden, keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    arrays = np.full((256, 2048), 0.5, "float32"), np.zeros((256, 1), "float32")
    data = tf.data.Dataset.from_tensors(arrays).repeat()

    class Steps(keras.callbacks.Callback):
        async_safe = True

        def __init__(self) -> None:
            super().__init__()
            self.begins: list[float] = []

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.begins.append(time.perf_counter())

    def step_of(dataset: Any) -> float:
        steps = Steps()
        model.fit(dataset, steps_per_epoch=120, verbose=0, callbacks=[steps])
        return float(np.median(np.diff(steps.begins)[40:]))

    ahead = data.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))
    before, after = (
        float(np.median(times))
        for times in zip(*[(step_of(data), step_of(ahead)) for _ in range(3)], strict=True)
    )
    report = tfdiag.diagnose(model, data, budget=budget, steps=120)
    ours = [s for s in (*report.suggestions, *report.rejected) if s.id.endswith("/prefetch-to-device")]
    return {
        "really": before / after,
        "ours": [(one.check, one.status, getattr(one.measured, "value", None)) for one in ours],
        "text": str(report),
    }


def test_copies_that_could_be_hidden_are_hidden_in_a_trial(simgpu: Simgpu) -> None:
    """A batch copied while the step before computes: confirmed with the gain that `fit` shows."""
    found = simgpu(
        diagnosed, enough(40.0), preset="slow bus", knobs={"gflops": 60, "compute": 0}, timeout=240
    ).result
    ((_, status, gain), *_) = found["ours"]
    assert status == "confirmed", found["text"]
    assert gain == pytest.approx(found["really"], rel=0.2), found["text"]
    assert gain > 1.05

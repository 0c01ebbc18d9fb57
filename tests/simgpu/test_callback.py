"""The callback beside a simulated GPU: it sees what a diagnosis sees, and its threads end with the fit."""

from __future__ import annotations

from typing import Any

from .harness import Simgpu


def watched(_probe: Any, seconds: float) -> dict[str, Any]:
    """Train for a while with the callback, and once more until a batch fails."""
    import json
    import threading
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    import tfdiag

    def names() -> list[str]:
        return sorted(t.name for t in threading.enumerate() if t.name.startswith("tfdiag"))

    class Ends(keras.callbacks.Callback):
        async_safe = True

        def __init__(self, error: bool) -> None:
            super().__init__()
            self.error, self.seen = error, []

        def on_train_begin(self, logs: Any = None) -> None:
            self.begin = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if not self.error and time.perf_counter() - self.begin > seconds:
                self.seen = names()
                self.model.stop_training = True
            if self.error and batch == 20:
                raise RuntimeError("a disk is full")

    model = keras.Sequential([keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    arrays = np.ones((256, 512), "f"), np.ones((256, 1), "f")
    data = tf.data.Dataset.from_tensors(arrays).repeat().prefetch(2)
    callback, ends = tfdiag.DiagnosticsCallback(), Ends(False)
    model.fit(data, steps_per_epoch=100_000, verbose=0, callbacks=[callback, ends])
    after = names()
    report = callback.report()

    second, raised = tfdiag.DiagnosticsCallback(), ""
    begin = 0.0
    try:
        model.fit(data, steps_per_epoch=100_000, verbose=0, callbacks=[second, Ends(True)])
    except RuntimeError as error:
        raised, begin = str(error), time.perf_counter()
    for thread in threading.enumerate():
        if thread.name.startswith("tfdiag"):
            thread.join(30)
    return {
        "during": ends.seen, "after": after, "raised": raised, "ended_s": time.perf_counter() - begin,
        "left": names(), "report": json.loads(report.to_json()), "text": str(report),
    }  # fmt: skip


def test_the_callback_sees_what_is_wrong_with_the_gpu(simgpu: Simgpu) -> None:
    """Heat is found from the samples of the caller's own fit; threads end with it, and when it raises."""
    nvml = {"throttle": 0x40, "temperature_c": 91, "sm_mhz": 900}
    said = simgpu(watched, 2.5, preset="small GPU", nvml=nvml).result
    assert said["during"] == ["tfdiag-gpu", "tfdiag-host"]
    assert said["after"] == said["left"] == []
    assert said["raised"] == "a disk is full"
    assert said["ended_s"] < 1.0  # a period and what a busy machine adds
    (gpu,) = said["report"]["measurements"]["gpu"]["gpus"]
    assert gpu["tensorflow"] == "GPU:0"
    assert gpu["samples"]["temperature"]["values"][0] == 91
    assert said["report"]["measurements"]["gpu"]["cost"]["value"] < 0.05
    findings = {finding["check"]: finding for finding in said["report"]["findings"]}
    assert "heat" in findings["throttled-gpu"]["title"], said["text"]
    decided = {check for check, _ in said["report"]["not_run"]}
    assert not decided & {"shared-gpu", "slow-link"}
    assert said["report"]["measurements"]["machine"]["machine_busy"]["values"][-1] > 0

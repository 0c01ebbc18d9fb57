"""Placement on the simulated GPU: what is pinned, what has no kernel, and a model in the wrong place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pace import enough

from .harness import Simgpu


def diagnosed(probe: Any, budget: float) -> Any:
    import keras
    import numpy as np
    import tensorflow as tf

    import tfdiag
    from tfdiag.analyse.analysis import analyse
    from tfdiag.analyse.step_devices import OtherDevice, other_device

    class Pinned(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            with tf.device("/CPU:0"):
                return tf.cumsum(x, axis=1)

    def make(*middle: Any) -> Any:
        layers = [keras.layers.Dense(512, "relu", name="first"), *middle, keras.layers.Dense(8, name="last")]
        model = keras.Sequential([keras.Input((256,)), *layers])
        model.compile("sgd", "mse", jit_compile=False)
        return model

    rng = np.random.default_rng(0)
    arrays = rng.random((256, 256), "float32"), rng.random((256, 8), "float32")
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(128, drop_remainder=True).repeat(100)
    answers = {}
    with tf.device("/CPU:0"):
        weights = make()
    jobs = {"pinned": make(Pinned(name="pinned")), "healthy": make(), "weights": weights, "whole": weights}
    for name, model in jobs.items():
        with tf.device("/CPU:0" if name == "whole" else None):
            report = tfdiag.diagnose(model, dataset, budget=budget, steps=200, verify=False)
        other = other_device(analyse(report.measurements))
        answers[name] = {
            "faster_here": other.ratio.value if isinstance(other, OtherDevice) else None,
            "findings": {finding.check: finding.cost.value for finding in report.findings},
            "where": {finding.check: finding.where for finding in report.findings},
            "placement": report.to_dict()["measurements"]["placement"],
            "not_run": dict(report.not_run),
            "text": str(report),
        }
    return answers


@pytest.fixture(scope="module")
def answers(simgpu: Simgpu) -> Any:
    """A job with an op on the CPU in its middle, the same without, with its weights and all on the CPU."""
    return simgpu(diagnosed, enough(10.0), preset="slow bus", knobs={"gflops": 200}).result


ABOUT = (
    "cpu-op-in-gpu-step",
    "cross-device-copies",
    "model-on-cpu",
    "python-function-in-step",
    "text-op-in-step",
)


def test_an_op_in_the_middle_is_named_with_its_copies(answers: Any) -> None:
    """Layer, reason, both directions with their bytes, and what it costs."""
    pinned = answers["pinned"]
    assert "ops" in pinned["placement"], pinned["placement"]
    ops = [op for op in pinned["placement"]["ops"] if op["kind"] == "host"]
    assert {(op["layer"], op["reason"]) for op in ops if op["op"] == "Cumsum"} == {("pinned", "pinned")}
    assert {op["part"] for op in ops if op["op"] == "Cumsum"} == {"forward"}
    inside = [copy for copy in pinned["placement"]["copies"] if copy["purpose"] == "inside"]
    assert {copy["direction"] for copy in inside} == {"device to host", "host to device"}
    assert {copy["bytes"]["value"] for copy in inside} == {128 * 512 * 4.0}
    assert "cpu-op-in-gpu-step" in pinned["findings"]
    assert "pinned" in pinned["where"]["cpu-op-in-gpu-step"]
    assert "cross-device-copies" in pinned["findings"]
    assert "Where ops run" in pinned["text"]


def test_a_healthy_job_has_no_finding_about_placement(answers: Any) -> None:
    """All of it runs on the GPU, the batch goes in, and nothing crosses inside."""
    healthy = answers["healthy"]
    assert not set(ABOUT) & set(healthy["findings"])
    assert not set(ABOUT) & set(healthy["not_run"])
    assert {copy["purpose"] for copy in healthy["placement"]["copies"]} <= {"input", "output"}
    assert [op for op in healthy["placement"]["ops"] if op["kind"] == "host"] == []
    held = {each["device"]: each["bytes"] for each in healthy["placement"]["variables"]}
    assert held["/GPU:0"] >= 4 * (256 * 512 + 512 * 8)


def test_weights_on_the_cpu_are_a_finding(answers: Any) -> None:
    """Weights go to the GPU and updates come back; what they cost is the share of their copies."""
    weights = answers["weights"]
    assert 0.05 < weights["findings"]["model-on-cpu"] < 1
    assert weights["where"]["model-on-cpu"].endswith("first/kernel:0")
    copies = [copy for copy in weights["placement"]["copies"] if copy["purpose"] == "variable"]
    large = {copy["direction"] for copy in copies if copy["bytes"]["value"] == 256 * 512 * 4.0}
    assert large == {"host to device", "device to host"}
    assert "cpu-op-in-gpu-step" not in weights["findings"]


def test_a_step_under_tf_device_is_a_finding(answers: Any) -> None:
    """A tf.device around the diagnosis is followed, as fit would; then all of the step is on the CPU.

    Which is a finding unless the step was measured on both, and is where it is faster.
    """
    whole = answers["whole"]
    assert {each["device"] for each in whole["placement"]["devices"]} == {"/CPU:0"}
    assert whole["placement"]["copies"] == []
    better_here = whole["faster_here"] is not None and whole["faster_here"] >= 1
    assert whole["where"].get("model-on-cpu") == (None if better_here else "the model")
    assert not (set(ABOUT) - {"model-on-cpu"}) & set(whole["findings"])


def placed_on_both(probe: Any) -> Any:
    import tempfile
    import time
    from pathlib import Path

    import keras
    import tensorflow as tf

    from tfdiag.collect.placement import measure_placement
    from tfdiag.compat.profiler import Tracer
    from tfdiag.model.codec import encode

    class Wide(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            wide = tf.cast(x, tf.float64)
            return tf.cast(tf.linalg.matmul(wide, wide, transpose_b=True), tf.float32)

    class Python(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return tf.ensure_shape(tf.numpy_function(lambda y: y * 2, [x], tf.float32), [16, 16])

    def make(*layers: Any) -> Any:
        model = keras.Sequential([keras.Input((32,), batch_size=16), *layers, keras.layers.Dense(4)])
        model.compile("adam", "mse", jit_compile=False)
        return model

    dataset = tf.data.Dataset.from_tensors((tf.ones((16, 32)), tf.ones((16, 4)))).repeat()

    def place(model: Any) -> Any:
        model.make_train_function()
        model.train_function(iter(dataset))
        folder = Path(tempfile.mkdtemp(dir="."))
        options = {"first_call_s": 0.0, "call_s": 0.0, "clock": time.perf_counter}
        found = measure_placement(
            model, lambda: dataset, batch=16, tracer=Tracer(folder), until=time.perf_counter() + 60, **options
        )
        return encode(found)

    with tf.device("/CPU:0"):
        weights = make(keras.layers.Dense(64))
    answers = {"no kernel": place(make(keras.layers.Dense(16), Wide(name="wide"), Python(name="python")))}
    answers["weights"] = place(weights)
    return answers


def test_why_and_where(simgpu: Simgpu) -> None:
    """A type without a kernel, a Python function, weights on the CPU."""
    answers = simgpu(placed_on_both).result

    ops = {op["op"]: op for op in answers["no kernel"]["ops"]}
    wide = next(op for name, op in ops.items() if "MatMul" in name)
    assert (wide["reason"], wide["layer"], wide["dtype"]) == ("no kernel for this type", "wide", "float64")
    python = next(op for op in ops.values() if op["kind"] == "python")
    assert python["layer"] == "python"
    assert {time["kind"] for time in answers["no kernel"]["times"]} >= {"host", "python"}

    weights = answers["weights"]
    assert "/CPU:0" in {each["device"] for each in weights["variables"]}
    assert {copy["purpose"] for copy in weights["copies"]} >= {"variable"}
    assert max(weights["devices"], key=lambda each: each["ops"])["device"] == "/GPU:0"
    assert weights["copy_times"]

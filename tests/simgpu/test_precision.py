"""Types and shapes on a simulated GPU with Tensor Cores, which do what is asked of them four times as fast."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pace import enough

from .harness import Simgpu

MACHINE = {"gflops": 50, "tensor_cores": 4, "compute": 0}


def diagnosed(probe: Any, budget: float, policy: str, units: int) -> Any:
    import keras
    import numpy as np
    import tensorflow as tf

    import tfdiag

    # TensorFloat-32 would let float32 use Tensor Cores, on a GPU as young as this.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    hidden = [keras.layers.Dense(units, "relu", dtype=policy) for _ in range(3)]
    model = keras.Sequential([keras.Input((768,)), *hidden, keras.layers.Dense(1, dtype="float32")])
    model.compile("sgd", "mse", jit_compile=False)
    arrays = np.ones((256, 768), "float32"), np.zeros((256, 1), "float32")
    report = tfdiag.diagnose(
        model, tf.data.Dataset.from_tensors(arrays).repeat(), budget=budget, steps=60, verify=False
    )
    compute = report.measurements.compute
    return {
        "findings": {finding.check: finding.cost.value for finding in report.findings},
        "capability": getattr(compute.capability, "value", None),
        "source": getattr(compute.capability, "source", None),
        "rates": {f"{peak.dtype} {peak.aligned}": peak.rate.value / 1e9 for peak in compute.peaks},
        "step": report.step.mean_s,
        "text": str(report),
    }


@pytest.mark.parametrize(
    ("policy", "units", "expected", "slow"),
    [
        ("float32", 768, "full-precision", "float32 True"),
        ("mixed_float16", 777, "unaligned-shapes", "float16 False"),
        ("mixed_float16", 768, "", ""),
    ],
)
def test_tensor_cores_that_idle_are_found(
    simgpu: Simgpu, policy: str, units: int, expected: str, slow: str
) -> None:
    """What the step would be without the cause is what the machine is made for; without one there is none."""
    found = simgpu(diagnosed, enough(30.0), policy, units, knobs=MACHINE, timeout=240).result
    causes = {"full-precision", "unaligned-shapes"} & set(found["findings"])
    assert causes == ({expected} if expected else set()), found["text"]
    # TensorFlow knows the capability of its own CUDA devices only; the driver knows that of all.
    assert found["capability"] >= 7.0
    assert found["source"] == "NVML"
    if expected:
        # What a short benchmark sees is what the machine can do, less what the host takes to ask for it.
        slow_rate, fast_rate = found["rates"][slow], found["rates"]["float16 True"]
        assert 35 < slow_rate < 55
        assert 2 * slow_rate < fast_rate < 220
        known = 3 * 2 * 256 * 768 * 768 * 3 / 50e9 * (1 - 1 / 4) / found["step"]
        assert 0.6 * known < found["findings"][expected] < 1.2 * known, found["text"]

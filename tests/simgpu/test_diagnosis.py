"""A diagnosis on the simulated GPU, held against its log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .harness import Run, Simgpu
from .truth import Truth, overlap_ns, union_ns


def diagnosed(
    probe: Any,
    rows: int,
    width: int,
    units: int,
    layers: int,
    fill: float = 0.0,
    wait_s: float = 0.0,
    once: bool = False,
) -> Any:
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    import tfdiag

    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Dense(units, "relu") for _ in range(layers)]
    model = keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x = np.full((rows, width), fill, "float32")
    data = tf.data.Dataset.from_tensors((x, np.zeros((rows, 1), "float32"))).repeat(5000)

    def slow(value: Any) -> Any:
        time.sleep(wait_s)
        return value

    def batches() -> Any:
        while True:
            yield slow(x), np.zeros((rows, 1), "float32")

    if once:
        data = batches()
    elif wait_s:
        data = data.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(slow, [x], x.dtype), x.shape), y))
    model.optimizer.build(model.trainable_variables)
    state = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    report = tfdiag.diagnose(model, data, budget=10, verify=False, progress=probe.mark)
    probe.mark("end")
    now = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    step = report.step
    return {
        "kept": all(np.array_equal(one, other) for one, other in zip(state, now, strict=True))
        and model.train_function is None,
        "verdict": report.verdict.code,
        "headline": report.verdict.headline,
        "step": step.mean_s,
        "segments": {name: getattr(part, "value", None) for name, part in step.segments.items()},
        "findings": [finding.check for finding in report.findings],
        "failed": [reason for _, reason in report.not_run if "the check failed" in reason],
        "trace": str(report.measurements.device)[:2000],
        "text": str(report),
    }


def truth_of(
    run: Run,
    batch_bytes: int,
    ends: tuple[str, ...] = ("tracing the device", "reading the input without the model"),
) -> dict[str, float]:
    """What a step of the live run consisted of, by the log: seconds. It ended with the first of these marks."""
    live = run.truth.between("running the job as it is", min(ends, key=run.truth.moment))
    copies = live.of("h2d")
    begins = copies.t0[copies.bytes == batch_bytes]
    begins = begins[len(begins) // 3 :]
    steps = len(begins) - 1
    inner = live.where((live.t0 >= begins[0]) & (live.t0 < begins[-1]))
    kernels, to, back = inner.of("kernel"), inner.of("h2d"), inner.of("d2h")
    seconds = {
        "device_compute": kernels.busy_ns,
        "host_to_device": to.busy_ns - overlap_ns(to, kernels),
        "device_to_host": _alone(back, kernels, to),
        "step": int(begins[-1] - begins[0]),
    }
    return {name: value * 1e-9 / steps for name, value in seconds.items()}


def _alone(one: Truth, *others: Truth) -> int:
    start = np.concatenate([each.t0 for each in others])
    end = np.concatenate([each.t1 for each in others])
    both = union_ns(np.concatenate((start, one.t0)), np.concatenate((end, one.t1)))
    return both - union_ns(start, end)


SCENARIOS: dict[str, tuple[str, dict[str, float], tuple[Any, ...], str, set[str]]] = {
    # Each has preset, knobs, the job (see `diagnosed`), verdict and findings.
    "compute": ("default", {"gflops": 60, "compute": 0}, (256, 512, 512, 4), "compute-bound", set()),
    "slow bus": (
        "slow bus", {"compute": 0}, (256, 4096, 64, 2, 200.0), "transfer-bound",
        {"oversized-transfer", "pageable-transfer", "wide-dtype-transfer"},
    ),
    "slow launch": ("slow launch", {}, (16, 64, 64, 6), "launch-bound", {"many-small-kernels"}),
    "slow input": (
        "default", {"gflops": 60, "compute": 0}, (256, 512, 256, 2, 0.0, 0.02), "input-bound", {"idle-gpu"},
    ),
    "input that is read once": (
        "default", {"gflops": 60, "compute": 0}, (256, 512, 256, 2, 0.0, 0.02, True), "input-bound", set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_segments_are_those_of_the_log(simgpu: Simgpu, name: str) -> None:
    """Verdict, findings and what the device did in a step, within a twentieth of the step."""
    preset, knobs, job, verdict, findings = SCENARIOS[name]
    run = simgpu(diagnosed, *job, preset=preset, knobs=knobs)
    said, truth = run.result, truth_of(run, int(job[0] * job[1] * 4))
    assert said["failed"] == []
    assert said["kept"]
    assert said["verdict"] == verdict, said["text"]
    assert findings <= set(said["findings"]), said["text"]
    segments = said["segments"]
    assert sum(part for part in segments.values() if part is not None) == pytest.approx(said["step"])
    for segment in ("device_compute", "host_to_device", "device_to_host"):
        assert segments[segment] is not None, said["trace"]
        assert segments[segment] / said["step"] == pytest.approx(truth[segment] / truth["step"], abs=0.05), (
            segment
        )
    busy = ("device_compute", "host_to_device", "device_to_host")
    idle = sum(part for segment, part in segments.items() if part is not None and segment not in busy)
    idle_truth = truth["step"] - sum(truth[segment] for segment in busy)
    assert idle / said["step"] == pytest.approx(idle_truth / truth["step"], abs=0.05)

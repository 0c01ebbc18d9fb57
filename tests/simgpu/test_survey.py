"""What Keras asks for, the simulated GPU has."""

from __future__ import annotations

from typing import Any

from .harness import Simgpu
from .survey import ARCHITECTURES, KNOWN, OPTIMIZERS

#: One of each kind; `python -m simgpu.survey` goes through all of them.
JOBS = (
    *(f"{build.__name__}/float32" for build in ARCHITECTURES),
    "dense/mixed_float16",
    "conv2d/mixed_bfloat16",
    "attention/mixed_bfloat16",
    *(f"optimizer/{name}" for name in OPTIMIZERS[::5]),
    "loss/huber",
    "metrics",
)


def test_common_jobs_stay_on_the_gpu(simgpu: Simgpu) -> None:
    """Train steps of common layers, optimizers, losses and metrics leave nothing to the CPU but what is known."""

    def train_all(_probe: Any, jobs: list[str]) -> Any:
        import math

        from simgpu import survey

        return [(name, found, math.isfinite(loss)) for name, found, loss in survey.run(jobs)]

    results = simgpu(train_all, JOBS, knobs={"wait": 0}).result
    assert {name for name, *_ in results} == set(JOBS)
    assert [name for name, _, finite in results if not finite] == []
    fallen = {op: nodes[0] for _, found, _ in results for op, nodes in found.items() if op not in KNOWN}
    assert fallen == {}

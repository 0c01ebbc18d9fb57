"""full-precision: Tensor Cores idle in float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, Synthetic
from tests.synthetic_compute import peak, work
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.analyse.analysis import analyse
from tfdiag.checks.compute.full_precision import CHECK
from tfdiag.model.changes import Change
from tfdiag.model.compute import Compute
from tfdiag.model.device import Busiest, DeviceTrace
from tfdiag.model.quantity import Missing


def on_gpu(half: float = 40, flops: float = 0.5, **facts: Any) -> Compute:
    """Give a step of so many GFLOP on a GPU that does 10 GFLOP/s in float32."""
    facts = {"capability": 7.0, **facts}
    return work({"float32": flops}, peak("float32", 10), peak("float16", half), **facts)


def full(compute: Compute | Missing, **parts: Any) -> dict[str, Any]:
    """Give a step of 100 ms that computes all the time."""
    return {"accelerator": True, "compute": 100 * MS, "dispatch": 0.0, "work": compute, **parts}


@pytest.mark.parametrize(("half", "fires"), [(14.9, False), (15.1, True)])
def test_fires_where_float16_is_half_as_fast_again(half: float, fires: bool):
    """What decides is what the GPU showed."""
    assert bool(results(CHECK, **full(on_gpu(half)))) is fires


@pytest.mark.parametrize(("flops", "fires"), [(0.065, False), (0.075, True)])
def test_fires_from_a_twentieth_of_the_step_on(flops: float, fires: bool):
    """Three quarters of what the products take at 10 GFLOP/s would be saved."""
    assert bool(results(CHECK, **full(on_gpu(flops=flops)))) is fires


@pytest.mark.parametrize(
    ("facts", "fires"),
    [
        ({"capability": 6.1}, False),
        ({"capability": 7.0}, True),
        ({"capability": 7.5, "tensor_float_32": True}, True),
        ({"capability": 8.0, "tensor_float_32": True}, False),
        ({"capability": 8.0, "tensor_float_32": None}, False),
        ({"capability": 8.0, "tensor_float_32": False}, True),
    ],
)
def test_tensor_cores_must_be_there_and_idle(facts: dict[str, Any], fires: bool):
    """GPUs before Volta have none; from Ampere on float32 uses them, unless that is switched off."""
    assert bool(results(CHECK, **full(on_gpu(**facts)))) is fires


@pytest.mark.parametrize(
    ("name", "fires"), [("volta_sgemm_128x64_nn", True), ("volta_h884gemm_64x64", False)]
)
def test_kernels_of_tensor_cores_in_the_trace_settle_it(name: str, fires: bool):
    """Whatever the policy says, they were seen at work."""
    trace = DeviceTrace("a trace", "XSpace", busiest=(Busiest(name, "MatMul", "dense", 10, 0.1),))
    measured = replace(Synthetic(**full(on_gpu())).measurements(), device=trace)
    assert bool(list(CHECK.run(analyse(measured)))) is fires


def test_shows_its_numbers():
    """Capability and rates against their thresholds, and the policy as a change."""
    found = only(CHECK, **full(on_gpu()))
    assert evidence(found, "compute capability").relation == "above"
    assert value(found, "the faster over the slower") == pytest.approx(4)
    assert found.finding.cost.value == pytest.approx(0.375)
    (mixed,) = found.suggestions
    assert mixed.changes == (Change("policy", "mixed_float16"),)


@pytest.mark.parametrize(
    "parts",
    [
        full(on_gpu(), accelerator=False),
        full(on_gpu(), wait=400 * MS),
        full(work({"float16": 1}, capability=8.0)),
    ],
    ids=["no GPU", "mostly waiting", "mixed already"],
)
def test_silent_where_it_does_not_matter(parts: dict[str, Any]):
    """Without a GPU, where computing is little of the step, and in mixed precision."""
    assert results(CHECK, **parts) == []


def test_undecided_where_nothing_was_counted_or_measured():
    """Neither is called fast."""
    assert "eager" in not_run(CHECK, **full(Missing("an eager step has no graph")))
    unknown = work({"float32": 1}, capability=7.0, peaks_missing="no time")
    assert "no time" in not_run(CHECK, **full(unknown))

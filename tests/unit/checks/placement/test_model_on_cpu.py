"""model-on-cpu: the step or its weights are on the CPU beside a GPU."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.placements import GPU_STEP, copy, copying, mixed, on_cpu, variables
from tests.unit.checks.running import not_run, only, results
from tfdiag.checks.placement.model_on_cpu import CHECK
from tfdiag.model.quantity import Missing

WEIGHTS = copy("host to device", purpose="variable")


def test_fires_when_the_step_runs_on_the_cpu():
    """Its whole compute is the cost; what the GPU would take is not known."""
    found = only(CHECK, **GPU_STEP, placement=on_cpu())
    assert found.finding.cost.value == pytest.approx(0.99, abs=0.02)
    assert isinstance(found.suggestions[0].predicted, Missing)


@pytest.mark.parametrize(("cpu", "fires"), [(101, True), (99, False)])
def test_most_of_the_ops_decide(cpu: int, fires: bool):
    """A step is where most of its ops are."""
    assert bool(results(CHECK, **GPU_STEP, placement=mixed(cpu=cpu))) is fires


@pytest.mark.parametrize(("compute", "fires"), [(5.6 * MS, True), (4.6 * MS, False)])
def test_a_step_that_hardly_computes_is_no_finding(compute: float, fires: bool):
    """What decides is the share of the step that it computes."""
    job = {"accelerator": True, "compute": compute, "dispatch": 1 * MS, "wait": 99 * MS - compute}
    assert bool(results(CHECK, **job, placement=on_cpu())) is fires


@pytest.mark.parametrize(("seconds", "fires"), [(5.2 * MS, True), (4.9 * MS, False)])
def test_fires_when_weights_cross_the_bus(seconds: float, fires: bool):
    """Weights on the CPU of a step on the GPU cost what their copies take."""
    placement = mixed(
        variables=variables(("/CPU:0", 8_000_000)),
        copies=(WEIGHTS,),
        **copying(("host to device", seconds)),
    )
    assert bool(results(CHECK, **GPU_STEP, placement=placement)) is fires


def test_variables_on_the_gpu_are_where_they_belong():
    """Copies for a variable that lives with the step have another reason."""
    placement = mixed(
        variables=variables(("/GPU:0", 100)), copies=(WEIGHTS,), **copying(("host to device", 50 * MS))
    )
    assert results(CHECK, **GPU_STEP, placement=placement) == []


def test_the_batch_has_its_own_part_of_the_copies():
    """Time goes by bytes: three quarters of what crosses are weights."""
    batch = copy("host to device", size=1e6, purpose="input")
    weights = copy("host to device", size=3e6, purpose="variable")
    held = variables(("/CPU:0", 8_000_000))
    times = copying(("host to device", 40 * MS))
    found = only(CHECK, **GPU_STEP, placement=mixed(variables=held, copies=(batch, weights), **times))
    assert found.finding.cost.value == pytest.approx(0.3)
    unknown = mixed(variables=held, copies=(copy("host to device", None, purpose="input"), weights), **times)
    assert "shapes" in not_run(CHECK, **GPU_STEP, placement=unknown)


def test_silent_without_an_accelerator():
    """There is nowhere else to be, whether placement is known or not."""
    assert results(CHECK, placement=on_cpu(variables=variables(("/CPU:0", 100)))) == []
    assert results(CHECK, placement=Missing("an eager step has no graph")) == []


def test_says_what_is_missing():
    """Weights on the CPU whose copies were not timed are no verdict."""
    placement = mixed(variables=variables(("/CPU:0", 100)), copies=(WEIGHTS,), times_missing="no trace")
    assert "no trace" in not_run(CHECK, **GPU_STEP, placement=placement)
    assert not_run(CHECK, **GPU_STEP, placement=Missing("no graph")) == "no graph"

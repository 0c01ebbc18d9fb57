"""better-on-cpu: the step is faster on the CPU than on the accelerator."""

from __future__ import annotations

import pytest

from tests.crossings import step_on_devices
from tests.synthetic import MS
from tests.unit.checks.placements import on_cpu
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.checks.placement.better_on_cpu import CHECK
from tfdiag.model.devices import StepOnDevices
from tfdiag.model.quantity import Missing, Quantity

STEP = {"accelerator": True, "compute": 9 * MS, "dispatch": 1 * MS}
"""A step of 10 ms beside a GPU."""


def test_fires_with_ratio_and_batch():
    """Four times as fast on the CPU; the GPU wins where the CPU's rows have made up for that."""
    found = only(CHECK, **STEP, step_devices=step_on_devices(2.5 * MS, 10 * MS))
    assert value(found, "times as fast on the CPU") == pytest.approx(4, rel=0.03)
    assert value(found, "batch from which it is faster than the CPU") == pytest.approx(32 * 7, rel=0.15)
    assert found.finding.cost.value == pytest.approx(0.75, abs=0.02)
    (suggestion,) = found.suggestions
    assert "batches of about 2" in suggestion.text
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize(("gpu", "fires"), [(5.9 * MS, True), (5.35 * MS, False)])
def test_the_cpu_must_be_clearly_faster(gpu: float, fires: bool):
    """By a tenth, at the lower end of the interval."""
    assert bool(results(CHECK, **STEP, step_devices=step_on_devices(5 * MS, gpu, noise=0.001))) is fires


@pytest.mark.parametrize(("wait", "fires"), [(80 * MS, True), (110 * MS, False)])
def test_what_it_saves_must_matter_to_the_job(wait: float, fires: bool):
    """Five milliseconds of a step that waits for most of its time are not worth a finding."""
    job = {**STEP, "wait": wait}
    assert bool(results(CHECK, **job, step_devices=step_on_devices(5 * MS, 10 * MS))) is fires


def test_an_input_that_is_no_faster_leaves_nothing_to_gain():
    """The input alone takes as long as the step: it would be waited for instead."""
    job = {**STEP, "input_alone": 9.9 * MS}
    assert results(CHECK, **job, step_devices=step_on_devices(2.5 * MS, 10 * MS)) == []


def test_silent_where_the_accelerator_is_faster():
    """Nor where there is none, the step is on the CPU already, or there was nothing to learn."""
    assert results(CHECK, **STEP, step_devices=step_on_devices(20 * MS, 10 * MS)) == []
    assert results(CHECK, step_devices=step_on_devices(2.5 * MS, 10 * MS)) == []
    assert results(CHECK, **STEP, placement=on_cpu(), step_devices=step_on_devices(2.5 * MS, 10 * MS)) == []
    assert results(CHECK, **STEP, step_devices=StepOnDevices(0, (), spared="the device is busy")) == []


def test_a_batch_that_is_not_known_is_said():
    """The finding stands without it, and says why."""
    steps = step_on_devices(2.5 * MS, 10 * MS)
    only_one = StepOnDevices(steps.rows, steps.runs, sizes_missing="the model takes 32 rows only")
    found = only(CHECK, **STEP, step_devices=only_one)
    assert "takes 32 rows only" in found.finding.detail
    with pytest.raises(ValueError, match="not enough values"):
        evidence(found, "batch from which it is faster than the CPU")


def test_says_what_is_missing():
    """Without the measurement there is no verdict."""
    assert not_run(CHECK, **STEP, step_devices=Missing("no room")) == "no room"

"""python-function-in-step: the step waits for Python functions in it."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.placements import GPU_STEP, mixed, on_cpu, python_op, timed
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.placement.python_function_in_step import CHECK
from tfdiag.model.quantity import Missing, Quantity

STEP = {"compute": 99 * MS, "dispatch": 1 * MS}


@pytest.mark.parametrize(("seconds", "fires"), [(5.2 * MS, True), (4.9 * MS, False)])
def test_fires_when_the_step_waits_for_python(seconds: float, fires: bool):
    """What decides is the time in which nothing else runs, with or without a GPU."""
    found = timed("python", seconds, busy=50 * MS)
    assert bool(results(CHECK, **STEP, placement=on_cpu(python_op(), **found))) is fires
    assert bool(results(CHECK, **GPU_STEP, placement=mixed(python_op(), **found))) is fires


def test_a_call_of_several_steps_is_shared():
    """Times are those of a call; the finding speaks of a step."""
    parts = {"compute": 99 * MS, "dispatch": 1 * MS, "steps_per_call": 10, "live": {"steps_per_call": 10}}
    found = only(CHECK, **parts, placement=on_cpu(python_op(), **timed("python", 20 * MS)))
    assert found.finding.cost.value == pytest.approx(0.2)
    assert value(found, "time that the step waits for Python functions") == pytest.approx(2 * MS)


def test_names_the_function_that_takes_longest():
    """Function, layer and line, the costliest first; a loop is said to be one."""
    slow = python_op(
        name="a",
        layer="outer",
        function="crop",
        where="net.py:9",
        in_loop=True,
        per_call_s=Quantity(0.03, "s"),
    )
    quick = python_op(per_call_s=Quantity(0.01, "s"))
    found = only(CHECK, **STEP, placement=on_cpu(quick, slow, **timed("python", 40 * MS)))
    assert found.finding.where.startswith("crop (EagerPyFunc) in layer outer at net.py:9, halve")
    assert found.finding.detail
    (advice,) = found.suggestions
    assert "crop" in advice.code
    assert "batches" in advice.text


def test_silent_without_python():
    """A graph of TensorFlow's own ops has nothing to find."""
    assert results(CHECK, **STEP, placement=on_cpu()) == []


def test_says_what_is_missing():
    """Functions without times are named; a job whose graph was not seen is not called healthy."""
    told = not_run(CHECK, placement=on_cpu(python_op(), times_missing="the profiler is taken"))
    assert "halve" in told
    assert "the profiler is taken" in told
    assert "does not show" not in told
    assert "does not show" not in not_run(CHECK, placement=Missing("no graph"))
    assert "trace of the step" in not_run(CHECK, placement=on_cpu(python_op()))

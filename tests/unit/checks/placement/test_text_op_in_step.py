"""text-op-in-step: the step waits for text ops in it."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.placements import on_cpu, python_op, text_op, timed
from tests.unit.checks.running import not_run, only, results
from tfdiag.checks.placement.text_op_in_step import CHECK
from tfdiag.model.quantity import Missing

STEP = {"compute": 99 * MS, "dispatch": 1 * MS}


@pytest.mark.parametrize(("seconds", "fires"), [(5.2 * MS, True), (4.9 * MS, False)])
def test_fires_when_the_step_waits_for_text(seconds: float, fires: bool):
    """What decides is the time in which nothing else runs."""
    placement = on_cpu(text_op(), **timed("text", seconds, busy=30 * MS))
    assert bool(results(CHECK, **STEP, placement=placement)) is fires


def test_advises_to_map_the_dataset_with_the_layer():
    """The code calls the layer by its name."""
    found = only(CHECK, **STEP, placement=on_cpu(text_op(), **timed("text", 50 * MS)))
    (advice,) = found.suggestions
    assert "(words(x), y)" in advice.code
    assert found.finding.where == "LookupTableFindV2 in layer words"


def test_python_is_another_check():
    """A Python function is no text op."""
    assert results(CHECK, **STEP, placement=on_cpu(python_op(), **timed("python", 50 * MS))) == []


def test_says_what_is_missing():
    """Ops without times are named."""
    assert "words" in not_run(CHECK, placement=on_cpu(text_op(), times_missing="no time was left"))
    assert not_run(CHECK, placement=Missing("no graph")) == "no graph"

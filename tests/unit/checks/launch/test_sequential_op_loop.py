"""sequential-op-loop: a loop of small ops takes a share of the step."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.parts import STEP, loop, recurrent
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.launch.sequential_op_loop import CHECK
from tfdiag.model.layers import LoopCost, ModelFacts
from tfdiag.model.quantity import Missing, Quantity


@pytest.mark.parametrize(("seconds", "fires"), [(5.2 * MS, True), (4.9 * MS, False)])
def test_fires_at_a_twentieth_of_the_step(seconds: float, fires: bool):
    """A loop under a twentieth of the step is not worth a finding."""
    assert bool(results(CHECK, **STEP, model=ModelFacts(loops=(loop(seconds),)))) is fires


@pytest.mark.parametrize(("seconds", "fires"), [(0.99 * MS, True), (1.01 * MS, False)])
def test_large_ops_in_a_loop_are_no_problem(seconds: float, fires: bool):
    """Where each op takes long, the loop around it costs nothing."""
    found = loop(40 * MS, op_s=Quantity(seconds, "s"))
    assert bool(results(CHECK, **STEP, model=ModelFacts(loops=(found,)))) is fires


def test_forwards_and_backwards_count_together():
    """A loop and its gradient are one finding of one layer; another layer is another."""
    backward = loop(3 * MS, name="gradient_tape/net/each_row/map/while", part="backward")
    other = loop(20 * MS, name="net/other/while", layer="other", kind="while_loop")
    first, second = results(CHECK, **STEP, model=ModelFacts(loops=(loop(4 * MS), backward, other)))
    assert first.finding.cost.value == pytest.approx(0.07)
    assert value(first, "rounds of the loop in a call") == 64
    assert "vectorized_map" in first.suggestions[0].code
    assert "other" in second.finding.where
    assert first.finding.title == "A map_fn in layer each_row takes 7% of each step"


def test_a_call_of_several_steps_is_shared():
    """Times are those of a call; the finding speaks of a step."""
    parts = {**STEP, "steps_per_call": 10, "live": {"steps_per_call": 10}}
    found = only(CHECK, **parts, model=ModelFacts(loops=(loop(20 * MS),)))
    assert found.finding.cost.value == pytest.approx(0.2)


def test_going_over_time_is_a_finding_on_an_accelerator_only():
    """A CPU has no other way; and an LSTM off its kernel is another check's."""
    over_time = ModelFacts(loops=(loop(50 * MS, kind="recurrent", layer="rnn"),))
    assert results(CHECK, **STEP, model=over_time) == []
    assert "LSTM" in only(CHECK, **STEP, accelerator=True, model=over_time).suggestions[0].code
    lstm = ModelFacts(loops=(loop(50 * MS, kind="recurrent", layer="lstm"),), recurrent=(recurrent(50 * MS),))
    assert results(CHECK, **STEP, accelerator=True, model=lstm) == []


def test_what_was_timed_by_turns_counts_where_the_layer_does_little_else():
    """More than the trace told; where the layer does much beside, the trace counts, as far as all of it."""
    with_s = (100 * MS,) * 8
    for saved, rest, cost in ((40, 5, 0.35), (40, 30, 0.2), (15, 10, 0.15)):
        timed = LoopCost("each_row", with_s, ((100 - saved) * MS,) * 8, rest_s=rest * MS)
        found = only(CHECK, **STEP, model=ModelFacts(loops=(loop(20 * MS),), loop_costs=(timed,)))
        assert found.finding.cost.value == pytest.approx(cost, rel=0.02)


@pytest.mark.parametrize("without", [100 * MS, 101 * MS])
def test_a_loop_without_which_a_step_is_no_quicker_is_no_finding(without: float):
    """Whatever the trace, which slows small ops down, told of it."""
    timed = LoopCost("each_row", (100 * MS,) * 8, (without,) * 8)
    assert results(CHECK, **STEP, model=ModelFacts(loops=(loop(20 * MS),), loop_costs=(timed,))) == []


def test_silent_without_loops_and_where_python_is_the_cause():
    """A loop that calls Python is slow because of that, which another check says."""
    assert results(CHECK, **STEP) == []
    assert results(CHECK, **STEP, model=ModelFacts(loops=(loop(50 * MS, calls_python=True),))) == []


def test_says_what_is_missing():
    """A loop without a time is named; a job whose graph was not seen is not called healthy."""
    told = not_run(CHECK, model=ModelFacts(loops=(loop(None),), times_missing="the profiler is taken"))
    assert "each_row" in told
    assert "the profiler is taken" in told
    assert "eager" in not_run(CHECK, model=ModelFacts(graph_missing="an eager step has no graph"))
    assert "no model" in not_run(CHECK, model=Missing("no model"))

"""eager-step: the train step runs eagerly, and a graph is faster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, Synthetic
from tests.unit.checks.running import evidence, is_sound, not_run, only, results, value
from tfdiag.analyse.analysis import Analysis, analyse
from tfdiag.checks.launch.eager_step import CHECK
from tfdiag.model.measurements import Replay, Traced
from tfdiag.model.quantity import Quantity


def eager(**parts: Any) -> dict[str, Any]:
    """Give an eager job of 100 ms a step."""
    return {"compute": 20 * MS, "dispatch": 80 * MS, "job": {"run_eagerly": True}, **parts}


@pytest.mark.parametrize(("graph", "fires"), [(94.8 * MS, True), (95.1 * MS, False)])
def test_fires_when_a_graph_saves_a_twentieth(graph: float, fires: bool):
    """What decides is the time that a graph saves, not that the step runs eagerly."""
    assert bool(results(CHECK, **eager(graph=graph))) is fires


def test_costs_less_in_a_step_that_is_mostly_something_else():
    """The saving is held against the whole step, not against the call."""
    parts = eager(compute=4 * MS, dispatch=6 * MS, graph=5 * MS)
    assert only(CHECK, **parts, wait=40 * MS).finding.cost.value == pytest.approx(0.1)
    assert results(CHECK, **parts, wait=95 * MS) == []


def test_silent_for_graphs():
    """A graph is one already."""
    assert results(CHECK, **eager(graph=10 * MS, job={"run_eagerly": False})) == []


def test_the_switch_of_the_whole_process_is_named():
    """What `compile` did not do, it is not blamed for."""
    job = {"run_eagerly": True, "eager_everywhere": True}
    found = only(CHECK, **eager(graph=25 * MS, job=job))
    assert found.finding.where == "tf.config.run_functions_eagerly(True)"
    assert found.suggestions[0].code.startswith("- tf.config.run_functions_eagerly(True)\n+ ")


def own(ops: int, busy: float = 20 * MS, **job: Any) -> Analysis:
    """Give a loop of the caller's own, of 100 ms a step, with so many ops in each."""
    measurements = Synthetic(
        compute=20 * MS, dispatch=80 * MS, job={"loop": "custom", "model": "train_step", **job}
    ).measurements()
    assert isinstance(measurements.replay, Replay)
    traced = Traced(40 * busy, (100 * MS,) * 40, 40 * ops)
    replay = replace(measurements.replay, traced=traced, empty_call_s=(2 * MS,) * 20)
    return analyse(replace(measurements, replay=replay))


def test_an_own_step_that_python_dispatches_op_by_op():
    """What decides is the time in which none of the ops runs."""
    (found,) = CHECK.run(own(52))
    is_sound(CHECK, found)
    assert found.finding.title == "Python dispatches the 52 operations of a step one by one"
    assert found.finding.cost.value == pytest.approx(0.8)
    assert found.finding.where == "train_step"
    (suggestion,) = found.suggestions
    assert suggestion.code.startswith("+ @tf.function")
    assert isinstance(suggestion.predicted, Quantity)
    assert 2 < suggestion.predicted.value < 5.1
    assert suggestion.predicted.low < 1.8


def test_an_own_step_in_a_process_where_all_is_eager():
    """The switch is what has to go."""
    (found,) = CHECK.run(own(52, run_eagerly=True, eager_everywhere=True))
    assert found.finding.where == "tf.config.run_functions_eagerly(True)"
    assert found.suggestions[0].code.startswith("- tf.config.run_functions_eagerly(True)\n+ ")


@pytest.mark.parametrize(("ops", "busy"), [(3, 20 * MS), (52, 96 * MS)])
def test_silent_for_own_steps_that_are_graphs_or_compute(ops: int, busy: float):
    """A few ops around a graph are no eager step; ops that run nearly all the time leave nothing to gain."""
    assert list(CHECK.run(own(ops, busy))) == []


def test_shows_its_numbers():
    """Both replays, and the threshold that the graph stays below."""
    found = only(CHECK, **eager(graph=25 * MS))
    assert value(found, "the step replayed eagerly") == pytest.approx(100 * MS)
    graph = evidence(found, "the same step as a graph")
    assert graph.threshold is not None
    assert (value(found, graph.name), graph.relation) == (pytest.approx(25 * MS), "below")
    assert graph.threshold.value == pytest.approx(95 * MS)
    assert found.finding.cost.value == pytest.approx(0.75)
    assert found.finding.severity == "critical"


def test_numbers_are_per_step():
    """With several steps a call, times and cost are those of a step."""
    found = only(CHECK, **eager(graph=25 * MS, steps_per_call=4))
    assert value(found, "the step replayed eagerly") == pytest.approx(25 * MS)
    assert value(found, "the same step as a graph") == pytest.approx(6.25 * MS)
    limit = evidence(found, "the same step as a graph").threshold
    assert limit is not None
    assert limit.value == pytest.approx(23.75 * MS)
    assert found.finding.cost.value == pytest.approx(0.75)


def test_suggests_to_compile_without_it():
    """The code takes `run_eagerly` away, and the gain is that of the replayed graph."""
    (suggestion,) = only(CHECK, **eager(graph=25 * MS)).suggestions
    assert suggestion.id == "eager-step/graph"
    assert suggestion.code == "- model.compile(…, run_eagerly=True)\n+ model.compile(…)"
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(4.0)


def test_undecided_without_a_replay():
    """Eager is slow only if a graph is faster, and nobody tried."""
    assert "no time for a replay" in not_run(CHECK, **eager(replay=False))


def test_undecided_without_the_graph():
    """A step that could not be made a graph is not called fine."""
    assert "graph" in not_run(CHECK, **eager())

"""eager-step: the train step runs eagerly, and a graph is faster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.checks.launch.eager_step import CHECK
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


@pytest.mark.parametrize("job", [{"run_eagerly": False}, {"run_eagerly": True, "loop": "custom"}])
def test_silent_for_graphs_and_loops_of_the_callers_own(job: dict[str, Any]):
    """A graph is one already; a caller's own loop has no `compile` to change."""
    assert results(CHECK, **eager(graph=10 * MS, job=job)) == []


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

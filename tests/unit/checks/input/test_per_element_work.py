"""per-element-work: calls for each element take the time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, chain, sampled
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.per_element_work import CHECK
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Maybe, Missing, Quantity

PLAIN = Function("f")
CALLS = 100
"""Calls of the function for a batch, of 40 ms."""


def small(
    overhead: Maybe = Missing("not measured"), *, batched: float | None = None, calls: int = CALLS,
    function: Function | None = PLAIN, between: bool = False, op: str = "Map", **fields: Any,
) -> Pipeline:  # fmt: skip
    """Give a map of 40 ms a batch that calls its function so often."""
    shuffle = [Part("Shuffle", "shuffle(9)")] if between else []
    return sampled(
        Part("Range", "range(…)"),
        Part(op, "map(f)", 40 * MS / calls, 1.0, {"function": function}, batched_s=batched),
        *shuffle,
        Part("Batch", f"batch({calls})", 0.0, 1.0, {"size": calls}),
        call_overhead_s=overhead,
        **fields,
    )


def seconds(value: float) -> Quantity:
    """Give what a call costs."""
    return Quantity(value, "s")


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.106, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """Calls that keep up are no finding."""
    assert bool(results(CHECK, **with_wait(share), pipeline=small(seconds(0.2 * MS)))) is fires


@pytest.mark.parametrize(("overhead", "fires"), [(0.158 * MS, False), (0.162 * MS, True), (1 * MS, True)])
def test_fires_when_calls_are_most_of_it(overhead: float, fires: bool):
    """A hundred calls of 0.16 ms are two fifths of 40 ms."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=small(seconds(overhead)))) is fires


@pytest.mark.parametrize(("batched", "fires"), [(0.199 * MS, True), (0.201 * MS, False)])
def test_fires_when_whole_batches_take_half_the_time(batched: float, fires: bool):
    """20 of 40 ms, whatever an empty call costs."""
    of = small(batched=batched)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


@pytest.mark.parametrize(("calls", "fires"), [(1, False), (2, True)])
def test_silent_where_one_call_makes_a_batch(calls: int, fires: bool):
    """There is nothing to spare then."""
    of = small(seconds(20 * MS), calls=calls)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


def test_silent_without_functions():
    """A thread that calls nothing waits for something else."""
    assert not results(CHECK, **with_wait(0.4), pipeline=small(function=None))


def test_calls_of_several_functions_add_up():
    """A filter and a map, each with a hundred calls of 0.1 ms: 20 of 40 ms."""
    of = sampled(
        Part("Range", "range(…)"),
        Part("Map", "map(f)", 0.2 * MS, 1.0, {"function": Function("f")}),
        Part("Filter", "filter(g)", 0.2 * MS, 1.0, {"function": Function("g")}),
        Part("Batch", "batch(100)", 0.0, 1.0, {"size": 100}),
        call_overhead_s=seconds(0.1 * MS),
    )
    found = only(CHECK, **with_wait(0.4), pipeline=of)
    assert value(found, "calls of functions for a batch") == 200
    assert found.finding.cost.value == pytest.approx(0.2)


def test_the_runtimes_own_times_do_too():
    """Without samples a map calls its function for each element that it gives."""
    of = chain(("Range", 0.0), ("Map", 40 * MS), ("BatchV2", 0.0), call_overhead_s=seconds(1 * MS))
    assert not results(CHECK, **with_wait(0.4), pipeline=of)


def test_shows_its_numbers():
    """How many calls, and which part they have."""
    found = only(CHECK, **with_wait(0.4), pipeline=small(seconds(0.2 * MS)))
    assert value(found, "calls of functions for a batch") == CALLS
    part = evidence(found, "part of the calls in what map(f) does for a batch")
    assert part.threshold is not None
    assert part.threshold.value == 0.4
    assert value(found, part.name) == pytest.approx(0.5)
    assert found.finding.where == "map(f)"
    assert found.finding.cost.value == pytest.approx(0.2)


def test_shows_what_batches_take():
    """The measured time on whole batches against half of what it takes now; the cost is the map's."""
    found = only(CHECK, **with_wait(0.4), pipeline=small(batched=0.1 * MS))
    assert value(found, "time of map(f) on the whole batch") == pytest.approx(10 * MS)
    assert found.finding.cost.value == pytest.approx(0.4)


def test_swaps_where_batches_were_tried():
    """The caller's chain with the two lines swapped, the same as data, and the measured time: 10 ms of 80."""
    (suggestion,) = only(
        CHECK,
        wait=35 * MS,
        compute=4 * MS,
        dispatch=1 * MS,
        pipeline=small(batched=0.1 * MS),
    ).suggestions
    assert suggestion.id == "per-element-work/batch-first"
    assert suggestion.edits == (Edit("swap", 2),)
    assert suggestion.code == (
        "  dataset = (\n      tf.data.Dataset.range(…)\n-     .map(f)\n      .batch(100)\n+     .map(f)\n  )"
    )
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(40 / 10)
    assert "gave the same" in suggestion.risk


@pytest.mark.parametrize("parts", [{"batched": 0.1 * MS, "between": True}, {"overhead": seconds(0.2 * MS)}])
def test_only_advises_where_the_change_is_the_callers(parts: dict[str, Any]):
    """With a stage between map and batch, or a function that was not tried on batches, nothing is edited."""
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=small(**parts)).suggestions
    assert suggestion.edits == ()
    assert suggestion.reason.startswith("not tried: whether")


def test_spared_calls_are_predicted():
    """99 of 100 calls of 0.2 ms spared leave 20.2 of 40 ms; three tenths of them 34.06."""
    parts = {"wait": 35 * MS, "compute": 4 * MS, "dispatch": 1 * MS}
    (suggestion,) = only(CHECK, **parts, pipeline=small(seconds(0.2 * MS))).suggestions
    gain = suggestion.predicted
    assert isinstance(gain, Quantity)
    assert gain.value == pytest.approx(40 / 20.2)
    assert gain.low == pytest.approx(40 / (34.06 * 1.1))


def test_undecided_without_the_cost_of_a_call():
    """A function that was not tried on batches, on a machine where calls were not timed."""
    assert "calling" in not_run(CHECK, **with_wait(0.4), pipeline=small())


def test_undecided_without_the_pipeline():
    """A pipeline that nobody knows is not called fine."""
    assert "gone" in not_run(CHECK, **with_wait(0.4), pipeline=Missing("gone"))

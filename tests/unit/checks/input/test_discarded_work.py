"""discarded-work: elements are dropped behind the expensive stage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, sampled, stage
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.discarded_work import CHECK
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Missing, Quantity

SOURCE = Part("TensorSlice", "from_tensor_slices(…)", 1e-9)
BATCH = Part("Batch", "batch(10)", 0.0, node={"size": 10})


def sharded(count: int = 4, seconds: float = 100 * MS, **function: Any) -> Pipeline:
    """Give a pipeline that takes so long for a batch, of which all but one in `count` is dropped."""
    decode = Part(
        "Map", "map(decode)", seconds / 10 / count, 1.0, {"function": Function("decode", **function)}
    )
    return sampled(SOURCE, decode, Part("Shard", f"shard({count}, 0)", 0.0, node={"size": count}), BATCH)


def filtered(ratio: float) -> Pipeline:
    """Give a pipeline whose filter lets one of so many through, as the runtime counted."""
    parts = (
        SOURCE,
        Part("Map", "map(decode)", 10 * MS, 1.0, {"function": Function("decode")}),
        Part("Filter", "filter(good)", 1e-9, 1.0, {"function": Function("good")}),
        BATCH,
    )
    running = tuple(
        stage(i + 1, p.op, 1 * MS, elements=round(n))
        for i, (p, n) in enumerate(zip(parts, (1e5 * ratio, 1e5 * ratio, 1e5, 1e4), strict=True))
    )
    return sampled(*parts, running=running)


def skipping(size: int, *more: Part, count: int = 2000) -> Pipeline:
    """Give a pipeline that skips so many elements of 10 ms each."""
    decode = Part("Map", "map(decode)", 10 * MS, 1.0, {"function": Function("decode")})
    skip = Part("Skip", f"skip({size})", 0.0, node={"size": size, "cardinality": count})
    return sampled(SOURCE, decode, skip, *more, BATCH)


@pytest.mark.parametrize(("share", "fires"), [(0.06, False), (0.07, True)])
def test_fires_when_the_waste_costs(share: float, fires: bool):
    """Three quarters of the wait are wasted work."""
    assert bool(results(CHECK, **with_wait(share), pipeline=sharded())) is fires


@pytest.mark.parametrize(("ratio", "fires"), [(1.24, False), (1.26, True)])
def test_fires_when_a_fifth_is_dropped(ratio: float, fires: bool):
    """A filter that lets nearly all through is no finding."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=filtered(ratio))) is fires


def test_shows_what_is_dropped():
    """The cost is the wasted part of the wait."""
    found = only(CHECK, **with_wait(0.4), pipeline=sharded())
    ratio = evidence(found, "elements into shard(4, 0) for each that comes out")
    assert value(found, ratio.name) == pytest.approx(4)
    assert found.finding.cost.value == pytest.approx(0.3)
    assert found.finding.where == "map(decode) → shard(4, 0)"


def test_suggests_to_shard_first():
    """Shard and a pure map commute."""
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=sharded()).suggestions
    assert suggestion.edits == (Edit("swap", 2),)
    assert "-     .map(decode)\n      .shard(4, 0)\n+     .map(decode)" in suggestion.code
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 60)


@pytest.mark.parametrize("function", [{"random": True}, {"stateful": True}, {"python": True}])
def test_only_pure_maps_are_passed(function: dict[str, Any]):
    """A function with state may see its elements' order."""
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=sharded(**function)).suggestions
    assert suggestion.edits == ()


def test_a_filter_gets_advice_only():
    """Its predicate takes what the map makes."""
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=filtered(2)).suggestions
    assert suggestion.edits == ()


@pytest.mark.parametrize(("size", "fires"), [(98, False), (105, True)])
def test_fires_for_a_skip_in_each_epoch(size: int, fires: bool):
    """An epoch of 200 steps of 100 ms: 100 elements of 10 ms are a twentieth."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=skipping(size))) is fires


def test_a_skip_is_swapped():
    """Skip and a pure map commute."""
    found = only(CHECK, **with_wait(0.4), pipeline=skipping(400))
    assert value(found, "time for the skipped elements, once a pass") == pytest.approx(4)
    (suggestion,) = found.suggestions
    assert suggestion.edits == (Edit("swap", 2),)
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(1 / 0.8)


def test_a_repeated_skip_costs_each_pass():
    """The elements of one pass tell its steps, whatever the epoch."""
    repeat = Part("Repeat", "repeat()", 0.0, node={"size": -1})
    found = only(CHECK, **with_wait(0.4), pipeline=skipping(400, repeat, count=4000), epoch_known=False)
    assert found.finding.cost.value == pytest.approx(0.1)


@pytest.mark.parametrize("known", [True, False])
def test_a_skip_behind_a_repeat_is_once(known: bool):
    """What is skipped once is no loss of the steps."""
    repeat = Part("Repeat", "repeat()", 0.0, node={"size": -1})
    decode = Part("Map", "map(decode)", 10 * MS, 1.0, {"function": Function("decode")})
    of = sampled(SOURCE, repeat, decode, Part("Skip", "skip(900)", 0.0, node={"size": 900}), BATCH)
    assert not results(CHECK, **with_wait(0.4), pipeline=of, epoch_known=known)


def test_undecided_without_the_pipeline():
    """A pipeline that nobody knows is not called fine."""
    assert "gone" in not_run(CHECK, **with_wait(0.4), pipeline=Missing("gone"))

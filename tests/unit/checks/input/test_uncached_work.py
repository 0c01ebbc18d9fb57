"""uncached-work: the same expensive work in every epoch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, sampled
from tests.unit.checks.running import not_run, only, results, value, with_wait
from tfdiag.checks.input.uncached_work import CHECK
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Quantity

DECODE = Function("decode")
EPOCHS: dict[str, Any] = {"job": {"epochs": 5}}


def decoding(
    *,
    part: float = 0.9,
    count: int | None = 1000,
    behind: tuple[Part, ...] = (),
    before: tuple[Part, ...] = (),
    function: Function = DECODE,
    size: float = 1000.0,
) -> Pipeline:
    """Give a pipeline that takes 100 ms for a batch of ten, this part of it in what could be cached."""
    augment = Function("augment", random=True)
    return sampled(
        Part("TensorSlice", "from_tensor_slices(…)", 1e-9, node={"cardinality": count}),
        *before,
        Part("Map", "map(decode)", part * 10 * MS, 1.0, {"function": function, "cardinality": count}),
        *behind,
        Part("Shuffle", "shuffle(100)", node={"random": True}),
        Part("Map", "map(augment)", (1 - part) * 10 * MS, 1.0, {"function": augment}),
        Part("Batch", "batch(10)", 0.0, node={"size": 10}),
        bytes_each=size,
    )


@pytest.mark.parametrize(("share", "fires"), [(0.04, False), (0.06, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """Below a gain of a twentieth, for sure a tenth less than predicted, memory is worth more."""
    assert bool(results(CHECK, **with_wait(share), pipeline=decoding(), **EPOCHS)) is fires


@pytest.mark.parametrize(("part", "fires"), [(0.49, False), (0.51, True)])
def test_fires_when_half_could_be_spared(part: float, fires: bool):
    """Less than half of what the step waits for is not this problem."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=decoding(part=part), **EPOCHS)) is fires


@pytest.mark.parametrize(("size", "fires"), [(2**22, True), (2**22 + 1e4, False)])
def test_fires_when_it_fits(size: float, fires: bool):
    """1024 elements of 4 MiB are half of the 8 GiB."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=decoding(count=1024, size=size), **EPOCHS)) is fires


@pytest.mark.parametrize(("count", "fires"), [(8_600_000, True), (8_700_000, False)])
def test_fires_when_a_pass_ends_within_a_day(count: int, fires: bool):
    """Ten elements in 100 ms: a cache that is full after more than 86,400 s spares nobody anything."""
    of = decoding(count=count, size=10.0)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of, **EPOCHS)) is fires


@pytest.mark.parametrize(
    ("epochs", "repeat", "fires"), [(1, False, False), (2, False, True), (1, True, True)]
)
def test_fires_when_it_repeats(epochs: int, repeat: bool, fires: bool):
    """One epoch repeats nothing."""
    behind = (Part("Repeat", "repeat()", node={"size": -1}),) if repeat else ()
    of = decoding(behind=behind)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of, job={"epochs": epochs})) is fires


@pytest.mark.parametrize(
    "before",
    [
        Part("Map", "map(augment)", node={"function": Function("augment", random=True)}),
        Part("Repeat", "repeat()", node={"size": -1}),
        Part("Other", "other()", node={"opaque": "not seen"}),
    ],
)
def test_is_silent_behind_what_differs(before: Part):
    """Behind what is random or endless no cache holds what comes next."""
    assert not results(CHECK, **with_wait(0.4), pipeline=decoding(before=(before,)), **EPOCHS)


def test_is_silent_where_there_is_a_cache():
    """A cache behind it spares the work already."""
    of = decoding(behind=(Part("Cache", "cache()", 1e-9),))
    assert not results(CHECK, **with_wait(0.4), pipeline=of, **EPOCHS)


def test_is_silent_for_random_functions():
    """What is drawn anew must not be frozen."""
    of = decoding(function=Function("decode", random=True))
    assert not results(CHECK, **with_wait(0.4), pipeline=of, **EPOCHS)


def test_suggests_a_cache_before_the_shuffle():
    """The latest place before the shuffle, with its memory."""
    cheap = Part("Map", "map(scale)", node={"function": Function("scale"), "cardinality": 1000})
    found = only(CHECK, **with_wait(0.4), pipeline=decoding(behind=(cheap,)), **EPOCHS)
    assert found.finding.where == "map(scale)"
    assert value(found, "all elements of map(scale)") == pytest.approx(1e6)
    (suggestion,) = found.suggestions
    assert suggestion.edits == (Edit("cache_after", 2),)
    assert "      .map(scale)\n+     .cache()\n      .shuffle(100)" in suggestion.code
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 60)
    assert found.finding.cost.value == pytest.approx(0.4 * 0.9)


def test_python_functions_get_advice_only():
    """Nobody can see whether Python gives the same again."""
    of = decoding(function=Function("decode", python=True, stateful=True))
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=of, **EPOCHS).suggestions
    assert suggestion.edits == ()
    assert "frozen" in suggestion.risk


def test_counts_by_the_epoch_where_the_graph_does_not():
    """Steps of an epoch times elements in a batch."""
    found = only(CHECK, **with_wait(0.4), pipeline=decoding(count=None), **EPOCHS, calls_per_epoch=300)
    assert value(found, "all elements of map(decode)") == pytest.approx(300 * 10 * 1000)


def test_undecided_without_a_count():
    """Neither the graph nor the epoch tells how many elements there are."""
    of = decoding(count=None)
    assert "memory" in not_run(CHECK, **with_wait(0.4), pipeline=of, **EPOCHS, epoch_known=False)


def test_comes_after_causes():
    """Nothing is wrong with the work; it could be spared."""
    assert CHECK.rank == 1


def test_a_shuffle_below_the_work_goes_behind_the_cache():
    """Shuffled file names that are decoded: decoded and kept once, they can be shuffled as well."""
    shuffle = Part("Shuffle", "shuffle(10)", 1e-9, node={"random": True, "size": 10, "cardinality": 1000})
    decode = Part("Map", "map(decode)", 10 * MS, 1.0, {"function": Function("decode"), "cardinality": 1000})
    files = Part("TensorSlice", "from_tensor_slices(…)", 1e-9, node={"cardinality": 1000})
    batch = Part("Batch", "batch(10)", 0.0, node={"size": 10})
    found = only(CHECK, **with_wait(0.4), pipeline=sampled(files, shuffle, decode, batch), job={"epochs": 5})
    (suggestion,) = found.suggestions
    assert suggestion.edits == (Edit("swap", 2), Edit("cache_after", 2))
    assert "+     .cache()\n+     .shuffle(10)" in suggestion.code

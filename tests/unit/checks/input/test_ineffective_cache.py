"""ineffective-cache: a cache is there, and the work goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, pipeline, sampled, stage
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.ineffective_cache import CHECK
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Quantity

SOURCE = Part("TensorSlice", "from_tensor_slices(…)", 1e-9, node={"cardinality": 1000})
BATCH = Part("Batch", "batch(10)", 0.0, node={"size": 10})


def cache(count: int = 1000) -> Part:
    """Give a cache of so many elements; reading from it is nearly free."""
    return Part("Cache", "cache()", 1e-9, node={"cardinality": count})


def mapped(part: float = 1.0, **function: Any) -> Part:
    """Give a map that takes this part of 100 ms for a batch of ten."""
    node = {"function": Function("decode", **function), "cardinality": 1000}
    return Part("Map", "map(decode)", part * 10 * MS, 1.0, node)


def behind(*between: Part, **function: Any) -> Pipeline:
    """Give a pipeline with its expensive map behind the cache."""
    return sampled(SOURCE, cache(), *between, mapped(**function), BATCH)


def below(*more: Part, count: int = 1000, before: int | None = None, after: int = 200) -> Pipeline:
    """Give a pipeline with its expensive map below the cache, and what the runtime saw of it."""
    parts = (SOURCE, mapped(), cache(count), *more, BATCH)
    running = [stage(i + 1, p.op, 1 * MS, elements=after) for i, p in enumerate(parts)]
    earlier = [stage(i + 1, p.op, 1 * MS, elements=before or 0) for i, p in enumerate(parts)]
    running[-1] = stage(len(parts), "Batch", 1 * MS, elements=after // 10)
    earlier[-1] = stage(len(parts), "Batch", 1 * MS, elements=(before or 0) // 10)
    return sampled(*parts, running=tuple(running), stages_before=() if before is None else tuple(earlier))


TAKE = Part("Take", "take(500)", 0.0, node={"size": 500})


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """A cache in the wrong place that costs nothing is no finding."""
    assert bool(results(CHECK, **with_wait(share), pipeline=behind())) is fires


@pytest.mark.parametrize(
    ("function", "fires"), [({}, True), ({"random": True}, False), ({"stateful": True}, True)]
)
def test_fires_for_the_same_in_every_pass(function: dict[str, Any], fires: bool):
    """What is random belongs behind the cache."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=behind(**function))) is fires


@pytest.mark.parametrize(
    "between",
    [
        Part("Shuffle", "shuffle(10)", 1e-9, node={"random": True}),
        Part("Repeat", "repeat()", 0.0, node={"size": -1}),
    ],
)
def test_is_silent_behind_a_shuffle_or_repeat(between: Part):
    """Behind these the elements differ, or have no end."""
    assert not results(CHECK, **with_wait(0.4), pipeline=behind(between))


@pytest.mark.parametrize(("part", "fires"), [(0.49, False), (0.51, True)])
def test_fires_when_the_stage_is_half_of_the_work(part: float, fires: bool):
    """A stage under half of what its thread does is not what the step waits for."""
    augment = Part("Map", "map(a)", 0.25 * 10 * MS * 2 * (1 - part), 1.0, {"function": Function("a")})
    of = sampled(SOURCE, cache(), mapped(part), augment, augment, BATCH)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


@pytest.mark.parametrize(("size", "fires"), [(2**22, True), (2**22 + 2e5, False)])
def test_fires_when_it_fits(size: float, fires: bool):
    """1000 elements of 4 MiB are just under half of the 8 GiB."""
    of = sampled(SOURCE, cache(), mapped(), BATCH, bytes_each=size)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


def test_suggests_to_move_the_cache():
    """The cache goes behind the map."""
    found = only(CHECK, **with_wait(0.4), pipeline=behind())
    (suggestion,) = found.suggestions
    assert suggestion.edits == (Edit("remove", 1), Edit("cache_after", 2))
    assert suggestion.code.index("+     .cache()") > suggestion.code.index("      .map(decode)")
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 60)


def test_python_gets_advice_only():
    """Nobody can see whether Python gives the same again."""
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=behind(python=True)).suggestions
    assert suggestion.edits == ()


@pytest.mark.parametrize(("size", "fires"), [(999, True), (1000, False)])
def test_fires_when_a_take_cuts_the_cache_short(size: int, fires: bool):
    """A cache whose last element nobody asks for is filled anew each time."""
    take = Part("Take", f"take({size})", 0.0, node={"size": size})
    of = below(take, before=100, after=150)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


def test_suggests_to_take_below_the_cache():
    """One swap, and the cache comes to its end."""
    found = only(CHECK, **with_wait(0.4), pipeline=below(TAKE, before=100))
    cut = evidence(found, "elements that take(500) takes of the cache")
    assert cut.threshold is not None
    assert (value(found, cut.name), cut.threshold.value) == (500, 1000)
    (suggestion,) = found.suggestions
    assert suggestion.edits == (Edit("swap", 3),)
    assert "      .take(500)\n+     .cache()" in suggestion.code


def test_suggests_to_repeat_behind_the_cache():
    """A cache over what never ends is never complete."""
    repeat = Part("Repeat", "repeat()", 0.0, node={"size": -1})
    of = sampled(SOURCE, mapped(), repeat, cache(-1), BATCH)
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=of).suggestions
    assert suggestion.edits == (Edit("swap", 3),)


@pytest.mark.parametrize(("calls", "fires"), [(299, False), (300, True)])
def test_fires_when_work_goes_on_after_three_passes(calls: int, fires: bool):
    """By then a cache of 1000 elements was full before the second reading, if it ever is."""
    of = below(before=100)
    found = results(CHECK, **with_wait(0.4), pipeline=of, calls_per_epoch=calls)
    assert bool(found) is fires


def test_is_silent_when_the_cache_is_full():
    """Nothing moves below it any more."""
    assert not results(CHECK, **with_wait(0.4), pipeline=below(before=200), calls_per_epoch=1000)


def test_is_silent_without_a_cache():
    """Other checks ask for one."""
    assert not results(CHECK, **with_wait(0.4), pipeline=sampled(SOURCE, mapped(), BATCH))


def test_undecided_without_a_second_reading():
    """Whether the stages still work is known from two readings."""
    assert "not seen" in not_run(CHECK, **with_wait(0.4), pipeline=below())


def test_undecided_without_a_count():
    """How many elements the cache has to hold tells when it is full."""
    of = below(count=0, before=100)
    assert "was being filled" in not_run(CHECK, **with_wait(0.4), pipeline=of)


def test_undecided_without_times():
    """A cache is there, but nobody knows what its neighbours cost."""
    assert "sampled" in not_run(CHECK, **with_wait(0.4), pipeline=pipeline("range(…)", "cache()"))

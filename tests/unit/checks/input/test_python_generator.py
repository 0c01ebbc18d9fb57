"""python-generator: a Python generator is what the step waits for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, chain, pipeline, sampled
from tests.unit.checks.running import not_run, only, results, value, with_wait
from tfdiag.checks.input.python_generator import CHECK
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.quantity import Missing, Quantity

GENERATOR = chain(
    ("Generator", 40 * MS), ("BatchV2", 2 * MS), ("Prefetch", 0.0), written=("from_generator", "batch(32)")
)


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, False), (0.054, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """A generator that keeps up is no finding; of the wait it has the 40 ms of 42."""
    assert bool(results(CHECK, **with_wait(share), pipeline=GENERATOR, input_alone=40 * MS)) is fires


@pytest.mark.parametrize(("seconds", "fires"), [(39 * MS, True), (41 * MS, False)])
def test_fires_when_the_generator_is_the_slowest(seconds: float, fires: bool):
    """Another stage that takes longer is what the step waits for."""
    of = chain(("Generator", 40 * MS), ("Map", seconds), ("Prefetch", 0.0))
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


@pytest.mark.parametrize(
    ("kind", "fires"),
    [("generator", True), ("generator function", True), ("arrays", False), ("PyDataset", False)],
)
@pytest.mark.parametrize("of", [GENERATOR, Missing("no tf.data pipeline")])
def test_what_fit_was_given_counts(kind: str, of: Pipeline | Missing, fires: bool):
    """Keras reads arrays and PyDatasets through a generator of its own, which nobody can change."""
    parts: dict[str, Any] = {"job": {"input": kind}, "pipeline": of, "input_alone": 40 * MS}
    found = results(CHECK, **with_wait(0.4), **parts)
    assert bool(found) is fires
    assert [result.finding.where for result in found] == ["the generator given to fit"] * fires


@pytest.mark.parametrize(
    ("written", "fires"),
    [
        (("from_generator", "batch(32)", "prefetch(2)"), True),
        (("from_generator",), True),
        (("range(…)", "map(f)"), False),
    ],
)
def test_without_times_only_a_bare_generator_is_told(written: tuple[str, ...], fires: bool):
    """A chain that is nothing but a generator needs no times, nor does one without any."""
    found = results(CHECK, **with_wait(0.4), pipeline=pipeline(*written), input_alone=40 * MS)
    assert bool(found) is fires


def test_shows_its_numbers():
    """The wait and the generator's time for a batch; the cost is its part of the wait."""
    found = only(CHECK, **with_wait(0.2), pipeline=GENERATOR, input_alone=40 * MS)
    assert value(found, "wait for input per step") == pytest.approx(20 * MS)
    assert value(found, "time of from_generator for a batch") == pytest.approx(40 * MS)
    assert value(found, "elements that it yields for a batch") == 1
    assert found.finding.cost.value == pytest.approx(0.2 * 40 / 42)
    assert found.finding.severity == "warning"
    assert found.finding.where == "from_generator"


def test_suggests_several_generators():
    """The code interleaves as many parts as there are cores, and the gain is held by what computes."""
    (suggestion,) = only(
        CHECK, **with_wait(0.4), pipeline=GENERATOR, input_alone=100 * MS, input_cpu=0.2, cores=4
    ).suggestions
    assert suggestion.id == "python-generator/parallel-sources"
    assert "range(4).interleave(" in suggestion.code
    assert suggestion.code.startswith("- dataset = tf.data.Dataset.from_generator(generate,")
    assert isinstance(suggestion.predicted, Quantity)
    # A fifth of 100 ms holds the lock, the rest is spread over four: 40 ms, hidden behind 60 ms of step.
    assert suggestion.predicted.value == pytest.approx(100 / 60)


def test_undecided_when_a_stage_without_time_may_be_slower():
    """A generator with a map behind it, and no times: nobody knows which of them is slow."""
    reason = not_run(CHECK, **with_wait(0.4), pipeline=pipeline("from_generator", "map(f)", "batch(2)"))
    assert "map(f)" in reason


@pytest.mark.parametrize("of", [Missing("gone"), Pipeline(missing="gone")])
def test_undecided_without_the_pipeline(of: Pipeline | Missing):
    """A tf.data pipeline that nobody knows may well begin with a generator."""
    assert "stages" in not_run(CHECK, **with_wait(0.4), pipeline=of)


def test_undecided_without_the_wait():
    """Neither waits nor a replay: whether the step waits is not known."""
    assert "wait" in not_run(CHECK, **with_wait(0.4), pipeline=GENERATOR, waits=False, replay=False)


def rows(each: float, size: int, **fields: Any) -> Pipeline:
    """Give a generator whose elements take so long, and so many of which make a batch."""
    return sampled(
        Part("Generator", "from_generator", each, 0.3),
        Part("Batch", "batch(…)", 0.0, 1.0, {"size": size}),
        **fields,
    )


@pytest.mark.parametrize(
    ("size", "ids"), [(1, ["parallel-sources"]), (2, ["parallel-sources", "whole-batches"])]
)
def test_single_elements_are_better_yielded_as_batches(size: int, ids: list[str]):
    """A generator that yields several elements for a batch can yield the batch."""
    of = rows(40 * MS / size, size, call_overhead_s=Quantity(0.1 * MS, "s"))
    found = only(CHECK, **with_wait(0.4), pipeline=of)
    assert [one.id.split("/")[1] for one in found.suggestions] == ids
    assert value(found, "elements that it yields for a batch") == size


def test_what_whole_batches_spare_is_counted_by_calls():
    """99 calls of 0.2 ms less leave 60.2 of 80 ms, which the step hides but for 0.2, and at best all."""
    of = rows(0.8 * MS, 100, call_overhead_s=Quantity(0.2 * MS, "s"))
    _, suggestion = only(CHECK, **{**with_wait(0.2), "compute": 59 * MS}, pipeline=of).suggestions
    gain = suggestion.predicted
    assert isinstance(gain, Quantity)
    assert gain.value == pytest.approx(80 / 60.2)
    assert gain.low == pytest.approx(1)
    assert gain.high == pytest.approx(80 / 60)


def test_without_the_cost_of_a_call_whole_batches_promise_nothing():
    """The advice stands, without a number."""
    _, suggestion = only(CHECK, **with_wait(0.4), pipeline=rows(1 * MS, 40)).suggestions
    assert isinstance(suggestion.predicted, Missing)


def test_a_sampled_generator_has_a_lock_of_its_own():
    """Three tenths of 80 ms compute and stay, seven tenths wait and are spread over four: 38 ms, hidden."""
    of = rows(80 * MS, 1)
    first, *_ = only(
        CHECK, **{**with_wait(0.2), "wait": 70 * MS, "compute": 9 * MS}, cores=4, pipeline=of
    ).suggestions
    assert isinstance(first.predicted, Quantity)
    assert first.predicted.value == pytest.approx(80 / 38)

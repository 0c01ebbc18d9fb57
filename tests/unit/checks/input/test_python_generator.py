"""python-generator: a Python generator is what the step waits for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, chain, pipeline
from tests.unit.checks.running import not_run, only, results, value, with_wait
from tfdiag.checks.input.python_generator import CHECK
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.quantity import Missing, Quantity

GENERATOR = chain(
    ("Generator", 40 * MS), ("BatchV2", 2 * MS), ("Prefetch", 0.0), written=("from_generator", "batch(32)")
)


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """A generator that keeps up is no finding."""
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
    """The wait and the generator's time for a batch; the cost is the wait."""
    found = only(CHECK, **with_wait(0.2), pipeline=GENERATOR, input_alone=40 * MS)
    assert value(found, "wait for input per step") == pytest.approx(20 * MS)
    assert value(found, "time of the generator for a batch") == pytest.approx(40 * MS)
    assert found.finding.cost.value == pytest.approx(0.2)
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

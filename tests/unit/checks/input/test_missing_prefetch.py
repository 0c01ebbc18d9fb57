"""missing-prefetch: input and step alternate."""

from __future__ import annotations

import pytest

from tests.synthetic import MS, Part, chain, pipeline, sampled
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.missing_prefetch import CHECK
from tfdiag.model.pipeline import Edit, Pipeline
from tfdiag.model.quantity import Missing, Quantity

SERIAL = chain(
    ("Range", 0.0),
    ("Map", 30 * MS),
    ("BatchV2", 0.0),
    written=("range(…)", "map(decode)", "batch(32)"),
    prefetch_injected=False,
)
AHEAD = chain(("Range", 0.0), ("Map", 30 * MS), ("Prefetch", 0.0))


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True), (0.948, True), (0.951, False)])
def test_fires_when_overlap_hides_a_share_of_the_step(share: float, fires: bool):
    """Silent where there is hardly a wait, and where there is hardly a step to hide it behind."""
    found = results(CHECK, **with_wait(share), pipeline=SERIAL, input_alone=share * 100 * MS)
    assert bool(found) is fires


@pytest.mark.parametrize(("share", "cost"), [(0.3, 0.3), (0.5, 0.5), (0.8, 0.2)])
def test_costs_what_overlap_could_hide(share: float, cost: float):
    """The cost is the shorter of the wait and the rest of the step."""
    found = only(CHECK, **with_wait(share), pipeline=SERIAL, input_alone=30 * MS)
    assert found.finding.cost.value == pytest.approx(cost)


def test_silent_when_the_pipeline_works_ahead():
    """A prefetch at the end of the running pipeline leaves nothing to advise, however long the wait."""
    assert results(CHECK, **with_wait(0.4), pipeline=AHEAD, input_alone=30 * MS) == []


@pytest.mark.parametrize(("injected", "fires"), [(True, False), (False, True)])
def test_options_tell_where_the_runtime_has_no_model(injected: bool, fires: bool):
    """Without a model, a prefetch that the runtime adds by itself is as good as one that was written."""
    of = pipeline("range(…)", "map(f)", prefetch_injected=injected)
    found = results(CHECK, **with_wait(0.4), pipeline=of, input_alone=30 * MS)
    assert bool(found) is fires


def test_shows_its_numbers():
    """Wait with its threshold, the input alone, and no stage where there should be one."""
    found = only(CHECK, **with_wait(0.3), pipeline=SERIAL, input_alone=28 * MS)
    wait = evidence(found, "wait for input per step")
    assert isinstance(wait.quantity, Quantity)
    assert wait.quantity.value == pytest.approx(30 * MS)
    assert wait.threshold is not None
    assert wait.threshold.value == pytest.approx(5 * MS)
    assert wait.relation == "above"
    assert value(found, "a batch from the input alone") == pytest.approx(28 * MS)
    ahead = evidence(found, "stages that work ahead at the end of the running pipeline")
    assert ahead.threshold is not None
    assert (value(found, ahead.name), ahead.threshold.value, ahead.relation) == (0, 1, "below")
    assert found.finding.where == "map(decode) → batch(32)"
    assert found.finding.severity == "critical"


def test_suggests_prefetch_in_the_callers_words():
    """The code is the caller's own chain with one line more, and the gain that of overlap."""
    (suggestion,) = only(CHECK, **with_wait(0.3), pipeline=SERIAL, input_alone=30 * MS).suggestions
    assert suggestion.id == "missing-prefetch/prefetch"
    assert suggestion.code == (
        "  dataset = (\n"
        "      tf.data.Dataset.range(…)\n"
        "      .map(decode)\n"
        "      .batch(32)\n"
        "+     .prefetch(tf.data.AUTOTUNE)\n"
        "  )"
    )
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 70)
    assert suggestion.edits == (Edit("prefetch"),)


def ahead(own: float) -> Pipeline:
    """Give a parallel map of 50 ms, and a batch of so much that nothing does ahead of the step."""
    return sampled(
        Part("Range", "range(…)"),
        Part("ParallelMap", "map(decode)", 5 * MS, 1.0, {"parallelism": 1}),
        Part("Batch", "batch(10)", own, 1.0, {"size": 10}),
        prefetch_injected=False,
    )


@pytest.mark.parametrize(("own", "fires"), [(0.0, False), (1 * MS, False), (30 * MS, True)])
def test_silent_when_the_pipeline_hides_what_there_is(own: float, fires: bool):
    """What works ahead without a prefetch has nothing to gain from one; what is left for the step has."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=ahead(own))) is fires


def test_samples_stand_in_for_the_input_alone():
    """With times of stages the input need not have been read alone."""
    of = sampled(Part("Range", "range(…)"), Part("Map", "map(f)", 30 * MS), prefetch_injected=False)
    found = only(CHECK, **with_wait(0.3), pipeline=of)
    assert value(found, "work for a batch that nothing does ahead of the step") == pytest.approx(30 * MS)
    (suggestion,) = found.suggestions
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 70)


def test_undecided_without_the_input_alone():
    """What overlap hides is not known without the input's own time, or those of its stages."""
    of = pipeline("range(…)", "map(f)", prefetch_injected=False)
    assert "no time for the input alone" in not_run(CHECK, **with_wait(0.3), pipeline=of)


def test_undecided_without_the_pipeline():
    """A wait whose pipeline nobody knows is not called fine."""
    reason = not_run(CHECK, **with_wait(0.3), pipeline=Missing("no model of it"), input_alone=1 * MS)
    assert "no model of it" in reason


def test_undecided_without_the_wait():
    """Neither waits nor a replay: whether the step waits is not known."""
    assert "wait" in not_run(CHECK, **with_wait(0.3), pipeline=SERIAL, waits=False, replay=False)

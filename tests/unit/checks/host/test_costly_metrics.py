"""costly-metrics: metrics take a share of the step."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.parts import STEP, metrics
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.host.costly_metrics import CHECK
from tfdiag.model.changes import Change
from tfdiag.model.layers import MetricCost, MetricFacts, ModelFacts
from tfdiag.model.quantity import Missing, Quantity


@pytest.mark.parametrize(("seconds", "fires"), [(5.2 * MS, True), (4.9 * MS, False)])
def test_fires_at_a_twentieth_of_the_step(seconds: float, fires: bool):
    """Metrics under a twentieth of the step are not worth a finding."""
    assert bool(results(CHECK, **STEP, model=metrics(seconds))) is fires


@pytest.mark.parametrize(("seconds", "fires"), [(0.19 * MS, False), (0.21 * MS, True)])
def test_what_any_metric_takes_is_no_finding(seconds: float, fires: bool):
    """In a step of a millisecond even a mean is a share; that the step is tiny is the problem then."""
    assert (
        bool(results(CHECK, compute=1 * MS, dispatch=0.1 * MS, model=metrics(seconds, step=1.1 * MS)))
        is fires
    )
    both = metrics(seconds, seconds, step=1.1 * MS)
    assert bool(results(CHECK, compute=1 * MS, dispatch=0.1 * MS, model=both)) is fires


def test_noise_is_no_finding():
    """Where single stretches say the opposite, nothing is said."""
    noisy = MetricCost((0.100,) * 8, (0.093, 0.093, 0.093, 0.093, 0.093, 0.107, 0.107, 0.107))
    model = ModelFacts(metrics=(MetricFacts("auc", "AUC"),), metric_cost=noisy)
    assert results(CHECK, **STEP, model=model) == []


def test_what_may_be_too_little_is_not_claimed():
    """Where the stretches agree that metrics cost something, but not that it is enough, that is said."""
    wide = MetricCost((0.100,) * 8, (0.093, 0.093, 0.093, 0.093, 0.093, 0.098, 0.098, 0.098))
    told = not_run(CHECK, **STEP, model=ModelFacts(metrics=(MetricFacts("auc", "AUC"),), metric_cost=wide))
    assert "2 to 7 ms" in told


@pytest.mark.parametrize(("replayed", "cost"), [(100, 0.2), (200, 0.2), (80, 0.2), (50, 0.2 * 1.3 / 2)])
def test_a_machine_that_is_slower_in_the_replay(replayed: float, cost: float):
    """A share of the replayed step is the same share of the job's; of one that is far quicker it is less."""
    found = only(CHECK, **STEP, model=metrics(0.2 * replayed * MS, step=replayed * MS))
    assert found.finding.cost.value == pytest.approx(cost)


def test_names_the_metric():
    """The one that takes most of it is named, left out in the code and as a change; the cheap one stays."""
    found = only(CHECK, **STEP, model=metrics(1 * MS, 19 * MS))
    assert found.finding.where == "metric_1 (AUC)"
    assert found.finding.cost.value == pytest.approx(0.2)
    assert value(found, "of it metric_1") == pytest.approx(19 * MS)
    (advice,) = found.suggestions
    assert "metrics=['metric_0'])" in advice.code
    assert advice.changes == (Change("without_metrics", target="metric_1"),)
    assert isinstance(advice.predicted, Quantity)
    assert advice.predicted.value == pytest.approx(100 / 80)


def test_says_so_where_it_does_not_know_which():
    """Many metrics are measured together: all are named."""
    found = only(CHECK, **STEP, model=metrics(2 * MS, 2 * MS, 2 * MS, 2 * MS, 2 * MS, each=False))
    assert "and 2 more" in found.finding.where
    assert found.finding.detail


def test_a_call_of_several_steps_is_shared():
    """Times are those of a call; the finding speaks of a step."""
    found = only(CHECK, **STEP, steps_per_call=10, live={"steps_per_call": 10}, model=metrics(20 * MS))
    assert found.finding.cost.value == pytest.approx(0.2)


def test_says_what_is_missing():
    """No metrics, nothing to find; metrics that were not left out are not called healthy."""
    assert results(CHECK, **STEP) == []
    told = not_run(
        CHECK, model=ModelFacts(metrics=(MetricFacts("a", "AUC"),), metric_cost=Missing("it would not fit"))
    )
    assert "it would not fit" in told

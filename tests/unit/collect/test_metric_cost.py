"""The step with and without its metrics."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.integration import jobs
from tests.traces_left import state_of
from tests.unit.compat.test_keras import FLAVOURS
from tfdiag.collect.metric_cost import measure_metric_cost
from tfdiag.collect.turns import by_turns
from tfdiag.collect.without import Without
from tfdiag.compat.keras import make_train_function
from tfdiag.model.layers import MetricCost
from tfdiag.model.quantity import Missing


class Ticking:
    """A clock that moves with each call of the step."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.now = 0.0

    def __call__(self) -> float:
        """Tell."""
        return self.now

    def takes(self, seconds: float) -> Any:
        """Give a step that takes so long."""

        def step() -> None:
            self.now += seconds

        return step


def test_turns_give_the_time_of_each() -> None:
    """Stretches side by side; it ends once the difference is clear, or when told to."""
    clock = Ticking()
    options: dict[str, Any] = {"call_s": 0.01, "clock": clock, "should_stop": lambda: False}
    first, second = by_turns(clock.takes(0.011), clock.takes(0.01), until=100.0, **options)
    assert first == pytest.approx([0.011] * 6)
    assert second == pytest.approx([0.01] * 6)
    assert len(by_turns(clock.takes(0.01), clock.takes(0.01), until=0.0, **options)[0]) == 3
    options["should_stop"] = lambda: True
    assert by_turns(clock.takes(0.01), clock.takes(0.01), until=100.0, **options) == ((), ())


def test_the_first_calls_of_a_stretch_do_not_count() -> None:
    """They find the caches as the other way left them; where there is time a stretch outlasts that."""
    clock, last, since = Ticking(), "", 0

    def step(name: str) -> Any:
        def call() -> None:
            nonlocal last, since
            since = since + 1 if last == name else 0
            clock.now += 0.01 if since >= 4 else 0.02
            last = name

        return call

    options: dict[str, Any] = {"call_s": 0.01, "clock": clock, "should_stop": lambda: False}
    first, second = by_turns(step("one"), step("other"), until=100.0, **options)
    assert [*first, *second] == pytest.approx([0.01] * 12)


def measured(model: Any, *, seconds: float = 20.0) -> MetricCost | Missing:
    """Train for a step, then measure."""
    dataset = jobs.batches(None)
    make_train_function(model)(iter(dataset))
    step = Without(
        model,
        lambda: dataset,
        first_call_s=0.1,
        call_s=0.005,
        until=time.perf_counter() + seconds,
        clock=time.perf_counter,
        should_stop=lambda: False,
    )
    return measure_metric_cost(model, step)


def slow(y: Any, p: Any) -> Any:
    """Be a metric that takes far longer than the step."""
    big = tf.random.stateless_uniform((400, 400), (1, 2)) + tf.reduce_sum(p)
    return tf.reduce_mean(tf.abs(y - p)) + 1e-30 * tf.reduce_sum(tf.matmul(tf.matmul(big, big), big))


def test_the_slow_one_of_two_metrics_is_told_from_the_other() -> None:
    """Each is left out by itself; the model keeps its metrics and its train function."""
    model = jobs.tiny_model(metrics=["mae", slow])
    function, before = make_train_function(model), None
    function(iter(jobs.batches(3)))
    before = {
        name: value for name, value in state_of(model).items() if "metric" in name and "Same" in str(value)
    }
    found = measured(model, seconds=12.0)
    assert isinstance(found, MetricCost)
    all_of_it = np.median(np.array(found.with_s) - np.array(found.without_s))
    each = {one.name: np.median(np.array(one.with_s) - np.array(one.call_s)) for one in found.each}
    assert set(each) == {"mae", "slow"}
    assert each.pop("slow") > 0.5 * all_of_it > 2 * max(each.values())
    assert model.train_function is function
    after = state_of(model)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_in_either_keras(flavour: str) -> None:
    """A model with metrics is measured, and its metrics go on working."""
    model = FLAVOURS[flavour]()
    found = measured(model, seconds=0.8)
    if isinstance(found, Missing):
        assert found.reason == "the model has no metrics beside its loss"
        return
    assert len(found.with_s) == len(found.without_s) >= 3


def test_nothing_is_said_to_be_nothing() -> None:
    """Without metrics, and without time."""
    assert measured(jobs.tiny_model(metrics=None)) == Missing("the model has no metrics beside its loss")
    assert "budget" in getattr(measured(jobs.tiny_model(), seconds=0.0), "reason", "")

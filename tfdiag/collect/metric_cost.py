"""What metrics cost: the step with them and without them, on one batch, by turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfdiag.collect.turns import by_turns, seconds_needed
from tfdiag.compat import keras
from tfdiag.compat import keras_parts as door
from tfdiag.model.layers import MetricCost, WithoutMetric
from tfdiag.model.quantity import Missing

__all__ = ["measure_metric_cost"]

_FEW = 4
_WORTH = 0.04
"""Of a call: below this nobody asks which metric it is."""
_TRACING = 0.9
"""Tracing once more takes a little less than the first call, in which the optimizer was built."""


def measure_metric_cost(
    model: Any,
    make_dataset: Callable[[], Any],
    *,
    first_call_s: float,
    call_s: float,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> MetricCost | Missing:
    """Trace the step once more with metrics that do nothing, and time both; the model's own stays."""
    metrics = door.compiled_metrics(model)
    if not metrics:
        return Missing("the model has no metrics beside its loss")
    need = _TRACING * first_call_s + seconds_needed(call_s)
    if clock() + need > until:
        return Missing("to trace the step once more, without its metrics, would not fit into the budget")
    iterator = iter(make_dataset())
    whole = keras.make_train_function(model)

    def without(left_out: tuple[Any, ...], end: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        with door.without_metrics(left_out):
            bare = door.own_train_function(model)
            bare(iterator)
        return by_turns(
            lambda: whole(iterator),
            lambda: bare(iterator),
            call_s=call_s,
            until=end,
            clock=clock,
            should_stop=should_stop,
        )

    several = 1 < len(metrics) <= _FEW
    with_s, without_s = without(metrics, clock() + (until - clock()) / (2 if several else 1))
    each: list[WithoutMetric] = []
    if len(metrics) == 1:
        each.append(WithoutMetric(str(metrics[0].name), without_s, with_s))
    elif several and float(np.mean(with_s)) * (1 - _WORTH) > float(np.mean(without_s)):
        for at, metric in enumerate(metrics):
            if should_stop() or clock() + need > until:
                break
            all_s, less_s = without((metric,), clock() + (until - clock()) / (len(metrics) - at))
            each.append(WithoutMetric(str(metric.name), less_s, all_s))
    return MetricCost(with_s, without_s, tuple(each))

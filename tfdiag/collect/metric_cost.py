"""What metrics cost: the step with them and without them, on one batch, by turns."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfdiag.collect.turns import part_of_rest
from tfdiag.collect.without import Without
from tfdiag.compat import keras_parts as door
from tfdiag.model.layers import MetricCost, WithoutMetric
from tfdiag.model.quantity import Missing

__all__ = ["measure_metric_cost"]

_FEW = 4
_WORTH = 0.04
"""Of a call: below this nobody asks which metric it is."""


def measure_metric_cost(model: Any, step: Without) -> MetricCost | Missing:
    """Trace the step once more with metrics that do nothing, and time both."""
    metrics = door.compiled_metrics(model)
    if not metrics:
        return Missing("the model has no metrics beside its loss")
    if not step.fits():
        return Missing("to trace the step once more, without its metrics, would not fit into the budget")

    several = 1 < len(metrics) <= _FEW
    end = part_of_rest(2 if several else 1, step.until, step.clock)
    with_s, without_s = step.timed(door.without_metrics(metrics), end)
    each: list[WithoutMetric] = []
    if len(metrics) == 1:
        each.append(WithoutMetric(str(metrics[0].name), without_s, with_s))
    elif several and float(np.mean(with_s)) * (1 - _WORTH) > float(np.mean(without_s)):
        for at, metric in enumerate(metrics):
            if not step.fits():
                break
            end = part_of_rest(len(metrics) - at, step.until, step.clock)
            all_s, less_s = step.timed(door.without_metrics((metric,)), end)
            each.append(WithoutMetric(str(metric.name), less_s, all_s))
    return MetricCost(with_s, without_s, tuple(each))

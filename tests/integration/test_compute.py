"""The computation of real jobs: planted causes are found, look-alikes are left alone, numbers hold."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdiag
from tests.integration import jobs
from tests.integration.expectations import is_sound, survives_json
from tests.pace import enough
from tests.traces_left import leaves_no_trace
from tfdiag.analyse.analysis import analyse
from tfdiag.analyse.scaling import BatchScaling
from tfdiag.model.compute import Compute
from tfdiag.model.quantity import Missing, Quantity

layers = keras.layers
BUDGET_S = 6.0


def endless(rows: int, *shape: int) -> Any:
    """Give one batch for ever, so that nothing waits."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((rows, *shape)).astype("float32")
    return tf.data.Dataset.from_tensors((x, np.ones((rows, 1), "float32"))).repeat()


def net(units: int, depth: int, *, policy: str | None = None) -> Any:
    """Give dense layers of one size."""
    hidden = [layers.Dense(units, activation="relu", dtype=policy) for _ in range(depth)]
    model = keras.Sequential([keras.Input((units,)), *hidden, layers.Dense(1, dtype="float32")])
    model.compile("sgd", "mse")
    return model


def diagnosed(model: Any, dataset: Any, budget: float = BUDGET_S, **kwargs: Any) -> tfdiag.Report:
    """Diagnose, and make sure that nothing is left and that the report holds."""
    with leaves_no_trace(model, dataset=dataset):
        report = tfdiag.diagnose(model, dataset, budget=enough(budget), verify=False, **kwargs)
    is_sound(report)
    survives_json(report)
    return report


def test_a_small_batch_and_the_numbers_behind_it() -> None:
    """Wide layers with two rows: each row would be done much faster in a larger batch."""
    rows, units, depth = 2, 1536, 3
    report = diagnosed(net(units, depth), endless(rows, units), budget=20.0, steps=60)

    scaling = analyse(report.measurements).scaling
    assert isinstance(scaling, BatchScaling)
    assert sorted(scaling.steps)[:3] == [1, 2, 4]
    (bigger,) = [
        each for each in report.suggestions if any(change.kind == "batch_size" for change in each.changes)
    ]
    # On crowded cores more of the step looks like dispatch, which a bigger batch shares as well.
    assert bigger.check in ("small-batch", "tiny-steps")
    assert isinstance(bigger.predicted, Quantity)
    assert bigger.predicted.value > 1.4
    compute = report.measurements.compute
    assert isinstance(compute, Compute)
    assert isinstance(compute.flops, Quantity)
    # Forward, the kernel's gradient, and the input's gradient but for the first layer.
    products = 2 * rows * units * units
    assert compute.flops.value == pytest.approx((3 * depth - 1) * products + 3 * 2 * rows * units)
    assert [peak.kind for peak in compute.peaks] == ["matrix product"]


def test_float16_on_a_processor_that_is_slow_with_it() -> None:
    """The processor shows by itself that it is; where it is not, nothing is said."""
    report = diagnosed(net(256, 3, policy="mixed_float16"), endless(128, 256))

    compute = report.measurements.compute
    assert isinstance(compute, Compute)
    rates = {peak.dtype: peak.rate.value for peak in compute.peaks}
    assert set(rates) == {"float16", "float32"}
    found = [finding.check for finding in report.findings]
    assert ("low-precision-on-cpu" in found) is (rates["float32"] >= 2 * rates["float16"])
    if "low-precision-on-cpu" in found:
        assert found[0] == "low-precision-on-cpu"


def test_a_step_of_arithmetic_is_called_so_with_a_number() -> None:
    """Rows enough for the weights: compute-bound, with its share of the machine's peak."""
    report = diagnosed(net(512, 3), endless(512, 512))

    (finding,) = report.findings
    assert finding.check == "compute-bound"
    names = {one.name: one.quantity for one in finding.evidence}
    share = names["share of that peak"]
    assert isinstance(share, Quantity)
    assert 0.1 < share.value < 1.5


def test_an_eager_step_has_no_count() -> None:
    """What can't be traced says so, and is no reason to stop."""
    model = jobs.tiny_model(run_eagerly=True)
    report = tfdiag.diagnose(model, jobs.batches(None), budget=enough(4.0), steps=60, verify=False)
    assert isinstance(report.measurements.compute, Missing)
    assert "eager" in report.measurements.compute.reason

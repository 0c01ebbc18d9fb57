"""A diagnosis names what in the step is not TensorFlow's."""

from __future__ import annotations

import time

from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound
from tests.traces_left import leaves_no_trace
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Quantity


def test_a_python_function_in_a_layer_is_named_with_its_cost() -> None:
    """Its share of the step is what it takes, the advice names it, and the job is left as it was."""
    model = jobs.watched_model(lambda: time.sleep(0.015))
    dataset = jobs.batches(40)

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.findings[0].check == "python-function-in-step"
    assert "tells_each_step" in report.findings[0].where
    assert "jobs.py:" in report.findings[0].where
    # Sleeping is most of this step, and all of the function.
    assert 0.4 < report.findings[0].cost.value <= 1.0
    assert isinstance(report.measurements.placement, Placement)
    gain = next(s.predicted for s in report.suggestions if s.check == "python-function-in-step")
    assert isinstance(gain, Quantity)
    assert gain.value > 1.4
    assert "Where ops run" in str(report)

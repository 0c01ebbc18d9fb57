"""A cause around the job, planted into a real one; look-alikes are in `benchmarks/step_jobs/env.py`."""

from __future__ import annotations

import tfdiag
from benchmarks.step_jobs import env
from tests.pace import enough
from tfdiag.model.host import HostTelemetry
from tfdiag.model.quantity import Quantity


def test_memory_that_grows() -> None:
    """A list that keeps something of each step is found, and the host is in the report."""
    model, data, arguments = env.kept_by_a_callback()
    report = tfdiag.diagnose(model, data, budget=enough(18), verify=False, steps=1_000_000, **arguments)
    found = {finding.check: finding for finding in report.findings}
    assert "memory-growth" in found, str(report)
    assert found["memory-growth"].cost.value == 0
    each = next(one.quantity for one in found["memory-growth"].evidence if one.name.endswith("in a step"))
    assert isinstance(each, Quantity)
    assert 0.8 * 2**23 < each.value < 1.3 * 2**23
    machine = report.measurements.machine
    assert isinstance(machine, HostTelemetry)
    assert isinstance(machine.cost, Quantity)
    assert "On the host" in str(report)

"""Causes around the job, planted into real ones: each is found, and what looks like it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tfdiag
from benchmarks.step_jobs import env

BUDGET_S = 9.0


@pytest.mark.parametrize(("make", "grows"), [(env.kept_by_a_callback, True), (env.bounded_buffer, False)])
def test_memory_that_grows(make: Callable[[], tuple[Any, Any, dict[str, Any]]], grows: bool) -> None:
    """A list that keeps each step is found; a buffer that is full after a hundred of them is not."""
    model, data, arguments = make()
    report = tfdiag.diagnose(model, data, budget=BUDGET_S, **arguments)
    found = {finding.check: finding for finding in report.findings}
    assert ("memory-growth" in found) is grows, str(report)
    if grows:
        assert found["memory-growth"].cost.value == 0
        assert "MiB" in found["memory-growth"].title or "GiB" in found["memory-growth"].title
    machine = report.measurements.machine
    assert machine.cost.value < 0.05
    assert "On the host" in str(report)

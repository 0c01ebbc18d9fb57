"""unoverlapped-transfer: copies and kernels take turns."""

from __future__ import annotations

import pytest

from tests.traces import MS, Event, Plane, space
from tests.unit.checks.running import value
from tests.unit.checks.tracing import needs_a_trace, only, results
from tfdiag.checks.transfer.unoverlapped_transfer import CHECK


@pytest.mark.parametrize(("copy", "fires"), [(0.48, False), (0.52, True)])
def test_fires_at_a_twentieth_of_the_step(copy: float, fires: bool):
    """What could be hidden decides."""
    assert bool(results(CHECK, copy=int(copy * MS), kernels=1, kernel=int((10 - copy) * MS))) is fires


def test_cost_is_what_computing_could_hide():
    """Of 8 ms of copies beside 2 ms of kernels 2 ms could be hidden."""
    found = only(CHECK, copy=8 * MS, kernels=2)
    assert found.finding.cost.value == pytest.approx(0.2)
    assert value(found, "part of the copies in which kernels run") == 0


@pytest.mark.parametrize(("hidden", "fires"), [(1.9, True), (2.1, False)])
def test_what_is_hidden_for_a_fifth_is_overlapped(hidden: float, fires: bool):
    """A copy of 10 ms that begins beside a kernel."""
    run, copies, kernels = [], [], []
    for step in range(5):
        at = step * 20 * MS
        run.append(Event("FunctionRun", at, 19 * MS, {"id": step}))
        copies.append(Event("MemcpyH2D", at, 10 * MS))
        kernels += [Event("gemm", at, int(hidden * MS)), Event("gemm", at + 10 * MS, 8 * MS)]
    lines = {"Stream #1(Compute)": kernels, "Stream #2(MemcpyH2D)": copies}
    data = space(Plane("/device:GPU:0", lines), Plane("/host:CPU", {"main": run}))
    assert bool(results(CHECK, data)) is fires


def test_undecided_without_a_trace():
    """Nothing is said of copies that nobody saw."""
    needs_a_trace(CHECK)

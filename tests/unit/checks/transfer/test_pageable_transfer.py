"""pageable-transfer: batches are copied from pageable memory."""

from __future__ import annotations

import pytest

from tests.traces import MS, Event, Plane, space
from tests.unit.checks.running import value
from tests.unit.checks.tracing import needs_a_trace, only, results, traced
from tfdiag.checks.registry import Undecided
from tfdiag.checks.transfer.pageable_transfer import CHECK


def test_fires_for_slow_copies_from_pageable_memory():
    """With the part of the bytes and the bandwidth as evidence."""
    found = only(CHECK, copy=2 * MS, copy_bytes=8_000_000)
    assert value(found, "bandwidth") == pytest.approx(4e9)
    assert value(found, "part of the bytes that comes from pageable memory") == 1


@pytest.mark.parametrize(
    "parts",
    [
        {"memory": "pinned"},
        {"copy_bytes": 16_100_000},  # 8.05 GB/s
        {"kernel": 12 * MS},  # 4 % of the step
        {"overlap": True},
        {"copy": 0},
    ],
)
def test_silent_where_it_costs_nothing(parts: dict[str, int]):
    """Page-locked, fast, short, hidden or no copies."""
    assert results(CHECK, **{"copy": 2 * MS, "copy_bytes": 8_000_000, **parts}) == []


def test_undecided_where_the_trace_does_not_tell():
    """A trace without the source of its copies, and none at all."""
    run, copies, kernels = [], [], []
    for step in range(5):
        run.append(Event("FunctionRun", step * 5 * MS, 4 * MS, {"id": step}))
        copies.append(Event("MemcpyH2D", step * 5 * MS, MS))
        kernels.append(Event("gemm", step * 5 * MS + MS, 3 * MS))
    lines = {"Stream #1(Compute)": kernels, "Stream #2(MemcpyH2D)": copies}
    data = space(Plane("/device:GPU:0", lines), Plane("/host:CPU", {"main": run}))
    with pytest.raises(Undecided, match="where its copies came from"):
        list(CHECK.run(traced(data)))
    needs_a_trace(CHECK)

"""oversized-transfer: copying the batch takes the step."""

from __future__ import annotations

import pytest

from tests.traces import MS
from tests.unit.checks.running import evidence, value
from tests.unit.checks.tracing import needs_a_trace, only, results
from tfdiag.checks.transfer.oversized_transfer import CHECK
from tfdiag.model.quantity import Quantity


@pytest.mark.parametrize(("copy", "fires"), [(2.4, False), (2.6, True)])
def test_fires_at_a_quarter_of_the_step(copy: float, fires: bool):
    """Of a step of 10 ms."""
    found = results(CHECK, copy=int(copy * MS), kernels=1, kernel=int((10 - copy) * MS))
    assert bool(found) is fires


def test_a_hidden_copy_is_none():
    """However large, a copy beside kernels costs nothing."""
    assert results(CHECK, copy=4 * MS, kernels=5, overlap=True) == []
    assert results(CHECK) == []


def test_shows_bytes_and_bandwidth():
    """And suggests to send fewer."""
    found = only(CHECK, copy=4 * MS, kernels=6, copy_bytes=8_000_000)
    assert value(found, "copies to the device per step") == pytest.approx(4e-3)
    assert value(found, "bytes to the device per step") == pytest.approx(8e6)
    assert value(found, "bandwidth") == pytest.approx(2e9)
    assert evidence(found, "the device waits for copies to it, per step").threshold is not None
    (fewer,) = found.suggestions
    assert isinstance(fewer.predicted, Quantity)
    assert fewer.predicted.value == pytest.approx(10 / 7)


def test_undecided_without_a_trace():
    """Nothing is said of copies that nobody saw."""
    needs_a_trace(CHECK)

"""idle-gpu: the device does nothing for a large part of the step."""

from __future__ import annotations

import pytest

from tests.traces import MS
from tests.unit.checks.running import value
from tests.unit.checks.tracing import needs_a_trace, only, results
from tfdiag.checks.device.idle_gpu import CHECK


@pytest.mark.parametrize(("wait", "fires"), [(2.9, False), (3.2, True)])
def test_fires_at_three_tenths(wait: float, fires: bool):
    """Of a step of 10 ms."""
    assert bool(results(CHECK, wait=int(wait * MS), kernels=1, kernel=int((10 - wait) * MS))) is fires


@pytest.mark.parametrize(
    ("parts", "cause"),
    [
        ({"wait": 3 * MS, "host": MS}, "for input"),
        ({"late": MS, "host": MS}, "for the host to launch"),
        ({"host": 3 * MS}, "for Python between steps"),
    ],
)
def test_names_what_the_device_waits_for(parts: dict[str, int], cause: str):
    """The largest of its causes stands in the title, all in the evidence."""
    found = only(CHECK, **parts)
    assert cause in found.finding.title
    shown = [one for one in found.finding.evidence if one.name.startswith("of it")]
    assert len(shown) == len(parts)
    assert value(found, "idle per step") == pytest.approx(sum(one.quantity.value for one in shown))  # type: ignore[union-attr]


def test_copies_are_no_idling():
    """The device is at work while it copies."""
    assert results(CHECK, copy=8 * MS, kernels=2) == []


def test_undecided_without_a_trace():
    """A device that nobody looked at is not called busy."""
    needs_a_trace(CHECK)

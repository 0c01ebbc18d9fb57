"""When the step is worth running on the CPU as well, and when not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.synthetic import MS, Synthetic
from tfdiag.collect.step_devices import useless
from tfdiag.model.device import DeviceTrace, TracedSteps
from tfdiag.model.measurements import Replay
from tfdiag.model.quantity import Missing


def replayed(call_s: float, steps: int = 1) -> Replay:
    """Give a replay whose calls take so long."""
    found = Synthetic(compute=call_s, dispatch=0.0).measurements().replay
    assert isinstance(found, Replay)
    return replace(found, steps_per_call=steps)


def traced(**shares: float) -> DeviceTrace:
    """Give a trace of steps of one second with these segments."""
    return DeviceTrace("here", "XSpace", steps=TracedSteps("markers", 10, 1.0, shares))


@pytest.mark.parametrize(
    ("call_s", "trace", "reason"),
    [
        (30 * MS, traced(device_compute=0.49), ""),
        (30 * MS, traced(device_compute=0.51), "computes for 51%"),
        (19 * MS, traced(device_compute=0.9), ""),
        (19 * MS, traced(device_compute=0.1, input_wait=0.51), "waits for input for 51%"),
        (19 * MS, traced(device_compute=0.1, input_wait=0.49), ""),
        (30 * MS, Missing("no trace"), ""),
    ],
)
def test_where_the_cpu_could_win(call_s: float, trace: DeviceTrace | Missing, reason: str):
    """In short steps, and where the device idles for another reason than its input."""
    found = useless(replayed(call_s), trace)
    assert reason in found
    assert bool(found) is bool(reason)


def test_a_call_of_several_steps_is_taken_apart():
    """Sixteen short steps in a long call are short steps."""
    trace = traced(device_compute=0.9)
    assert useless(replayed(160 * MS, 16), trace) == ""
    assert useless(replayed(160 * MS, 1), trace)

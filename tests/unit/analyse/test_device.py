"""A trace alone, and a trace held against the wall clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import Synthetic
from tests.traces import MS as NS_MS
from tests.traces import job
from tests.unit.checks.tracing import traced
from tfdiag.analyse.analysis import Analysis, analyse
from tfdiag.analyse.device import reconciled
from tfdiag.model.measurements import Traced
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import SEGMENTS, Step
from tfdiag.timeline import condense, read_trace

MS = 1e-3


def held_against(trace: bytes, **parts: Any) -> Analysis:
    """Analyse a live run that some steps were traced of."""
    measurements = Synthetic(accelerator=True, first_call=0.0, **parts).measurements()
    return analyse(replace(measurements, device=condense(read_trace(trace))))


def segments(analysis: Analysis) -> dict[str, float]:
    """Give the segments in ms; they add up."""
    step = analysis.step
    assert isinstance(step, Step)
    known = {name: part.value for name, part in step.segments.items() if isinstance(part, Quantity)}
    assert sum(known.values()) == pytest.approx(step.mean_s)
    return {name: round(seconds * 1e3, 3) for name, seconds in known.items() if seconds > 1e-9}


def test_a_trace_alone_gives_a_step():
    """All segments are there, they add up, and the verdict follows."""
    analysis = traced(host=NS_MS, wait=NS_MS, copy=7 * NS_MS, kernels=3)
    assert isinstance(analysis.step, Step)
    assert set(analysis.step.segments) == set(SEGMENTS)
    assert segments(analysis) == {"host": 1, "input_wait": 1, "host_to_device": 7, "device_compute": 3}
    assert analysis.verdict.code == "transfer-bound"
    assert analysis.step.mean.source.startswith("the trace: calls of the function")


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ({"wait": 5 * NS_MS}, "input-bound"),
        ({"late": NS_MS, "kernel": NS_MS // 2}, "launch-bound"),
        ({"collective": 5 * NS_MS}, "communication-bound"),
        ({"host": 9 * NS_MS}, "host-bound"),
        ({}, "compute-bound"),
    ],
)
def test_verdicts_of_traces(parts: dict[str, int], verdict: str):
    """Each is named by the segment that takes the step."""
    assert traced(**parts).verdict.code == verdict


def test_a_trace_like_the_live_run_is_taken_as_it_is():
    """Where traced steps take as long as live ones nothing is scaled."""
    trace = job(30, host=NS_MS, wait=2 * NS_MS, copy=3 * NS_MS, kernels=4, late=NS_MS // 4)
    found = held_against(trace, wait=2 * MS, compute=8 * MS, dispatch=0.0, loop=1 * MS)
    assert segments(found) == {
        "input_wait": 2, "host_to_device": 3, "device_compute": 4, "launch": 1, "host": 1,
    }  # fmt: skip


def test_what_the_profiler_adds_is_taken_from_dispatch():
    """A device takes as long as ever; it is the host's dispatch that the profiler slows."""
    trace = job(30, host=NS_MS, copy=3 * NS_MS, kernels=4, late=NS_MS)
    found = held_against(trace, compute=8 * MS, dispatch=0.0, loop=1 * MS)
    assert segments(found) == {"host_to_device": 3, "device_compute": 4, "launch": 1, "host": 1}


def test_the_live_run_tells_how_long_it_waits():
    """The trace saw 2 ms of waiting, the live run 5 ms of it."""
    trace = job(30, wait=2 * NS_MS, kernels=4, late=NS_MS // 4)
    found = held_against(trace, wait=5 * MS, compute=5 * MS, dispatch=0.0)
    assert segments(found) == {"input_wait": 5, "device_compute": 4, "launch": 1}


def test_a_trace_of_one_batch_takes_the_wait_of_the_live_run():
    """An input that can be read once is gone: one batch was traced, which nobody had to wait for."""
    trace = job(30, copy=NS_MS, kernels=4, late=NS_MS // 4)
    once = {"one_shot": True}
    found = held_against(trace, wait=5 * MS, compute=6 * MS, dispatch=0.0, job=once)
    assert segments(found) == {"input_wait": 5, "host_to_device": 1, "device_compute": 4, "launch": 1}
    unknown = held_against(trace, wait=5 * MS, compute=6 * MS, dispatch=0.0, job=once, waits=False).step
    assert isinstance(unknown, Step)
    copies = unknown.segments["host_to_device"]
    assert isinstance(copies, Missing)
    assert copies.reason.startswith("one batch was traced")


def test_waits_that_the_device_does_not_notice_are_none():
    """The host waits for input while the device computes."""
    trace = condense(read_trace(job(30, kernels=4, late=NS_MS // 4)))
    measurements = Synthetic(
        accelerator=True, first_call=0.0, wait=3 * MS, compute=2 * MS, dispatch=0.0
    ).measurements()
    found = analyse(replace(measurements, device=replace(trace, input_wait_s=3e-3)))
    assert segments(found) == {"device_compute": 4, "launch": 1}


def test_a_wait_below_zero_is_none():
    """Clock noise of the live run's wait goes nowhere."""
    steps = condense(read_trace(job(30, kernels=4, late=NS_MS // 4))).steps
    assert not isinstance(steps, Missing)
    call = reconciled(steps, period_s=5e-3, between_s=0.0, wait_s=-1e-4, traced_wait_s=0.0)
    parts = {name: part.value for name, part in call.segments.items() if isinstance(part, Quantity)}
    assert parts["input_wait"] == 0
    assert sum(parts.values()) == pytest.approx(5e-3)


def test_host_work_beside_a_busy_device_is_no_part_of_the_step():
    """Where the device computes on while Python is between two calls, the time is the device's."""
    trace = job(30, host=NS_MS, kernels=9)
    found = held_against(trace, compute=2 * MS, dispatch=0.0, loop=8 * MS)
    assert segments(found) == {"device_compute": 9, "host": 1}
    assert found.host_item("loop") == pytest.approx(1e-3)


def test_steps_of_one_call_share_its_trace():
    """A call of four steps is one traced step."""
    trace = job(30, host=NS_MS, kernels=8, late=NS_MS // 8)
    found = held_against(trace, compute=9 * MS, dispatch=0.0, loop=1 * MS, steps_per_call=4)
    assert segments(found) == {"device_compute": 2, "launch": 0.25, "host": 0.25}
    assert not isinstance(found.device, Missing)
    assert found.device.per_step(found.device.device.kernels) == pytest.approx(2)


def test_without_steps_the_trace_is_not_held_against_the_run():
    """The live run's own estimates stay."""
    measurements = Synthetic(accelerator=True, first_call=0.0).measurements()
    found = analyse(replace(measurements, device=Missing("the profiler is taken")))
    assert isinstance(found.step, Step)
    assert found.step.segments["host_to_device"] == Missing("the profiler is taken")


def test_without_a_trace_dispatch_on_a_device_is_not_known():
    """The host's ops end long before the device has computed: a long call tells nothing of either."""
    measurements = Synthetic(accelerator=True, compute=20 * MS, empty=False).measurements()
    assert not isinstance(measurements.replay, Missing)
    seen = replace(measurements.replay, traced=Traced(busy_s=0.01, call_s=(0.021,) * 40))
    found = analyse(replace(measurements, replay=seen))
    assert isinstance(found.step, Step)
    assert isinstance(found.step.segments["launch"], Missing)
    assert "trace" in found.step.segments["launch"].reason
    assert found.verdict.code == "inconclusive"


def test_a_copy_is_no_part_of_the_step_without_its_input():
    """The replayed batch is copied in each call; ahead of time it need not be, so the bound leaves it out."""
    trace = job(30, host=NS_MS, wait=2 * NS_MS, copy=3 * NS_MS, kernels=4, late=NS_MS // 4)
    found = held_against(trace, wait=2 * MS, compute=8 * MS, dispatch=0.0, loop=1 * MS)
    plain = analyse(Synthetic(wait=2 * MS, compute=8 * MS, dispatch=0.0, loop=1 * MS).measurements())
    bare, whole = found.bounds.replay, plain.bounds.replay
    assert isinstance(bare, Quantity)
    assert isinstance(whole, Quantity)
    assert bare.value == pytest.approx(whole.value - 3 * MS)
    assert (bare.origin, whole.origin) == ("estimated", "measured")
    best = found.bounds.best_speedup
    assert isinstance(best, Quantity)
    assert best.value == pytest.approx(11 / 5, rel=0.01)

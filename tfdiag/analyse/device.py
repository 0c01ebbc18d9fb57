"""What a trace says about the step: alone, or held against the wall clock of the live run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfdiag import stats
from tfdiag.model.device import DeviceTimes, DeviceTrace, TracedSteps
from tfdiag.model.measurements import Environment, Job, Measurements, Overhead
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import SEGMENTS, HostItem, Step
from tfdiag.version import __version__

__all__ = [
    "Call", "DeviceFacts", "device_facts", "measurements_of", "reconciled", "traced_call", "traced_step",
]  # fmt: skip

_ACTIVE = ("device_compute", "collective", "host_to_device", "device_to_host")
_FEW = 3
_SOURCE = "the trace"
_WAIT_SEEN_S = 1e-6


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The traced steps and the device that computed most in them."""

    steps: TracedSteps
    device: DeviceTimes
    calls_per_step: float = 1.0
    """Traced steps are calls of the train function; a call may make several steps."""

    def per_step(self, value: float) -> float:
        """Spread a sum over the traced steps."""
        return value / (self.steps.count * self.calls_per_step)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the train function, split by its trace; seconds."""

    segments: dict[str, Maybe]
    """Of the device and of what it waits for, without `host` and `compile`."""
    host_share: float
    """The part of the time between calls in which the device had nothing to do."""


def device_facts(trace: DeviceTrace | Missing, steps_per_call: int = 1) -> DeviceFacts | Missing:
    """Give the traced steps with their busiest device, or say why there is none."""
    if isinstance(trace, Missing):
        return trace
    if isinstance(trace.steps, Missing):
        return trace.steps
    busy = [device for device in trace.devices if device.kernels or device.collectives]
    if not busy:
        return Missing("no device computed in the trace")
    return DeviceFacts(trace.steps, max(busy, key=lambda each: each.busy_s), float(steps_per_call))


def traced_call(trace: DeviceTrace | Missing) -> TracedSteps | Missing:
    """Give the steps of a trace that can be held against the live run's calls."""
    facts = device_facts(trace)
    if isinstance(facts, Missing):
        return facts
    if facts.steps.whole:
        return Missing(f"the device trace does not tell one step from another ({facts.steps.found_by})")
    return facts.steps


def reconciled(
    steps: TracedSteps, *, period_s: float, between_s: float, wait_s: float | None, traced_wait_s: float
) -> Call:
    """Split a call's period on the wall clock by what its trace shows.

    Devices take the same time under the profiler, the host takes longer: so what a device did is taken in
    seconds, and by as much as traced steps are slower than live ones, the host's dispatch was slowed.
    `wait_s` is the live run's own wait for input, as far as it is known.
    """
    traced = steps.segments
    active = {name: traced.get(name, 0.0) for name in _ACTIVE}
    total = sum(active.values())
    scale = min(1.0, period_s / total) if total > 0 else 1.0
    active = {name: seconds * scale for name, seconds in active.items()}
    idle = max(0.0, period_s - sum(active.values()))
    host = min(between_s, idle, traced.get("host", 0.0))
    rest = idle - host
    slowed = max(0.0, steps.mean_s - period_s)
    launch = max(0.0, traced.get("launch", 0.0) - slowed)
    wait = traced.get("input_wait", 0.0)
    if wait_s is not None:
        # The device may compute while the host waits: only what it idles of that is a wait of the step.
        alone = min(1.0, wait / traced_wait_s) if traced_wait_s > _WAIT_SEEN_S else 1.0
        wait = min(rest, max(0.0, wait_s) * alone)  # two clocks tell it: it may come out below zero
        parts = {"launch": launch, "unexplained": traced.get("unexplained", 0.0)}
        parts = {"input_wait": wait, **_scaled(parts, rest - wait)}
    else:
        parts = _scaled(
            {"input_wait": wait, "launch": launch, "unexplained": traced.get("unexplained", 0.0)}, rest
        )
    told = "traced steps, held against the wall clock"
    segments: dict[str, Maybe] = {
        name: Quantity(seconds, "s", source=told, count=steps.count)
        for name, seconds in {**active, **parts}.items()
    }
    return Call(segments, host / between_s if between_s > 0 else 1.0)


def _scaled(parts: dict[str, float], total: float) -> dict[str, float]:
    have = sum(parts.values())
    if have <= 0:
        return {**dict.fromkeys(parts, 0.0), "unexplained": max(0.0, total)}
    return {name: seconds * max(0.0, total) / have for name, seconds in parts.items()}


def traced_step(trace: DeviceTrace) -> Step | Missing:
    """Give the mean step of a trace that comes without a live run."""
    steps = trace.steps
    if isinstance(steps, Missing):
        return steps
    hidden = {what for what, _ in trace.unknown}
    segments: dict[str, Maybe] = {}
    for name in SEGMENTS:
        segments[name] = Quantity(steps.segments.get(name, 0.0), "s", source=_SOURCE, count=steps.count)
    if not trace.devices:
        reason = Missing("there is no accelerator in the trace, so nothing crosses a bus")
        segments["host_to_device"] = segments["device_to_host"] = reason
        segments["collective"] = Missing("there is no accelerator in the trace")
    if "what the device waited for" in hidden:
        for name in ("input_wait", "launch", "host", "compile"):
            segments[name] = Missing("the trace holds no events of the host")
    elif steps.whole and not steps.segments.get("host"):
        segments["host"] = Missing("no step can be told from another, nor what lies between steps")
    series = np.asarray(steps.duration_s, dtype=np.float64)
    low = high = None
    if len(series) >= _FEW:
        # Around the mean of all steps and all devices; the series is of the first ones.
        spread = stats.mean(series)
        low = max(0.0, steps.mean_s - (spread.value - spread.low))
        high = steps.mean_s + (spread.high - spread.value)
    host = segments["host"]
    return Step(
        mean_s=steps.mean_s,
        mean=Quantity(steps.mean_s, "s", low, high, source=f"{_SOURCE}: {steps.found_by}", count=steps.count),
        median=Quantity(float(np.median(series)) if len(series) else steps.mean_s, "s", source=_SOURCE),
        segments=segments,
        host_items=(HostItem("between steps", host),) if isinstance(host, Quantity) else (),
        steady_steps=steps.count,
        first_step=Missing("a trace holds no first step that could be known as such"),
        compile_once=Missing("compiling inside the trace is in its steps"),
        first_batch=Missing("a trace does not tell when its input began"),
    )


_ELSEWHERE = Missing("a trace from elsewhere was analysed: nothing was run")


def measurements_of(trace: DeviceTrace, took_s: float) -> Measurements:
    """Give the measurements of a trace that comes without its job."""
    return Measurements(
        environment=Environment(
            tfdiag=__version__,
            python="",
            platform="",
            tensorflow="",
            keras="",
            cores=0,
            memory_bytes=0,
        ),
        job=Job(
            loop="unknown",
            model=trace.form,
            input=trace.source,
            notes=tuple(dict.fromkeys((*trace.warnings, *(f"{what}: {why}" for what, why in trace.unknown)))),
        ),
        live=_ELSEWHERE,
        replay=_ELSEWHERE,
        input_alone=_ELSEWHERE,
        pipeline=_ELSEWHERE,
        overhead=Overhead(took_s, per_step_s=_ELSEWHERE, budget_s=Missing("no budget: a file was read")),
        device=trace,
        gpu=_ELSEWHERE,
        placement=_ELSEWHERE,
    )

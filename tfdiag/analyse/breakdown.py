"""Where the time of a step goes: exclusive segments that add up to the mean step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tfdiag import stats
from tfdiag.analyse.device import Call, reconciled, traced_call
from tfdiag.analyse.estimated import estimated
from tfdiag.analyse.steady import Boundary, Steady
from tfdiag.model.device import DeviceTrace
from tfdiag.model.estimates import DeviceEstimates
from tfdiag.model.measurements import LOOP, InputAlone, Measurements, Replay, Traced
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Bounds, HostItem, Step
from tfdiag.stats import Estimate

__all__ = ["InputFacts", "ReplayFacts", "bounds_of", "break_down", "input_facts", "replay_facts"]

_WAIT_OVER_ALONE = 1.5
"""How much longer a batch may take beside a running step than alone."""
_STRETCH_LEAST = 5
_MOSTLY = 0.5
_LEFT = 0.02
"""Of a replayed call, at least this much is no copy."""
_NEEDS_DEVICE = "dispatch is told from what a device computes by its trace only"
_NO_BUS = "there is no accelerator, so nothing crosses a bus"


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """The step without input, in seconds per call of the train function."""

    call: Estimate
    paced: Estimate
    """At the pace of the job: what the same call takes when it does not follow the last one at once."""
    dispatch: float | Missing
    """Time of a call in which none of the step's own ops runs."""
    empty: Estimate | Missing
    graph: Estimate | Missing
    cpu_per_call_s: float
    arrival: Estimate | Missing
    """From the call's start to its batch when there is nothing to wait for: the median and the quartiles."""


@dataclass(frozen=True, slots=True)
class InputFacts:
    """The input without the model, in seconds per batch."""

    batch: Estimate
    cpu_per_batch_s: float


def _steady_mean(series: tuple[float, ...]) -> Estimate:
    values = np.asarray(series, dtype=np.float64)
    return stats.mean(values[stats.warmup_end(values) :])


def replay_facts(replay: Replay | Missing) -> ReplayFacts | Missing:
    """Condense a replay."""
    if isinstance(replay, Missing):
        return replay
    if len(replay.call_s) < 3:
        return Missing("the batch was replayed fewer than three times")
    empty: Estimate | Missing = Missing("the cost of dispatch was not measured")
    if len(replay.empty_call_s) >= 3:
        empty = stats.median(np.asarray(replay.empty_call_s))
    graph: Estimate | Missing = Missing(replay.graph_missing or "the job already runs as a graph")
    if len(replay.graph_call_s) >= 3:
        graph = _steady_mean(replay.graph_call_s)
    call = _steady_mean(replay.call_s)
    paced = call
    if len(replay.paced_call_s) >= 3:
        paced = _undisturbed(np.asarray(replay.paced_call_s))
    return ReplayFacts(
        call=call,
        paced=paced if paced.value > call.value else call,
        dispatch=replay.traced if isinstance(replay.traced, Missing) else _dispatch(replay.traced, paced),
        empty=empty,
        graph=graph,
        cpu_per_call_s=replay.cpu_s / len(replay.call_s),
        arrival=_arrival(replay.arrival_s),
    )


def _arrival(series: tuple[float, ...]) -> Estimate | Missing:
    if len(series) < 3:
        return Missing("no batch was stamped in the replay")
    low, middle, high = (float(each) for each in np.quantile(series, [0.25, 0.5, 0.75]))
    return Estimate(middle, low, high, len(series))


def _undisturbed(series: np.ndarray[Any, np.dtype[np.float64]]) -> Estimate:
    """Give the mean of the middle one of three stretches, one may have been slow; the interval is of all."""
    whole = stats.mean(series)
    if len(series) < 3 * _STRETCH_LEAST:
        return whole
    middle = float(np.median([stretch.mean() for stretch in np.array_split(series, 3)]))
    return Estimate(middle, min(whole.low, middle), max(whole.high, middle), whole.count)


def _dispatch(traced: Traced, call: Estimate) -> float:
    """Give how long no op of a call ran, less what the profiler adds to it."""
    slowed = float(np.mean(traced.call_s))
    idle = max(0.0, slowed - traced.busy_s / len(traced.call_s))
    return idle * min(1.0, call.value / slowed)


def input_facts(alone: InputAlone | Missing) -> InputFacts | Missing:
    """Condense what the input gave without the model."""
    if isinstance(alone, Missing):
        return alone
    if len(alone.batch_s) < 3:
        return Missing("fewer than four batches were read without the model")
    return InputFacts(_steady_mean(alone.batch_s), alone.cpu_s / len(alone.batch_s))


def break_down(measurements: Measurements, steady: Steady, replay: ReplayFacts | Missing) -> Step:
    """Split the mean step into its segments."""
    job = measurements.job
    live = measurements.live
    assert not isinstance(live, Missing)
    per_step = 1.0 / live.steps_per_call
    boundary, per_call = _boundary_per_call(steady)
    empty = replay if isinstance(replay, Missing) else replay.empty
    if _accelerated(measurements) and not isinstance(replay, Missing):
        # The host's trace tells when the host worked, and a device works on its own.
        unknown = Missing(_NEEDS_DEVICE)
        replay = replace(replay, dispatch=unknown, empty=unknown)
    wait, device, launch, unexplained = _inside_the_call(
        steady, replay, input_facts(measurements.input_alone), live.steps_per_call
    )
    restart = boundary.restart_s * per_call if boundary is not None else 0.0
    traced = _traced(measurements, steady)
    items = _host_items(steady, boundary, per_call, 1.0 if isinstance(traced, Missing) else traced.host_share)
    host = sum(item.per_step.value for item in items)
    total = steady.period.value + restart
    if boundary is not None:
        total += boundary.total_s * per_call
    if isinstance(wait, Quantity) and restart:
        wait = Quantity(
            wait.value + restart,
            wait.unit,
            None if wait.low is None else wait.low + restart,
            None if wait.high is None else wait.high + restart,
            wait.origin,
            wait.source + ", with the first batch of each epoch",
            wait.count,
        )
    compiled: Maybe = Quantity(steady.compile_s, "s", source="calls that traced", count=steady.traces)
    if (job.run_eagerly or job.loop == "custom") and not traces_known(measurements):
        compiled = Missing("traces are not counted in this kind of loop")
    elif steady.traces - steady.xla_calls > _MOSTLY * steady.calls:
        launch, compiled = _first_runs(launch, compiled, replay)
    crossing = Missing(_NO_BUS if not _accelerated(measurements) else _untraced(traced))
    segments: dict[str, Maybe] = {
        "input_wait": wait,
        "host_to_device": crossing,
        "device_compute": device,
        "collective": Missing("collectives are not traced yet") if job.replicas > 1
        else Missing("the job has one replica"),
        "launch": launch,
        "device_to_host": crossing,
        "host": Quantity(host, "s", source="between calls of the train function", count=steady.calls),
        "compile": compiled,
        "unexplained": unexplained,
    }  # fmt: skip
    if isinstance(traced, Call):
        segments.update(traced.segments)
        if isinstance(wait := segments["input_wait"], Quantity) and restart:
            segments["input_wait"] = replace(wait, value=wait.value + restart)
    elif (
        _accelerated(measurements)
        and isinstance(measurements.estimates, DeviceEstimates)
        and isinstance(device, Quantity)
    ):
        segments.update(estimated(measurements.estimates, device, live.steps_per_call, empty))
    half = (steady.period.high - steady.period.low) / 2
    return Step(
        mean_s=total * per_step,
        mean=Quantity(
            total * per_step,
            "s",
            max(0.0, total - half) * per_step,
            (total + half) * per_step,
            source="steady calls, and what happens between epochs",
            count=steady.calls * live.steps_per_call,
        ),
        median=_quantity(steady.median, "steady calls").scaled(per_step),
        segments={
            name: value.scaled(per_step) if isinstance(value, Quantity) else value
            for name, value in segments.items()
        },
        host_items=tuple(HostItem(item.name, item.per_step.scaled(per_step), item.note) for item in items),
        warmup_steps=steady.first * live.steps_per_call,
        steady_steps=steady.calls * live.steps_per_call,
        outliers=steady.outliers,
        first_step=steady.first_call,
        compile_once=steady.compile_once,
        epoch_restart=(
            Quantity(
                boundary.restart_s, "s", source="first batches of epochs over others", count=boundary.followed
            )
            if boundary is not None and boundary.followed
            else Missing("no epoch was followed by another while the job was watched")
        ),
        first_batch=(
            Quantity(measurements.input_alone.first_batch_s, "s", source="input alone", count=1)
            if isinstance(measurements.input_alone, InputAlone)
            else measurements.input_alone
        ),
    )


def _first_runs(launch: Maybe, compiled: Maybe, replay: ReplayFacts | Missing) -> tuple[Maybe, Maybe]:
    """Count what the first run of a graph takes as compiling, where hardly a graph is run twice.

    The replay then traces as well, so that its dispatch is not that of a graph; that of an empty one is.
    """
    if isinstance(launch, Missing) or isinstance(compiled, Missing):
        return launch, compiled
    if isinstance(replay, Missing) or isinstance(replay.empty, Missing):
        return launch, compiled
    first = max(0.0, launch.value - replay.empty.value)
    return (
        Quantity(launch.value - first, "s", origin="estimated", source="a call of an empty function"),
        replace(
            compiled, value=compiled.value + first, origin="estimated",
            source="calls that traced, with the first run of each graph",
        ),
    )  # fmt: skip


def traces_known(measurements: Measurements) -> bool:
    """Say whether each trace of a function was seen, whoever called it."""
    found = measurements.compilation
    return not isinstance(found, Missing) and not found.missing


def _traced(measurements: Measurements, steady: Steady) -> Call | Missing:
    """Split a call by its trace, where a device was traced."""
    trace = measurements.device
    steps = traced_call(trace)
    if isinstance(steps, Missing):
        return steps
    assert isinstance(trace, DeviceTrace)
    if measurements.job.one_shot and not isinstance(steady.wait, Estimate):
        return Missing("one batch was traced, and how long the run waited for others is not known")
    return reconciled(
        steps,
        period_s=steady.period.value - steady.compile_s,
        between_s=steady.between.value,
        wait_s=steady.wait.value if isinstance(steady.wait, Estimate) else None,
        traced_wait_s=trace.input_wait_s,
    )


def _untraced(traced: Call | Missing) -> str:
    return traced.reason if isinstance(traced, Missing) else ""


def _accelerated(measurements: Measurements) -> bool:
    placed = measurements.placement
    if isinstance(placed, Placement) and placed.devices:
        # One may be there that the step does not use.
        return not all(each.device.startswith("/CPU") for each in placed.devices)
    return any(device.kind != "CPU" for device in measurements.environment.devices)


_EPOCH_NOTES = {
    0: "no epoch ended by itself while the job was watched: its start and end are not in this",
    1: "start and end of the one epoch that was followed by another: the next need not take as long",
}


def _boundary_per_call(steady: Steady) -> tuple[Boundary | None, float]:
    if isinstance(steady.boundary, Missing) or isinstance(steady.calls_per_epoch, Missing):
        return None, 0.0
    return steady.boundary, 1.0 / max(1.0, steady.calls_per_epoch.value)


def _inside_the_call(
    steady: Steady, replay: ReplayFacts | Missing, alone: InputFacts | Missing, batches: int
) -> tuple[Maybe, Maybe, Maybe, Maybe]:
    """Split the mean call: wait, compute, launch, and what nothing explains."""
    inside = steady.duration.value - steady.compile_s
    count = steady.calls
    if isinstance(replay, Missing):
        return _without_replay(steady, inside, replay)
    if isinstance(steady.wait, Estimate):
        wait = _seen_wait(steady.wait, inside)
        step = inside - wait.value
    elif isinstance(steady.arrival, Estimate) and isinstance(replay.arrival, Estimate):
        wait = _stamped_wait(steady.arrival, replay.arrival, inside)
        step = inside - wait.value
    else:
        estimate = max(0.0, inside - replay.paced.value)
        if not isinstance(alone, Missing):
            # A step can't wait much longer for its batches than they take to be made.
            estimate = min(estimate, _WAIT_OVER_ALONE * alone.batch.high * batches)
        wait = Quantity(
            estimate,
            "s",
            min(estimate, max(0.0, steady.duration.low - steady.compile_s - replay.paced.high)),
            max(estimate, steady.duration.high - steady.compile_s - replay.paced.low),
            "estimated",
            f"the call less the replay, because {steady.wait.reason}",
            count,
        )
        step = inside - estimate
    # What the replay can't account for is not compute. Beyond it nothing is known; within its
    # interval the two are the same number.
    explained = min(step, replay.paced.high)
    unexplained = Quantity(
        step - explained, "s", source="the live call less its wait and the replay", count=count
    )
    launch, device = _launch_and_compute(replay, explained)
    return wait, device, launch, unexplained


def _seen_wait(wait: Estimate, inside: float) -> Quantity:
    """Give the wait for input; two clocks tell it, so it may come out outside of the call by a hair."""
    low, value, high = (min(max(0.0, end), inside) for end in (wait.low, wait.value, wait.high))
    return Quantity(value, "s", low, high, source="the runtime's gaps between batches", count=wait.count)


def _stamped_wait(live: Estimate, replay: Estimate, inside: float) -> Quantity:
    """Give the wait for input by when batches arrived: what it took longer than with nothing to wait for."""
    ends = (live.low - replay.high, live.value - replay.value, live.high - replay.low)
    low, value, high = (min(max(0.0, end), inside) for end in ends)
    return Quantity(
        value, "s", low, high,
        source="when each batch arrived in the call, less the same in the replay", count=live.count,
    )  # fmt: skip


def _launch_and_compute(replay: ReplayFacts, explained: float) -> tuple[Maybe, Maybe]:
    count = replay.call.count
    if not isinstance(replay.dispatch, Missing):
        # Dispatch is a fixed cost; what a slower or faster minute changes is the computing.
        launch = min(replay.dispatch, explained)
        return (
            Quantity(launch, "s", source="traced calls less the time in which their ops ran", count=count),
            Quantity(explained - launch, "s", source="the call less its wait and its dispatch", count=count),
        )
    if isinstance(replay.empty, Missing):
        return (
            replay.empty,
            Quantity(explained, "s", origin="estimated", source="replay, with its dispatch", count=count),
        )
    if isinstance(replay.graph, Estimate):
        # An eager step: what the graph does not need is dispatch.
        scale = explained / replay.call.value if replay.call.value > 0 else 0.0
        compute = max(0.0, replay.graph.value - min(replay.empty.value, replay.graph.value)) * scale
        launch = explained - compute
        source = "eager replay less the same step as a graph"
    else:
        launch = min(replay.empty.value, explained)
        compute = explained - launch
        source = "the same call with a step that does nothing"
    spread = replay.empty.high - replay.empty.value
    return (
        Quantity(
            launch, "s", max(0.0, launch - spread), launch + spread, "estimated", source,
            replay.empty.count,
        ),
        Quantity(
            compute,
            "s",
            max(0.0, compute - spread - (replay.call.value - replay.call.low)),
            compute + spread + (replay.call.high - replay.call.value),
            "estimated",
            "the call less its wait and its dispatch",
            count,
        ),
    )  # fmt: skip


def _without_replay(steady: Steady, inside: float, missing: Missing) -> tuple[Maybe, Maybe, Maybe, Maybe]:
    count = steady.calls
    launch = Missing(f"dispatch is not told apart from compute without a replay ({missing.reason})")
    if isinstance(steady.wait, Missing):
        return (
            steady.wait,
            Missing("the call can't be split without the waits"),
            launch,
            Quantity(inside, "s", source="the whole call of the train function", count=count),
        )
    wait = _seen_wait(steady.wait, inside)
    step = inside - wait.value
    return (
        wait,
        Quantity(
            step,
            "s",
            origin="estimated",
            source="the call less its wait, with dispatch",
            count=count,
        ),
        launch,
        Missing(f"without a replay nothing tells what the call does besides ({missing.reason})"),
    )


def _host_items(
    steady: Steady, boundary: Boundary | None, per_call: float, idle_share: float = 1.0
) -> list[HostItem]:
    """List what the host does between calls; `idle_share` of that the device has nothing to do."""
    items = []
    spent = 0.0
    for share in steady.callbacks:
        spent += share.per_call_s
        items.append(
            HostItem(
                f"callback {share.callback}.{share.method}",
                Quantity(share.per_call_s, "s", source="timed in fit", count=share.count),
            )
        )
    for did in steady.did:
        if did.callback == LOOP and did.method == "logs":
            spent += did.total_s
            items.append(
                HostItem(
                    "fetching logs",
                    Quantity(did.total_s, "s", source="timed where Keras asks for values", count=did.count),
                    "the values of each batch, which a callback with a batch hook makes fit wait for",
                )
            )
    # Clock readings sit a little outside of each other: the rest may come out below zero by a hair.
    scale = 1.0 if spent <= steady.between.value or spent == 0 else steady.between.value / spent
    if scale != 1.0:
        items = [HostItem(i.name, i.per_step.scaled(scale), i.note) for i in items]
    items.append(
        HostItem(
            "loop",
            Quantity(
                max(0.0, steady.between.value - spent * scale),
                "s",
                source="between calls, less callbacks",
                count=steady.calls,
            ),
            "the training loop itself, between steps",
        )
    )
    if idle_share < 1.0:
        items = [HostItem(i.name, i.per_step.scaled(idle_share), i.note) for i in items]
    if boundary is None:
        return items
    rest = boundary.total_s - boundary.validation_s
    unsure = boundary.total_s - boundary.surely_s
    if boundary.validation_s:
        items.append(
            HostItem(
                "validation",
                Quantity(
                    boundary.validation_s * per_call,
                    "s",
                    source="validation",
                    count=boundary.epochs,
                ),
                "; ".join(part for part in (boundary.validation_note, _split(boundary)) if part),
            )
        )
    if boundary.metrics_s:
        spent = min(boundary.metrics_s, rest)
        rest -= spent
        items.append(
            HostItem(
                "metrics",
                Quantity(spent * per_call, "s", source="timed in fit", count=boundary.epochs),
                "results and reset at the ends of epochs, spread over their steps",
            )
        )
    for name, method, seconds in boundary.callbacks:
        spent = min(seconds, rest)
        rest -= spent
        items.append(
            HostItem(
                f"callback {name}.{method}",
                Quantity(spent * per_call, "s", source="timed in fit", count=boundary.epochs),
                "once an epoch, spread over its steps",
            )
        )
    items.append(
        HostItem(
            "epoch",
            Quantity(
                max(0.0, rest) * per_call,
                "s",
                max(0.0, rest - unsure) * per_call,
                source="between epochs",
                count=boundary.followed,
            ),
            _EPOCH_NOTES.get(boundary.followed, "start and end of epochs, spread over their steps"),
        )
    )
    return items


def _split(boundary: Boundary) -> str:
    """Say in shares what the time of validation goes into."""
    if not boundary.validation_parts or boundary.validation_s <= 0:
        return ""
    parts = ((name, seconds / boundary.validation_s) for name, seconds in boundary.validation_parts)
    return ", ".join(f"{name} {share:.0%}" for name, share in parts if share >= 0.005)


def bounds_of(
    measurements: Measurements,
    steady: Steady | Missing,
    step: Step | Missing,
    replay: ReplayFacts | Missing,
    alone: InputFacts | Missing,
) -> Bounds:
    """Say how fast the step could be at most."""
    if isinstance(step, Missing) or isinstance(steady, Missing):
        reason = step if isinstance(step, Missing) else Missing("no steady state")
        return Bounds(reason, reason, reason, reason)
    live = measurements.live
    assert not isinstance(live, Missing)
    per_step = 1.0 / live.steps_per_call
    source: Maybe = alone if isinstance(alone, Missing) else _quantity(alone.batch, "input alone")
    if isinstance(replay, Missing):
        return Bounds(replay, source, Missing("needs both the replay and the input alone"), replay)
    bare = _without_copies(_quantity(replay.call, "replay of one batch").scaled(per_step), step)
    low, high = _ends(bare)
    overlap: Maybe = Missing("needs both the replay and the input alone")
    if not isinstance(alone, Missing):
        busy = (replay.cpu_per_call_s * per_step + alone.cpu_per_batch_s) / usable_cores(measurements)
        overlap = Quantity(
            max(bare.value, alone.batch.value, busy),
            "s",
            max(low, alone.batch.low, busy),
            max(high, alone.batch.high, busy),
            "estimated",
            "the longest of the step, the input, and their processor time over the cores",
        )
    best: Maybe = Missing("the replay took no time")
    if bare.value > 0:
        best = Quantity(
            step.mean_s / bare.value,
            "x",
            (step.mean.low or 0.0) / high,
            (step.mean.high or 0.0) / max(1e-12, low),
            bare.origin,
            "mean step over replay",
        )
    return Bounds(bare, source, overlap, best)


def usable_cores(measurements: Measurements) -> float:
    """Give the cores that the job may use, under the container's quota."""
    cores = float(measurements.environment.cores)
    quota = measurements.environment.cpu_quota
    return min(cores, quota.value) if isinstance(quota, Quantity) else cores


def _without_copies(replayed: Quantity, step: Step) -> Quantity:
    """Take off what the replayed batch costs to copy in each call: it is input, which may come ahead."""
    copies = step.segments["host_to_device"]
    if isinstance(copies, Missing) or copies.value <= 0:
        return replayed
    # What a trace of other calls says may be more than there is.
    left = max(replayed.value - copies.value, _LEFT * replayed.value)
    part = left / replayed.value
    low, high = _ends(replayed)
    source = f"{replayed.source}, less its copy to the device"
    return Quantity(left, "s", low * part, high * part, "estimated", source, replayed.count)


def _ends(quantity: Quantity) -> tuple[float, float]:
    low, high = quantity.low, quantity.high
    return quantity.value if low is None else low, quantity.value if high is None else high


def _quantity(estimate: Estimate, source: str) -> Quantity:
    return Quantity(estimate.value, "s", estimate.low, estimate.high, "measured", source, estimate.count)

"""The train step without its input, with batches of several sizes, on the accelerator and on the CPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfdiag.collect import replay
from tfdiag.collect.session import Session
from tfdiag.collect.sizes import Sizes, Work
from tfdiag.collect.worker import Worker
from tfdiag.compat import clones, host, keras, tensorflow
from tfdiag.compat import devices as door
from tfdiag.model.device import DeviceTrace, TracedSteps
from tfdiag.model.devices import DeviceRun, SizeTimes, StepOnDevices
from tfdiag.model.measurements import Job, Live, Replay
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["impossible", "measure_step", "step_on_devices", "too_much", "useless"]

_SHARE = 0.6
_AT_MOST_S = 8.0
_BUSY = 0.5
"""A device that computes for more of the step than this is not left for the CPU,"""
_SHORT_S = 0.02
"""unless the step is so short that a CPU could be done sooner."""
_TRACES = 1.2
"""On each device the step is built and traced anew: so many times what that took in the job."""
_CALLS = 30
_MEMORY_PART = 0.25
_COPIES = 4
"""Weights, gradients, and what an optimizer keeps, on each device."""
_MOST_BYTES = 16 * 2**20
"""The largest batch that is made: with those of its other sizes it stays below 64 MiB."""


def step_on_devices(
    session: Session,
    worker: Worker,
    job: Job,
    batch: Any,
    live: Live | Missing,
    replayed: Replay | Missing,
    trace: DeviceTrace | Missing,
) -> StepOnDevices | Missing:
    """Train copies of the model on the accelerator and on the CPU, where the CPU could be the faster one."""
    if not session.has_device:
        return Missing("there is no accelerator to hold against the CPU")
    if reason := impossible(session, job, live, replayed):
        return Missing(reason)
    assert isinstance(replayed, Replay)
    if reason := useless(replayed, trace):
        return StepOnDevices(0, (), spared=reason)
    assert isinstance(live, Live)
    if reason := too_much(session, job, live, replayed):
        return Missing(reason)
    if batch is None or not isinstance(job.batch_size, Quantity):
        return Missing("there is no batch to run the step on")
    devices = door.computing_devices()
    chosen = [devices[0], *[each for each in devices if each[1] != "CPU"][:1]]
    if len(chosen) < 2 or chosen[0][1] != "CPU":
        return Missing("TensorFlow lists no CPU beside an accelerator")
    session.say("running the step on each device")
    rows = round(job.batch_size.value)
    with session.phase("the step on each device"):
        until = session.deadline.share(_SHARE, _AT_MOST_S)

        def work() -> StepOnDevices:
            try:
                return measure_step(
                    session.request.model,
                    batch,
                    session.element_spec,
                    rows,
                    chosen,
                    until=until,
                    clock=session.request.clock,
                    should_stop=lambda: session.stopped_hard,
                )
            finally:
                gc.collect()  # models are circles of references, and these hold a device's memory

        found: StepOnDevices | Missing = session.guarded(worker, work, "running the step on each device")
    if isinstance(found, Missing):
        return found
    failed = [f"{run.device}: {run.failed}" for run in found.runs if not run.sizes]
    return Missing(f"the step did not run on {'; '.join(failed)}") if failed else found


def impossible(session: Session, job: Job, live: Live | Missing, replayed: Replay | Missing) -> str:
    """Say why the step can't be run on another device; empty where it can."""
    request = session.request
    if request.train_step is not None:
        return "a loop of the caller's own can't be put on another device"
    if job.replicas > 1 or job.strategy:
        return "a distributed step can't be put on another device"
    if job.run_eagerly:
        return "an eager step has its own cause of being slow"
    if isinstance(live, Missing) or not live.duration_s:
        return "the job did not run"
    if isinstance(replayed, Missing):
        return replayed.reason
    return ""


def useless(replayed: Replay, trace: DeviceTrace | Missing) -> str:
    """Say why the CPU can't be the faster one; empty where it can."""
    call_s = min(replayed.call_s, default=0.0)
    step_s = call_s / max(1, replayed.steps_per_call)
    steps = trace.steps if isinstance(trace, DeviceTrace) else trace
    if isinstance(steps, TracedSteps) and steps.mean_s > 0:
        waits = steps.segments.get("input_wait", 0.0) / steps.mean_s
        if waits >= _BUSY:
            return f"the device waits for input for {waits:.0%} of the step: no other would not"
        busy = steps.segments.get("device_compute", 0.0) / steps.mean_s
        if busy >= _BUSY and step_s > _SHORT_S:
            return f"the device computes for {busy:.0%} of the step: the CPU would not be faster"
    return ""


def too_much(session: Session, job: Job, live: Live, replayed: Replay) -> str:
    """Say what there is no room for; empty where there is."""
    parameters = job.parameters.value if isinstance(job.parameters, Quantity) else 0.0
    if _COPIES * 4 * parameters > _MEMORY_PART * host.free_memory_bytes():
        return "copies of the model would take too much memory"
    call_s = min(replayed.call_s, default=0.0)
    room = session.deadline.share(_SHARE, _AT_MOST_S) - session.request.clock()
    if 2 * (_TRACES * live.duration_s[0] + _CALLS * call_s) > room:
        return "building and tracing the step on two devices would not fit into the budget"
    return ""


def measure_step(
    model: Any,
    batch: Any,
    spec: Any,
    rows: int,
    devices: list[tuple[str, str]],
    *,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool] = lambda: False,
) -> StepOnDevices:
    """Train copies of a model on a batch, in several sizes, on each of the devices by turns."""
    steps = keras.steps_per_execution(model)
    batches = _Batches(model, batch, spec, rows)
    with door.quiet_tracing():
        # As in the job: a tf.device would move ops that TensorFlow leaves on the host.
        default = () if tensorflow.current_device() else ("/GPU:0",)
        sizes = Sizes(devices, until=until, clock=clock, should_stop=should_stop, by_default=default)
        sizes.begin(batches.prepare, rows)
        missing = batches.fixed
        if not missing and sizes.sizes and not (missing := sizes.fits(batches.prepare, max(1, rows // 2))):
            # Each size is traced anew, so none is spent on what a smaller batch would take.
            sizes.explore(batches.prepare, least=rows, most=batches.most)
            missing = sizes.stopped if len(sizes.sizes) < 2 else ""
        sizes.measure()
    return StepOnDevices(rows, tuple(_per_step(run, steps) for run in sizes.runs()), missing)


class _Batches:
    """Copies of the model, one for each device, and the batch in any size."""

    def __init__(self, model: Any, batch: Any, spec: Any, rows: int) -> None:
        self._model, self._batch, self._rows = model, batch, rows
        self._copies: dict[str, Any] = {}
        self._steps: dict[tuple[str, int], Callable[[Any], Any]] = {}
        self._made = {rows: batch}
        tf = tensorflow.tensorflow()
        parts = tf.nest.flatten(batch)
        alike = [door.rows_of(part) == rows for part in parts]
        self.fixed = "" if all(alike) else "the batch has parts that can't be tiled"
        self._spec = spec
        self.most = max(rows, int(rows * _MOST_BYTES / max(1, door.size_of(batch))))

    def prepare(self, device: str, rows: int) -> Work:
        """Make a step ready on a device, with a batch of so many rows."""
        tf = tensorflow.tensorflow()
        model, step = self._step(device, rows)
        if rows not in self._made:  # one for all devices
            self._made[rows] = tf.nest.map_structure(lambda part: door.with_rows(part, rows), self._batch)
        batch = self._made[rows]
        spec = self._spec if rows == self._rows else tf.nest.map_structure(_of_rows(rows), self._spec)
        iterator = iter(replay.resident(model, batch, spec))
        parts = [part for part in tf.nest.flatten(batch) if door.is_dense(part)]

        def there() -> list[Any]:
            return [door.resident(part, device) for part in parts]

        return Work(lambda: step(iterator), there if parts else None)

    def _step(self, device: str, rows: int) -> tuple[Any, Callable[[Any], Any]]:
        if device not in self._copies:
            # Keras chooses XLA where it sees an accelerator; on the CPU alone it does not.
            jit = False if device.startswith("/CPU") else None
            self._copies[device] = clones.clone(self._model, jit_compile=jit)
        copy = self._copies[device]
        if (device, rows) not in self._steps:
            # One for each size: after two of them Keras traces its function for any, which is slower.
            copy.train_function = None
            self._steps[device, rows] = keras.make_train_function(copy)
        return copy, self._steps[device, rows]


def _of_rows(rows: int) -> Callable[[Any], Any]:
    """Give what the input says of its batches, for batches of so many rows; it may leave their number open.

    A step that was traced for a known number has less to work out in each call.
    """
    tf = tensorflow.tensorflow()

    def change(spec: Any) -> Any:
        if not isinstance(spec, tf.TensorSpec) or not spec.shape.rank or spec.shape[0] is None:
            return spec
        return tf.TensorSpec([rows, *spec.shape[1:]], spec.dtype, spec.name)

    return change


def _per_step(run: DeviceRun, steps: int) -> DeviceRun:
    if steps == 1:
        return run

    def spread(series: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(seconds / steps for seconds in series)

    sizes = tuple(
        SizeTimes(size.rows, spread(size.call_s), spread(size.returns_s), size.there_s, spread(size.back_s))
        for size in run.sizes
    )
    return replace(run, sizes=sizes)

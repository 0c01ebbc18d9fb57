"""What comes after the live run: device traced, input alone, batch replayed, ops placed, stages sampled.

Each gives its measurement, or why there is none; what fails in one is a gap in the report.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tfdiag.collect import alone, replay
from tfdiag.collect.copies import measure_copies, measure_twice
from tfdiag.collect.device import LEAST, WARM, TracingRecorder
from tfdiag.collect.live import LiveRun
from tfdiag.collect.pipeline import describe_pipeline, hardly_waits, with_samples
from tfdiag.collect.placement import measure_placement, measure_placement_of_step
from tfdiag.collect.py_input import measure_py_input
from tfdiag.collect.session import Session
from tfdiag.collect.worker import EndOfRun, Worker
from tfdiag.compat import host, keras, tfdata
from tfdiag.model.device import DeviceTrace
from tfdiag.model.estimates import DeviceEstimates
from tfdiag.model.measurements import InputAlone, Job, Live, Replay
from tfdiag.model.pipeline import Pipeline, PyInput
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Missing, Quantity

__all__ = [
    "estimate_device", "input_dataset", "place_ops", "read_alone", "reads_once", "replay_batch",
    "sample_stages",
    "trace_batch", "trace_device",
]  # fmt: skip

_ALONE_SHARE = 0.2
_ALONE_AT_MOST_S = 3.0
_REPLAY_SHARE = 0.4
_REPLAY_AT_MOST_S = 5.0
_TRACE_SHARE = 0.3
_TRACE_AT_MOST_S = 4.0
_PLACEMENT_SHARE = 0.25
_PLACEMENT_AT_MOST_S = 4.0
_ESTIMATE_SHARE = 0.35
_ESTIMATE_AT_MOST_S = 4.0
_COPIES_SHARE = 0.3
_SAMPLES_SHARE = 0.8
_SAMPLES_AT_MOST_S = 8.0
_TRIALS_S = 8.0
"""What trials need at least; with less than half as much again left nothing is kept for them."""
_BUSY = 0.7
"""Of the wall time: a process that computes this much does not idle between its steps."""
_READ_ONCE = "the generator behind the dataset gives its elements only once, and the run has used them"


def trace_device(session: Session, live_run: LiveRun, worker: Worker) -> DeviceTrace | Missing:
    """Run the job once more for some steps, under the profiler; only where there is a device to see."""
    request = session.request
    if (reason := _untraceable(session)) is not None:
        return reason
    if reads_once(session):
        return Missing("the input can be read only once, and the run has used it")

    def run(recorder: TracingRecorder, done: Callable[[], bool]) -> None:
        if request.train_step is not None:
            live_run.loop_with(recorder, done)
        else:
            live_run.fit_with(recorder, validate=False)

    return _traced(session, worker, run)


def trace_batch(session: Session, worker: Worker, batch: Any) -> DeviceTrace | Missing:
    """Trace the step on one batch, where the input can't be read again."""
    request = session.request
    if (reason := _untraceable(session)) is not None:
        return reason
    own_step = request.train_step

    def run(recorder: TracingRecorder, done: Callable[[], bool]) -> None:
        step: Callable[[Any], Any]
        data: Any
        if own_step is not None:
            step, data = lambda source: own_step(next(source)), itertools.repeat(batch)
        else:
            step = keras.make_train_function(request.model)
            data = replay.resident(request.model, batch, session.element_spec)
        step = recorder.instrument(step, None)
        replay.repeat(step, data, pace=_pace(session), clock=request.clock, should_stop=done)

    trace = _traced(session, worker, run)
    if isinstance(trace, Missing):
        return trace
    # There is nothing to wait for: how much of the job's wait the device computes through was not seen.
    return replace(trace, source=f"{trace.source}, on one batch", input_wait_s=0.0)


def reads_once(session: Session) -> bool:
    """Say whether what the run took of its input is gone."""
    return session.request.source.one_shot or session.request.source.exhausts


def _untraceable(session: Session) -> Missing | None:
    request = session.request
    if not session.has_device:
        return Missing("there is no accelerator, so there is no device timeline")
    if not request.trace:
        return Missing("the caller asked for no trace")
    assert session.recorder is not None
    periods = session.recorder.periods()
    room = session.deadline.share(_TRACE_SHARE, _TRACE_AT_MOST_S) - request.clock()
    if len(periods) and float(np.median(periods)) * (WARM + LEAST + 1) > room:
        return Missing("some more steps, traced, would not fit into the budget")
    return None


def _traced(
    session: Session, worker: Worker, run: Callable[[TracingRecorder, Callable[[], bool]], None]
) -> DeviceTrace | Missing:
    request = session.request
    session.say("tracing the device")
    done = False

    def enough() -> None:
        nonlocal done
        done = True
        if request.train_step is None:
            request.model.stop_training = True

    with session.phase("tracing the device"):
        recorder = TracingRecorder(
            request.clock,
            session.tracer,
            steps_per_call=keras.steps_per_execution(request.model) if request.train_step is None else 1,
            until=session.deadline.share(_TRACE_SHARE, _TRACE_AT_MOST_S),
            on_done=enough,
            should_stop=lambda: session.stopped_hard,
        )

        def work() -> DeviceTrace | Missing:
            run(recorder, lambda: done or session.stopped_hard)
            return recorder.trace()

        try:
            traced: DeviceTrace | Missing = session.guarded(worker, work, "tracing the device")
        except EndOfRun:
            return Missing("the budget ended while the device was traced")
        return traced


def read_alone(session: Session, worker: Worker) -> tuple[InputAlone | Missing, Any]:
    """Read the input without the model, and keep its first batch."""
    session.say("reading the input without the model")
    source = session.request.source
    if source.one_shot and session.request.train_step is not None:
        return Missing("the input can be read only once"), source.first_batch
    if source.exhausts:
        return Missing(_READ_ONCE), None
    with session.phase("the input alone"):
        until = session.deadline.share(_ALONE_SHARE, _ALONE_AT_MOST_S)
        if source.one_shot:
            until = -math.inf  # a batch to replay is all that it can give; its rate is that of the kept batch

        def work() -> tuple[InputAlone | Missing, Any]:
            dataset, close = input_dataset(session)
            if dataset is None:
                return Missing("this Keras does not tell how it reads such an input"), None
            try:
                session.element_spec = getattr(dataset, "element_spec", None)
                measured = alone.measure_alone(
                    dataset,
                    until=until,
                    clock=session.request.clock,
                    should_stop=lambda: session.stopped_hard,
                )
            finally:
                close()
            if source.one_shot:
                return Missing("the input can be read only once"), measured.first_batch
            return measured.measured or Missing("no batch came"), measured.first_batch

        result: tuple[InputAlone | Missing, Any] = session.guarded(worker, work, "reading the input")
        return result


def input_dataset(session: Session) -> tuple[Any, Callable[[], None]]:
    """Build what `fit` would iterate, without the model."""
    source = session.request.source
    nothing = lambda: None  # noqa: E731  # the empty close of inputs without workers
    if session.request.train_step is not None:
        return source.fresh()["x"], nothing
    arguments = source.fresh() if not source.one_shot else source.replayable()
    if arguments is None:
        return None, nothing
    x = arguments["x"]
    if tfdata.is_distributed(x):
        return x, nothing
    arguments = {
        **{k: v for k, v in session.request.fit_kwargs.items() if k in ("class_weight", "shuffle")},
        **arguments,
    }
    adapted = keras.adapter_dataset(session.request.model, arguments)
    if adapted is None:
        return None, nothing
    dataset = getattr(adapted, "dataset", adapted)
    strategy: Any = getattr(session.request.model, "distribute_strategy", None)
    if int(getattr(strategy, "num_replicas_in_sync", 1) or 1) > 1:
        dataset = strategy.experimental_distribute_dataset(dataset)
    return dataset, getattr(adapted, "close", nothing)


def replay_batch(session: Session, worker: Worker, batch: Any) -> Replay | Missing:
    """Send one batch through the train function again and again."""
    if batch is None:
        return Missing("there is no batch to replay")
    session.say("replaying one batch")
    request = session.request
    pace = _pace(session)
    with session.phase("replay"):
        until = session.deadline.share(_REPLAY_SHARE, _REPLAY_AT_MOST_S)

        def stop() -> bool:
            return session.stopped_hard

        def work() -> Replay:
            if request.train_step is not None:
                return replay.measure_replay_of_step(
                    request.train_step,
                    batch,
                    pace=pace,
                    tracer=session.tracer,
                    until=until,
                    clock=request.clock,
                    should_stop=stop,
                )
            dataset = replay.resident(request.model, batch, session.element_spec)
            stamps = session.stamps
            staged = None if stamps is None else stamps.stage(dataset)
            return replay.measure_replay(
                request.model,
                dataset if staged is None else staged,
                pace=pace,
                tracer=session.tracer,
                until=until,
                clock=request.clock,
                should_stop=stop,
                stamps=None if staged is None else stamps,
                on_device=session.has_device,
            )

        result: Replay | Missing = session.guarded(worker, work, "replaying a batch")
        return result


def place_ops(
    session: Session, worker: Worker, job: Job, batch: Any, live: Live, replayed: Replay | Missing
) -> Placement | Missing:
    """See which op of the step runs where, and time those that hold it up."""
    if batch is None:
        return Missing("there is no batch to run the step on")
    if isinstance(replayed, Missing):
        return replayed
    if job.run_eagerly:
        return Missing("an eager step has no graph that says where its ops run")
    request = session.request
    options: dict[str, Any] = {
        "first_call_s": max(live.duration_s[:1], default=0.0),
        "call_s": min(replayed.call_s, default=0.0),
        "tracer": session.tracer,
        "clock": request.clock,
    }
    size = round(job.batch_size.value) if isinstance(job.batch_size, Quantity) else None
    with session.phase("op placement"):
        options["until"] = session.deadline.share(_PLACEMENT_SHARE, _PLACEMENT_AT_MOST_S)

        def work() -> Placement | Missing:
            if request.train_step is not None:
                return measure_placement_of_step(request.train_step, batch, size=size, **options)
            return measure_placement(
                request.model,
                lambda: replay.resident(request.model, batch, session.element_spec),
                batch=size,
                **options,
            )

        result: Placement | Missing = session.guarded(worker, work, "placing ops")
        return result


def estimate_device(
    session: Session, worker: Worker, job: Job, batch: Any, live: Live, device: DeviceTrace | Missing
) -> DeviceEstimates | Missing:
    """Time copies and a longer batch, where no trace tells what the device did."""
    if not session.device:
        return Missing("there is no accelerator")
    if isinstance(device, DeviceTrace) and any(each.kernels or each.collectives for each in device.devices):
        return Missing("the device was traced")
    request = session.request
    if batch is None:
        return Missing("there is no batch to copy")
    if job.replicas > 1:
        return Missing("the job has several replicas")
    session.say("timing copies to the device")
    with session.phase("copies and a longer batch"):
        until = session.deadline.share(_ESTIMATE_SHARE, _ESTIMATE_AT_MOST_S)
        clock = request.clock

        def stop() -> bool:
            return session.stopped_hard

        def copies() -> DeviceEstimates:
            end = clock() + _COPIES_SHARE * (until - clock())
            return measure_copies(batch, session.device, until=end, clock=clock, should_stop=stop)

        def twice() -> tuple[tuple[float, ...], tuple[float, ...]] | Missing:
            return measure_twice(
                request.model, request.train_step, batch, session.element_spec, device=session.device,
                first_call_s=max(live.duration_s[:1], default=0.0), until=until, clock=clock,
                should_stop=stop,
            )  # fmt: skip

        copied: DeviceEstimates | Missing = session.guarded(worker, copies, "copying the batch to the device")
        if isinstance(copied, Missing):
            copied = DeviceEstimates(copies_missing=copied.reason)
        longer = session.guarded(worker, twice, "a batch of twice the size")
        if isinstance(longer, Missing):
            return replace(copied, twice_missing=longer.reason)
        return replace(copied, once_s=longer[0], twice_s=longer[1])


def sample_stages(
    session: Session, worker: Worker, live: Live | Missing, replayed: Replay | Missing
) -> Pipeline | Missing:
    """Describe the pipeline; where the step waits for it, sample what its stages cost."""
    x = session.request.source.data.get("x")
    folder = str(session.folder)
    described = describe_pipeline(x, session.recorder, folder)
    if keras.is_py_dataset(x):
        return _with_py_input(session, worker, x, described, live, replayed)
    if isinstance(described, Missing) or not described.graph:
        return described
    if session.request.source.exhausts:
        return replace(described, samples_missing=_READ_ONCE)
    if hardly_waits(live, replayed):
        return replace(described, samples_missing="the step hardly waits for its input")
    session.say("sampling the stages of the input")
    with session.phase("stages of the input"):
        until = _samples_until(session)

        def work() -> Pipeline | Missing:
            return with_samples(
                described,
                x,
                cache_folder=folder,
                cores=host.cores(),
                until=until,
                clock=session.request.clock,
                should_stop=lambda: session.stopped_hard,
                longest_s=_typical_wait(live),
            )

        found = session.guarded(worker, work, "sampling the stages")
        if isinstance(found, Missing):
            return replace(described, samples_missing=found.reason)
        result: Pipeline = found
        return result


def _with_py_input(
    session: Session,
    worker: Worker,
    dataset: Any,
    described: Pipeline | Missing,
    live: Live | Missing,
    replayed: Replay | Missing,
) -> Pipeline | Missing:
    """Ask a PyDataset for batches directly, where the step waits for them."""
    if hardly_waits(live, replayed):
        return described
    session.say("asking the PyDataset for batches")
    with session.phase("stages of the input"):
        until = _samples_until(session)

        def work() -> PyInput:
            return measure_py_input(
                dataset,
                cores=host.cores(),
                until=until,
                clock=session.request.clock,
                should_stop=lambda: session.stopped_hard,
            )

        asked: PyInput | Missing = session.guarded(worker, work, "asking the PyDataset for batches")
    if isinstance(described, Missing):
        described = Pipeline(missing=described.reason, graph_missing="a PyDataset has no graph")
    return replace(described, py_input=asked)


def _samples_until(session: Session) -> float:
    """Give when sampling is to end: nothing comes after it but trials."""
    trials_fit = session.request.verify and session.deadline.left() > 1.5 * _TRIALS_S
    if trials_fit:
        return session.request.clock() + min(_SAMPLES_AT_MOST_S, session.deadline.left() - _TRIALS_S)
    return session.deadline.share(_SAMPLES_SHARE, _SAMPLES_AT_MOST_S)


def _typical_wait(live: Live | Missing) -> float:
    """Give what a step waits for its input, at least; 0 where nobody knows."""
    if isinstance(live, Missing):
        return 0.0
    known = np.array(live.wait_s)
    known = known[~np.isnan(known)]
    return float(np.median(known)) if len(known) else 0.0


def _pace(session: Session) -> replay.Pace:
    """Say how long the job leaves between the work of two steps, and whether it idles meanwhile."""
    assert session.recorder is not None
    live = session.recorder.live()
    start, duration = np.array(live.start_s), np.array(live.duration_s)
    if len(start) < 3:
        return replay.Pace(0.0, False)
    # An arrival is little later than the wait: the way to the batch is in it.
    arrivals = np.array(live.arrival_s or live.wait_s)
    waits = np.where(np.isnan(live.wait_s), arrivals, live.wait_s)
    waits = np.nan_to_num(waits)[:-1]
    pause = float(np.median(np.diff(start) - duration[:-1] + waits))
    inside = [s for s in session.samples() if start[0] <= s.at_s <= start[-1]]
    busy = False
    if len(inside) > 1:
        wall = inside[-1].at_s - inside[0].at_s
        busy = inside[-1].process_cpu_s - inside[0].process_cpu_s > _BUSY * wall
    return replay.Pace(max(0.0, pause), busy)

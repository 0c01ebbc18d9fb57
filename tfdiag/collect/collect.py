"""Runs the caller's job in phases and brings the measurements home, leaving everything as it was.

The phases: facts and snapshot; the job as it is, through the caller's own `fit`; the input alone; one batch
replayed. Whatever ends them (enough seen, the budget, an error, Ctrl-C), the snapshot is put back.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tfdiag import stats
from tfdiag.collect import alone, replay
from tfdiag.collect.deadline import Deadline
from tfdiag.collect.device import LEAST, WARM, TracingRecorder
from tfdiag.collect.environment import read_environment
from tfdiag.collect.inputs import Input
from tfdiag.collect.job import batch_facts, batch_tensors, describe
from tfdiag.collect.loop import run_own_loop
from tfdiag.collect.pipeline import describe_pipeline, hardly_waits, with_samples
from tfdiag.collect.placement import measure_placement, measure_placement_of_step
from tfdiag.collect.py_input import measure_py_input
from tfdiag.collect.recorder import EndOfRun, Recorder
from tfdiag.collect.redirect import redirect_files
from tfdiag.collect.sampler import HostSampler
from tfdiag.collect.snapshot import Snapshot
from tfdiag.collect.telemetry import GpuSampler
from tfdiag.collect.worker import Abandoned, Worker
from tfdiag.compat import host, keras, tensorflow, tfdata
from tfdiag.compat.profiler import Tracer
from tfdiag.compat.stamps import Stamps, can_be_stamped
from tfdiag.errors import DatasetError, JobError, TfdiagError
from tfdiag.model.device import DeviceTrace
from tfdiag.model.measurements import (
    Environment,
    HostSample,
    InputAlone,
    Job,
    Live,
    Measurements,
    Overhead,
    Replay,
)
from tfdiag.model.pipeline import Pipeline, PyInput
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["Request", "collect"]

_LIVE_SHARE = 0.4
_LIVE_AT_MOST_S = 12.0
_LIVE_AT_LEAST_S = 2.5
_ALONE_SHARE = 0.2
_ALONE_AT_MOST_S = 3.0
_REPLAY_SHARE = 0.4
_REPLAY_AT_MOST_S = 5.0
_TRACE_SHARE = 0.3
_TRACE_AT_MOST_S = 4.0
_PLACEMENT_SHARE = 0.25
_PLACEMENT_AT_MOST_S = 4.0
_SAMPLES_SHARE = 0.8
_SAMPLES_AT_MOST_S = 8.0
_GRACE_SHARE = 0.05
"""Of the budget: how long a phase may take to unwind after its end."""
_RESERVE_S = 0.15
"""What the analysis and the report need after the last phase."""
_BUSY = 0.7
"""Of the wall time: a process that computes this much does not idle between its steps."""
_STEADY_LEAST = 30
_GOOD_ENOUGH = 0.02
_STATISTICS_EVERY_S = 0.4
"""They take milliseconds, which the job would have to wait for."""
_EPOCHS_LEAST = 3
_READ_ONCE = "the generator behind the dataset gives its elements only once, and the run has used them"
_MANY_EPOCHS = 1_000_000


@dataclass(slots=True)
class Request:
    """What the caller asked for, already checked."""

    model: Any
    source: Input
    fit_kwargs: dict[str, Any]
    train_step: Callable[[Any], Any] | None
    budget_s: float
    steps: int | None
    clock: Callable[[], float]
    callbacks: list[Any] = field(default_factory=list)
    progress: Callable[[str], None] | None = None
    trace: bool = True
    """Trace some steps where there is a device to see."""


def collect(request: Request, make_callback: Callable[[Recorder], Any]) -> Measurements:
    """Measure the job; everything of the caller's is as before, also when this raises."""
    environment = read_environment(request.model)
    folder = Path(tempfile.mkdtemp(prefix="tfdiag-"))
    # Warning filters belong to the whole process, so this thread changes them: it always comes back.
    with keras.quiet():
        return _Collection(request, make_callback, folder).run(environment)


class _Collection:
    def __init__(self, request: Request, make_callback: Callable[[Recorder], Any], folder: Path) -> None:
        self.request = request
        self.make_callback = make_callback
        self.deadline = Deadline(request.clock, request.budget_s)
        self.stopping = False
        self.notes: list[str] = []
        self.recorder: Recorder | None = None
        self.run_epoch_steps: float | None = None
        self.live_soft_end = math.inf
        self.live_hard_end = math.inf
        self.next_statistics = -math.inf
        self.element_spec: Any = None
        self.stamps: Stamps | None = None
        self.folder = folder
        self.tracer = Tracer(folder)
        self.placement: Placement | Missing = Missing("the budget was used up before ops were placed")
        self.samples: Callable[[], tuple[HostSample, ...]] = tuple
        self.has_device = False

    def run(self, environment: Environment) -> Measurements:
        request, folder = self.request, self.folder
        self.has_device = any(device.kind != "CPU" for device in environment.devices)
        request.source.cache_folder = str(folder)
        snapshot: Snapshot | None = None
        worker: Worker | None = None
        try:
            with self._phase("facts and snapshot"):
                snapshot = Snapshot(self._roots(), folder)
                redirected = redirect_files(request.callbacks, folder)
                if redirected:
                    self.notes.append(
                        f"{', '.join(redirected)} wrote to a private folder during the diagnosis"
                    )
                job = self._describe()
            worker = Worker(request.clock)
            return self._measure(worker, environment, job)
        finally:
            if self.tracer.running:
                self.tracer.stop()
            self._clean_up(worker, snapshot, folder)

    def _clean_up(self, worker: Worker | None, snapshot: Snapshot | None, folder: Path) -> None:
        model = self.request.model

        def put_back() -> None:
            try:
                if snapshot is not None:
                    snapshot.restore()
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        if worker is None or not worker.abandoned:
            if worker is not None:
                worker.close()
            put_back()
            return
        # The step is still running and will write its update when it ends: put back now for whoever
        # looks at the model, again when it is out, and let nobody train in between.
        if snapshot is not None:
            snapshot.restore()
        before = getattr(model, "train_function", None)
        worker.close(on_return=put_back)

        def wait_first(iterator: Any) -> Any:
            worker.returned.wait()
            model.train_function = before
            return keras.make_train_function(model)(iterator)

        if not worker.returned.is_set() and self.request.train_step is None:
            model.train_function = wait_first

    # --- phases -------------------------------------------------------------------------------------

    def _measure(self, worker: Worker, environment: Any, job: Job) -> Measurements:
        live: Live | Missing
        pipeline: Pipeline | Missing | None = None
        alone_: InputAlone | Missing = Missing("the budget was used up by the job itself")
        replayed: Replay | Missing = Missing("the budget was used up by the job itself")
        device: DeviceTrace | Missing = Missing("the budget was used up by the job itself")
        gpus = GpuSampler(self.request.clock, environment.devices)
        with HostSampler(self.request.clock) as sampler, gpus:
            self.samples = sampler.samples
            try:
                live = self._live(worker)
                with contextlib.suppress(Abandoned):
                    device = self._trace(worker)
                    alone_, batch = self._alone(worker, live)
                    replayed = self._replay(worker, batch, alone_)
                    if batch is not None and self._reads_once():
                        device = self._trace_batch(worker, batch)
                    job = self._with_batch(job, batch)
                    self.placement = self._placement(worker, job, batch, live, replayed)
                    del batch  # the stages make more of them
                    pipeline = self._pipeline(worker, live, replayed)
            except Abandoned:
                live = self._overrun()
        host = sampler.samples()
        recorder = self.recorder
        source = self.request.source
        if pipeline is None:
            pipeline = describe_pipeline(source.data.get("x"), recorder, str(self.folder))
            if recorder is not None and recorder.hung_in_input and isinstance(pipeline, Pipeline):
                pipeline = replace(pipeline, hung=True)
        job = replace(
            job,
            one_shot=source.one_shot,
            batches_used=source.batches_used if source.one_shot else None,
            notes=(*job.notes, *self.notes, *source.notes),
        )
        return Measurements(
            environment=environment,
            job=job,
            live=live,
            replay=replayed,
            input_alone=alone_,
            pipeline=pipeline,
            overhead=Overhead(
                total_s=self.deadline.spent(),
                phases_s=dict(self.deadline.phases_s),
                per_step_s=recorder.overhead() if recorder is not None else Missing("nothing ran"),
                budget_s=Quantity(self.request.budget_s, "s", origin="given"),
            ),
            host=host,
            device=device,
            gpu=gpus.telemetry(),
            placement=self.placement,
        )

    def _live(self, worker: Worker) -> Live:
        self._say("running the job as it is")
        clock = self.request.clock
        left = max(0.0, self.deadline.left())
        self.live_soft_end = clock() + min(_LIVE_AT_MOST_S, _LIVE_SHARE * left)
        # Jobs with slow steps may take more of the budget: few steps are better than none.
        self.live_hard_end = clock() + 0.8 * left
        steps_per_call = (
            keras.steps_per_execution(self.request.model) if self.request.train_step is None else 1
        )
        self.recorder = Recorder(clock, steps_per_call=steps_per_call, on_look=self._look)
        self.recorder.hot.stop_at = self.live_soft_end
        run = self._own_loop if self.request.train_step is not None else self._fit
        with self._phase("the job as it is"):
            try:
                worker.run(
                    run, until=self.deadline.end - _RESERVE_S, grace_s=self._grace(), stop=self._stop_now
                )
            except EndOfRun:
                # From where the caller's workers and iterators are still held: see Worker.run.
                self.recorder.cut = self.recorder.cut or "the budget ended"
            except (TfdiagError, Abandoned, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                raise self._job_error(error) from error
        if not self.recorder.calls:
            raise DatasetError(
                f"the {self.request.source.kind} is empty: it gave no batch, so there is no step to measure"
            )
        return self.recorder.live()

    def _fit(self) -> None:
        assert self.recorder is not None
        self._fit_with(self.recorder, validate=True)

    def _fit_with(self, recorder: Recorder, *, validate: bool) -> None:
        request = self.request
        kwargs = dict(request.fit_kwargs)
        for name in ("x", "y", "sample_weight", "batch_size"):
            kwargs.pop(name, None)
        callback = self.make_callback(recorder)
        callbacks = [*request.callbacks, callback]
        kwargs["callbacks"] = callbacks
        kwargs["verbose"] = 0
        kwargs["epochs"] = self._epochs(kwargs)
        if not validate:
            kwargs.pop("validation_data", None)
            kwargs.pop("validation_split", None)
        if "validation_data" in kwargs:
            kwargs["validation_data"] = request.source.copied(kwargs["validation_data"])
            kwargs["validation_freq"] = 1
        try:
            data = request.source.fresh()
            request.model.fit(**(self._stamped(data) if validate else data), **kwargs)
        finally:
            callback.close()
            callback.take_down()

    def _stamped(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Stamp the batches of our copy of the dataset where the runtime keeps no model that tells the waits.

        The stamp has to be the last thing before the step: Keras prefetches behind class weights, and a
        strategy behind everything.
        """
        request, recorder = self.request, self.recorder
        assert recorder is not None
        x = arguments.get("x")
        if (
            recorder.steps_per_call != 1
            or request.fit_kwargs.get("class_weight") is not None
            or not keras.has_default_strategy(request.model)
            or not can_be_stamped(x)
        ):
            return arguments
        stamps = Stamps(request.clock)
        staged = stamps.stage(x)
        if staged is None:
            return arguments
        stamps.measure_cost()
        self.stamps = recorder.stamps = stamps
        return {**arguments, "x": staged}

    def _epochs(self, kwargs: Mapping[str, Any]) -> int:
        """Give enough epochs; an input that can be read once has those that the caller asked for."""
        first = int(kwargs.get("initial_epoch", 0) or 0)
        if self.request.source.one_shot and not kwargs.get("steps_per_epoch"):
            return first + 1
        return first + _MANY_EPOCHS

    def _own_loop(self) -> None:
        assert self.recorder is not None
        self._loop_with(self.recorder, lambda: self.stopping)

    def _loop_with(self, recorder: Recorder, should_stop: Callable[[], bool]) -> None:
        assert self.request.train_step is not None
        run_own_loop(
            self.request.source.fresh()["x"], self.request.train_step, recorder, should_stop=should_stop
        )

    def _trace(self, worker: Worker) -> DeviceTrace | Missing:
        """Run the job once more for some steps, under the profiler; only where there is a device to see."""
        request = self.request
        if (reason := self._untraceable()) is not None:
            return reason
        if self._reads_once():
            return Missing("the input can be read only once, and the run has used it")

        def run(recorder: TracingRecorder, done: Callable[[], bool]) -> None:
            if request.train_step is not None:
                self._loop_with(recorder, done)
            else:
                self._fit_with(recorder, validate=False)

        return self._traced(worker, run)

    def _trace_batch(self, worker: Worker, batch: Any) -> DeviceTrace | Missing:
        """Trace the step on one batch, where the input can't be read again."""
        request = self.request
        if (reason := self._untraceable()) is not None:
            return reason
        own_step = request.train_step

        def run(recorder: TracingRecorder, done: Callable[[], bool]) -> None:
            step: Callable[[Any], Any]
            data: Any
            if own_step is not None:
                step, data = lambda source: own_step(next(source)), itertools.repeat(batch)
            else:
                step = keras.make_train_function(request.model)
                data = replay.resident(request.model, batch, self.element_spec)
            step = recorder.instrument(step, None)
            replay.repeat(step, data, pace=self._pace(), clock=request.clock, should_stop=done)

        trace = self._traced(worker, run)
        if isinstance(trace, Missing):
            return trace
        # There is nothing to wait for: how much of the job's wait the device computes through was not seen.
        return replace(trace, source=f"{trace.source}, on one batch", input_wait_s=0.0)

    def _reads_once(self) -> bool:
        return self.request.source.one_shot or self.request.source.exhausts

    def _untraceable(self) -> Missing | None:
        request = self.request
        if not self.has_device:
            return Missing("there is no accelerator, so there is no device timeline")
        if not request.trace:
            return Missing("the caller asked for no trace")
        assert self.recorder is not None
        periods = self.recorder.periods()
        room = self.deadline.share(_TRACE_SHARE, _TRACE_AT_MOST_S) - request.clock()
        if len(periods) and float(np.median(periods)) * (WARM + LEAST + 1) > room:
            return Missing("some more steps, traced, would not fit into the budget")
        return None

    def _traced(
        self, worker: Worker, run: Callable[[TracingRecorder, Callable[[], bool]], None]
    ) -> DeviceTrace | Missing:
        request = self.request
        self._say("tracing the device")
        done = False

        def enough() -> None:
            nonlocal done
            done = True
            if request.train_step is None:
                request.model.stop_training = True

        with self._phase("tracing the device"):
            recorder = TracingRecorder(
                request.clock,
                self.tracer,
                steps_per_call=keras.steps_per_execution(request.model) if request.train_step is None else 1,
                until=self.deadline.share(_TRACE_SHARE, _TRACE_AT_MOST_S),
                on_done=enough,
                should_stop=lambda: self.stopped_hard,
            )

            def work() -> DeviceTrace | Missing:
                run(recorder, lambda: done or self.stopped_hard)
                return recorder.trace()

            try:
                traced: DeviceTrace | Missing = self._guarded(worker, work, "tracing the device")
            except EndOfRun:
                return Missing("the budget ended while the device was traced")
            return traced

    def _look(self, recorder: Recorder) -> None:
        """Decide after every few calls whether the run has seen enough."""
        now = self.request.clock()
        if now >= self.live_hard_end and not self.stopping:
            recorder.cut = recorder.cut or "the budget ended"
        if recorder.empty_epochs:
            self.stopping = True  # or fit would go through empty epochs for ever
        if not self.stopping and not self._enough(recorder, now):
            return
        self.stopping = True
        recorder.hot.stop_at = -math.inf
        if self.request.train_step is None:
            self.request.model.stop_training = True
        validated = any(run.complete for run in recorder.validations)
        share = 0.0 if validated else 0.25 * max(0.0, self.deadline.left())
        recorder.test_stop_at = now + share
        if now >= self.deadline.end - _RESERVE_S:
            raise EndOfRun

    def _enough(self, recorder: Recorder, now: float) -> bool:
        calls = len(recorder.calls)
        steps = calls * recorder.steps_per_call
        if self.request.steps is not None and steps >= self.request.steps:
            return True
        if now >= self.live_hard_end:
            return True
        if now < self.next_statistics and now < self.live_soft_end:
            return False
        self.next_statistics = now + _STATISTICS_EVERY_S
        periods = recorder.periods()
        if now >= self.live_soft_end:
            # Past the soft end only a run with hardly any steps goes on.
            return calls >= 8 or now + 2 * float(np.max(periods, initial=0.0)) > self.live_hard_end
        if self.request.steps is not None or len(periods) < _STEADY_LEAST:
            return False
        cut = stats.warmup_end(periods)
        steady = periods[cut:]
        if len(steady) < _STEADY_LEAST or now - recorder.calls[0][1] < _LIVE_AT_LEAST_S:
            return False
        if not self._epochs_seen(recorder, float(np.median(steady))):
            return False
        return stats.mean(steady).relative_half_width < _GOOD_ENOUGH

    def _epochs_seen(self, recorder: Recorder, period: float) -> bool:
        """Say whether short epochs were seen often enough; long ones are not waited for."""
        ended = sum(event.kind == "epoch_end" for event in recorder.events)
        if ended >= _EPOCHS_LEAST:
            return True
        room = self.live_soft_end - self.request.clock()
        if ended:
            first = next(e for e in recorder.events if e.kind == "epoch_begin")
            last = [e for e in recorder.events if e.kind == "epoch_end"][-1]
            return (last.at_s - first.at_s) / ended > room
        length = self.run_epoch_steps
        if length is None:
            return True
        return length / recorder.steps_per_call * period > room

    def _alone(self, worker: Worker, live: Live) -> tuple[InputAlone | Missing, Any]:
        self._say("reading the input without the model")
        source = self.request.source
        if source.one_shot and self.request.train_step is not None:
            return Missing("the input can be read only once"), source.first_batch
        if source.exhausts:
            return Missing(_READ_ONCE), None
        with self._phase("the input alone"):
            until = self.deadline.share(_ALONE_SHARE, _ALONE_AT_MOST_S)

            def work() -> tuple[InputAlone | Missing, Any]:
                dataset, close = self._dataset()
                if dataset is None:
                    return Missing("this Keras does not tell how it reads such an input"), None
                try:
                    self.element_spec = getattr(dataset, "element_spec", None)
                    measured = alone.measure_alone(
                        dataset,
                        until=until,
                        clock=self.request.clock,
                        should_stop=lambda: self.stopped_hard,
                    )
                finally:
                    close()
                if source.one_shot:
                    return Missing("the input can be read only once"), measured.first_batch
                return measured.measured or Missing("no batch came"), measured.first_batch

            result: tuple[InputAlone | Missing, Any] = self._guarded(worker, work, "reading the input")
            return result

    stopped_hard = False

    def _dataset(self) -> tuple[Any, Callable[[], None]]:
        """Build what `fit` would iterate, without the model."""
        source = self.request.source
        nothing = lambda: None  # noqa: E731  # the empty close of inputs without workers
        if self.request.train_step is not None:
            return source.fresh()["x"], nothing
        arguments = source.fresh() if not source.one_shot else source.replayable()
        if arguments is None:
            return None, nothing
        x = arguments["x"]
        if tfdata.is_distributed(x):
            return x, nothing
        arguments = {
            **{k: v for k, v in self.request.fit_kwargs.items() if k in ("class_weight", "shuffle")},
            **arguments,
        }
        adapted = keras.adapter_dataset(self.request.model, arguments)
        if adapted is None:
            return None, nothing
        dataset = getattr(adapted, "dataset", adapted)
        strategy: Any = getattr(self.request.model, "distribute_strategy", None)
        if int(getattr(strategy, "num_replicas_in_sync", 1) or 1) > 1:
            dataset = strategy.experimental_distribute_dataset(dataset)
        return dataset, getattr(adapted, "close", nothing)

    def _replay(self, worker: Worker, batch: Any, alone_: Any) -> Replay | Missing:
        if batch is None:
            return Missing("there is no batch to replay")
        self._say("replaying one batch")
        request = self.request
        pace = self._pace()
        with self._phase("replay"):
            until = self.deadline.share(_REPLAY_SHARE, _REPLAY_AT_MOST_S)

            def stop() -> bool:
                return self.stopped_hard

            def work() -> Replay:
                if request.train_step is not None:
                    return replay.measure_replay_of_step(
                        request.train_step,
                        batch,
                        pace=pace,
                        tracer=self.tracer,
                        until=until,
                        clock=request.clock,
                        should_stop=stop,
                    )
                dataset = replay.resident(request.model, batch, self.element_spec)
                stamps = self.stamps
                staged = None if stamps is None else stamps.stage(dataset)
                return replay.measure_replay(
                    request.model,
                    dataset if staged is None else staged,
                    pace=pace,
                    tracer=self.tracer,
                    until=until,
                    clock=request.clock,
                    should_stop=stop,
                    stamps=None if staged is None else stamps,
                )

            result: Replay | Missing = self._guarded(worker, work, "replaying a batch")
            return result

    def _placement(
        self, worker: Worker, job: Job, batch: Any, live: Live, replayed: Replay | Missing
    ) -> Placement | Missing:
        """See which op of the step runs where, and time those that hold it up."""
        if batch is None:
            return Missing("there is no batch to run the step on")
        if isinstance(replayed, Missing):
            return replayed
        if job.run_eagerly:
            return Missing("an eager step has no graph that says where its ops run")
        request = self.request
        options: dict[str, Any] = {
            "first_call_s": max(live.duration_s[:1], default=0.0),
            "call_s": min(replayed.call_s, default=0.0),
            "tracer": self.tracer,
            "clock": request.clock,
        }
        size = round(job.batch_size.value) if isinstance(job.batch_size, Quantity) else None
        with self._phase("op placement"):
            options["until"] = self.deadline.share(_PLACEMENT_SHARE, _PLACEMENT_AT_MOST_S)

            def work() -> Placement | Missing:
                if request.train_step is not None:
                    return measure_placement_of_step(request.train_step, batch, size=size, **options)
                return measure_placement(
                    request.model,
                    lambda: replay.resident(request.model, batch, self.element_spec),
                    batch=size,
                    **options,
                )

            result: Placement | Missing = self._guarded(worker, work, "placing ops")
            return result

    def _pipeline(
        self, worker: Worker, live: Live | Missing, replayed: Replay | Missing
    ) -> Pipeline | Missing:
        """Describe the pipeline; where the step waits for it, sample what its stages cost."""
        x = self.request.source.data.get("x")
        folder = str(self.folder)
        described = describe_pipeline(x, self.recorder, folder)
        if keras.is_py_dataset(x):
            return self._with_py_input(worker, x, described, live, replayed)
        if isinstance(described, Missing) or not described.graph:
            return described
        if self.request.source.exhausts:
            return replace(described, samples_missing=_READ_ONCE)
        if hardly_waits(live, replayed):
            return replace(described, samples_missing="the step hardly waits for its input")
        self._say("sampling the stages of the input")
        with self._phase("stages of the input"):
            until = self.deadline.share(_SAMPLES_SHARE, _SAMPLES_AT_MOST_S)

            def work() -> Pipeline | Missing:
                return with_samples(
                    described,
                    x,
                    cache_folder=folder,
                    cores=host.cores(),
                    until=until,
                    clock=self.request.clock,
                    should_stop=lambda: self.stopped_hard,
                )

            found = self._guarded(worker, work, "sampling the stages")
            if isinstance(found, Missing):
                return replace(described, samples_missing=found.reason)
            result: Pipeline = found
            return result

    def _with_py_input(
        self,
        worker: Worker,
        dataset: Any,
        described: Pipeline | Missing,
        live: Live | Missing,
        replayed: Replay | Missing,
    ) -> Pipeline | Missing:
        """Ask a PyDataset for batches directly, where the step waits for them."""
        if hardly_waits(live, replayed):
            return described
        self._say("asking the PyDataset for batches")
        with self._phase("stages of the input"):
            until = self.deadline.share(_SAMPLES_SHARE, _SAMPLES_AT_MOST_S)

            def work() -> PyInput:
                return measure_py_input(
                    dataset,
                    cores=host.cores(),
                    until=until,
                    clock=self.request.clock,
                    should_stop=lambda: self.stopped_hard,
                )

            asked: PyInput | Missing = self._guarded(worker, work, "asking the PyDataset for batches")
        if isinstance(described, Missing):
            described = Pipeline(missing=described.reason, graph_missing="a PyDataset has no graph")
        return replace(described, py_input=asked)

    def _pace(self) -> replay.Pace:
        """Say how long the job leaves between the work of two steps, and whether it idles meanwhile."""
        assert self.recorder is not None
        live = self.recorder.live()
        start, duration = np.array(live.start_s), np.array(live.duration_s)
        if len(start) < 3:
            return replay.Pace(0.0, False)
        # An arrival is little later than the wait: the way to the batch is in it.
        arrivals = np.array(live.arrival_s or live.wait_s)
        waits = np.where(np.isnan(live.wait_s), arrivals, live.wait_s)
        waits = np.nan_to_num(waits)[:-1]
        pause = float(np.median(np.diff(start) - duration[:-1] + waits))
        inside = [s for s in self.samples() if start[0] <= s.at_s <= start[-1]]
        busy = False
        if len(inside) > 1:
            wall = inside[-1].at_s - inside[0].at_s
            busy = inside[-1].process_cpu_s - inside[0].process_cpu_s > _BUSY * wall
        return replay.Pace(max(0.0, pause), busy)

    def _guarded(self, worker: Worker, work: Callable[[], Any], what: str) -> Any:
        """Run a later phase; its failure is a gap in the report, not the end of it."""
        if self.deadline.left() <= 2 * _RESERVE_S:
            raise Abandoned
        failures = (
            tensorflow.tensorflow().errors.OpError, ValueError, TypeError, RuntimeError,
            AttributeError, NotImplementedError, LookupError, OSError, StopIteration,
        )  # fmt: skip
        try:
            return worker.run(
                work, until=self.deadline.end - _RESERVE_S, grace_s=self._grace(), stop=self._stop_now
            )
        except failures as error:
            reason = Missing(f"{what} failed: {_root_cause(error)}")
            return (reason, None) if what == "reading the input" else reason

    # --- small things -------------------------------------------------------------------------------

    def _roots(self) -> list[Any]:
        request = self.request
        roots = [request.model, *request.callbacks]
        x = request.source.data.get("x")
        if keras.is_py_dataset(x):
            roots.append(x)
        validation = request.fit_kwargs.get("validation_data")
        if keras.is_py_dataset(validation):
            roots.append(validation)
        if request.train_step is not None:
            roots.extend(_reachable(request.train_step))
        return roots

    def _describe(self) -> Job:
        request = self.request
        names = tuple(type(callback).__name__ for callback in request.callbacks)
        if request.train_step is not None:
            step = request.train_step
            job = Job(
                loop="custom",
                model=getattr(step, "__name__", type(step).__name__),
                input=request.source.kind,
                steps_per_epoch=Missing("a loop of the caller's own has no epochs"),
                run_eagerly=tensorflow.functions_run_eagerly(),
            )
        else:
            job = describe(
                request.model,
                request.source,
                request.fit_kwargs,
                callbacks=names,
                epochs=int(request.fit_kwargs.get("epochs", 0)),
            )
        if isinstance(job.steps_per_epoch, Quantity):
            self.run_epoch_steps = job.steps_per_epoch.value
        if request.source.exhausts:
            self.notes.append(
                "the dataset reads from a generator object that was made once: the batches that the "
                "diagnosis took are gone; give from_generator a function that returns a fresh generator"
            )
        if request.source.one_shot:
            self.notes.append(
                "the input is a generator, which can be read only once: the batches that the diagnosis "
                "took from it are gone; pass a function that returns a fresh generator to keep them"
            )
        if request.train_step is None and request.fit_kwargs.get("verbose") != 0:
            self.notes.append("the progress bar was off during the diagnosis, so its time is not in the step")
        return replace(job, validation_steps=self._validation_steps())

    def _validation_steps(self) -> Maybe:
        kwargs = self.request.fit_kwargs
        data = kwargs.get("validation_data")
        if data is None:
            return Missing("there is no validation")
        if kwargs.get("validation_steps"):
            return Quantity(float(kwargs["validation_steps"]), "steps", origin="given")
        if tfdata.is_dataset(data):
            count = tfdata.cardinality(data)
            if count is not None and count > 0:
                return Quantity(float(count), "steps", source="cardinality of the validation data")
            return Missing("the validation data does not know its length")
        size = kwargs.get("validation_batch_size") or self.request.source.data.get("batch_size")
        x = data[0] if isinstance(data, (list, tuple)) else data
        length = keras.epoch_length({"x": x, "batch_size": size})
        if length is None:
            return Missing("the validation data does not know its length")
        return Quantity(float(length), "steps", source="length of the validation data")

    def _with_batch(self, job: Job, batch: Any) -> Job:
        if batch is None:
            return job
        rows, size = batch_facts(batch)
        tensors = batch_tensors(batch) if self.has_device else ()
        return replace(job, batch_size=rows, batch_bytes=size, tensors=tensors)

    def _overrun(self) -> Live | Missing:
        recorder = self.recorder
        budget = self.request.budget_s
        if recorder is not None:
            recorder.read_stuck()
        if recorder is None or not recorder.calls:
            where = (
                "the first step, with tracing and compilation, took longer than the budget "
                f"of {budget:g} s and was still running when it ended"
            )
            return Missing(where)
        took = self.request.clock() - recorder.calls[-1][1]
        recorder.cut = (
            f"a step took longer than what was left of the budget of {budget:g} s: it had been running "
            f"for {took:.1f} s and was left running"
        )
        return recorder.live()

    def _job_error(self, error: BaseException) -> TfdiagError:
        assert self.recorder is not None
        what = _root_cause(error)
        failed = self.recorder.failed_call
        if failed is not None:
            batch = failed * self.recorder.steps_per_call
            return JobError(
                f"the job failed at batch {batch} (counted from 0), in the train step or its input: {what}"
            )
        done = len(self.recorder.calls)
        return JobError(f"the job failed in fit, after {done} calls of the train function: {what}")

    def _grace(self) -> float:
        return _GRACE_SHARE * self.request.budget_s

    def _stop_now(self) -> None:
        """Ask whatever runs on the worker to come back at once."""
        self.stopped_hard = True
        self.stopping = True
        if self.recorder is not None:
            self.recorder.abort = True
            self.recorder.hot.stop_at = -math.inf

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begin = self.request.clock()
        try:
            yield
        finally:
            self.deadline.note(name, begin)

    def _say(self, what: str) -> None:
        if self.request.progress is not None:
            self.request.progress(what)


_ERROR_LINE = re.compile(
    r"^\s*(?:\S+: )?([A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning): .+)$", re.MULTILINE
)


def _root_cause(error: BaseException) -> str:
    """Give the line that says what went wrong: TensorFlow puts the caller's error inside its own."""
    text = str(error).strip()
    if inner := _ERROR_LINE.search(text):
        return inner[1].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if line != "Graph execution error:" and "Detected at node" not in line]
    return f"{type(error).__name__}: {' '.join(said[:4])}" if said else type(error).__name__


def _reachable(step: Any) -> list[Any]:
    """List what a caller's step function refers to: models, optimizers, metrics, variables."""
    found: list[Any] = [*tensorflow.variables_of_function(step)]
    function = getattr(step, "python_function", step)
    function = getattr(function, "__wrapped__", function)
    owner = getattr(function, "__self__", None)
    if owner is not None:
        found.append(owner)
    function = getattr(function, "__func__", function)
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            found.append(cell.cell_contents)
    code = getattr(function, "__code__", None)
    module = getattr(function, "__globals__", {})
    found.extend(module.get(name) for name in getattr(code, "co_names", ()))
    result: list[Any] = []
    for value in found:
        if value is not step and hasattr(value, "python_function"):
            result.extend(_reachable(value))
    return result + [
        value
        for value in found
        if keras.is_keras_object(value)
        or tensorflow.is_variable(value)
        or isinstance(value, (list, dict, tuple))
        or tensorflow.is_module(value)
    ]

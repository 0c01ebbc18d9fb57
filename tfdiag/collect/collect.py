"""Runs the caller's job in phases and brings the measurements home, leaving everything as it was.

The phases: facts and snapshot; the job as it is, through the caller's own `fit` (`live.py`); what is
measured beside it (`phases.py`). Whatever ends them (enough seen, the budget, an error, Ctrl-C), the snapshot
is put back.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfdiag.collect import phases
from tfdiag.collect.compiling import compiled_calls, measure_compiling
from tfdiag.collect.environment import read_environment
from tfdiag.collect.hosting import host_work
from tfdiag.collect.job import batch_facts, batch_tensors, job_of, notes_of
from tfdiag.collect.live import LiveRun
from tfdiag.collect.pipeline import describe_pipeline
from tfdiag.collect.recorder import Recorder
from tfdiag.collect.redirect import redirect_files
from tfdiag.collect.roots import roots_of
from tfdiag.collect.sampler import HostSampler
from tfdiag.collect.session import Request, Session
from tfdiag.collect.snapshot import Snapshot
from tfdiag.collect.telemetry import GpuSampler
from tfdiag.collect.worker import Abandoned, Worker
from tfdiag.compat import keras
from tfdiag.model.compilation import Compilation
from tfdiag.model.device import DeviceTrace
from tfdiag.model.measurements import Environment, InputAlone, Job, Live, Measurements, Overhead, Replay
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["collect"]


def collect(request: Request, make_callback: Callable[[Recorder], Any]) -> Measurements:
    """Measure the job; everything of the caller's is as before, also when this raises."""
    environment = read_environment(request.model)
    folder = Path(tempfile.mkdtemp(prefix="tfdiag-"))
    session = Session(request, folder)
    session.has_device = any(device.kind != "CPU" for device in environment.devices)
    request.source.cache_folder = str(folder)
    # Warning filters belong to the whole process, so this thread changes them: it always comes back.
    with keras.quiet():
        return _collected(session, make_callback, environment)


def _collected(
    session: Session, make_callback: Callable[[Recorder], Any], environment: Environment
) -> Measurements:
    snapshot: Snapshot | None = None
    worker: Worker | None = None
    request = session.request
    try:
        with session.phase("facts and snapshot"):
            snapshot = Snapshot(roots_of(request), session.folder)
            redirected = redirect_files(request.callbacks, session.folder)
            if redirected:
                session.notes.append(
                    f"{', '.join(redirected)} wrote to a private folder during the diagnosis"
                )
            job = job_of(request)
            session.notes.extend(notes_of(request))
        worker = Worker(request.clock)
        length = job.steps_per_epoch.value if isinstance(job.steps_per_epoch, Quantity) else None
        return _measured(session, worker, LiveRun(session, make_callback, length), environment, job)
    finally:
        if session.tracer.running:
            session.tracer.stop()
        session.unwatch()
        _clean_up(session, worker, snapshot)


def _clean_up(session: Session, worker: Worker | None, snapshot: Snapshot | None) -> None:
    model = session.request.model

    def put_back() -> None:
        try:
            if snapshot is not None:
                snapshot.restore()
        finally:
            shutil.rmtree(session.folder, ignore_errors=True)

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

    if not worker.returned.is_set() and session.request.train_step is None:
        model.train_function = wait_first


def _measured(
    session: Session, worker: Worker, live_run: LiveRun, environment: Environment, job: Job
) -> Measurements:
    live: Live | Missing
    pipeline: Pipeline | Missing | None = None
    alone_: InputAlone | Missing = Missing("the budget was used up by the job itself")
    replayed: Replay | Missing = Missing("the budget was used up by the job itself")
    device: DeviceTrace | Missing = Missing("the budget was used up by the job itself")
    placement: Placement | Missing = Missing("the budget was used up before ops were placed")
    compilation: Compilation | Missing | None = None
    gpus = GpuSampler(session.request.clock, environment.devices)
    with HostSampler(session.request.clock) as sampler, gpus:
        session.samples = sampler.samples
        try:
            live = live_run.run(worker)
            with contextlib.suppress(Abandoned):
                device = phases.trace_device(session, live_run, worker)
                alone_, batch = phases.read_alone(session, worker)
                replayed = phases.replay_batch(session, worker, batch)
                if batch is not None and phases.reads_once(session):
                    device = phases.trace_batch(session, worker, batch)
                job = _with_batch(job, batch, tensors=session.has_device)
                placement = phases.place_ops(session, worker, job, batch, live, replayed)
                compilation = measure_compiling(session, worker, job, batch)
                live = compiled_calls(live, compilation, replayed)
                del batch  # the stages make more of them
                pipeline = phases.sample_stages(session, worker, live, replayed)
        except Abandoned:
            live = live_run.overrun()
    host = sampler.samples()
    recorder = session.recorder
    source = session.request.source
    if pipeline is None:
        pipeline = describe_pipeline(source.data.get("x"), recorder, str(session.folder))
        if recorder is not None and recorder.hung_in_input and isinstance(pipeline, Pipeline):
            pipeline = replace(pipeline, hung=True)
    job = replace(
        job,
        one_shot=source.one_shot,
        batches_used=source.batches_used if source.one_shot else None,
        notes=(*job.notes, *session.notes, *source.notes),
    )
    return Measurements(
        environment=environment,
        job=job,
        live=live,
        replay=replayed,
        input_alone=alone_,
        pipeline=pipeline,
        overhead=Overhead(
            total_s=session.deadline.spent(),
            phases_s=dict(session.deadline.phases_s),
            per_step_s=recorder.overhead() if recorder is not None else Missing("nothing ran"),
            budget_s=Quantity(session.request.budget_s, "s", origin="given"),
        ),
        host=host,
        device=device,
        gpu=gpus.telemetry(),
        placement=placement,
        host_work=host_work(session),
        compilation=compilation
        if compilation is not None
        else (session.traces.found() if session.traces is not None else Missing("the job did not run")),
    )


def _with_batch(job: Job, batch: Any, *, tensors: bool) -> Job:
    if batch is None:
        return job
    rows, size = batch_facts(batch)
    parts = batch_tensors(batch) if tensors else ()
    return replace(job, batch_size=rows, batch_bytes=size, tensors=parts)

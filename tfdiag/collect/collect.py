"""Runs the caller's job in phases and brings the measurements home.

The phases: the job as it is, through the caller's own `fit` (`live.py`), and what is measured beside it
(`phases.py`), in a session that puts everything back (`opening.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfdiag.collect import compute_phases, phases
from tfdiag.collect.compiling import compiled_calls, measure_compiling
from tfdiag.collect.hosting import host_work
from tfdiag.collect.job import batch_facts, batch_tensors
from tfdiag.collect.live import LiveRun
from tfdiag.collect.model_phase import look_at_model
from tfdiag.collect.pipeline import describe_pipeline
from tfdiag.collect.recorder import Recorder
from tfdiag.collect.sampler import HostSampler
from tfdiag.collect.session import Session
from tfdiag.collect.step_devices import step_on_devices
from tfdiag.collect.telemetry import GpuSampler
from tfdiag.collect.worker import Abandoned, Worker
from tfdiag.model.compilation import Compilation
from tfdiag.model.compute import Compute
from tfdiag.model.device import DeviceTrace
from tfdiag.model.devices import StepOnDevices
from tfdiag.model.estimates import DeviceEstimates
from tfdiag.model.layers import ModelFacts
from tfdiag.model.measurements import Environment, InputAlone, Job, Live, Measurements, Overhead, Replay
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.scaling import Scaling

__all__ = ["collect"]

_TRACES = 2.0
_LEAST_S = 1.0
"""What looks closer at the step traces it anew, which nothing can end: with less left than this, and the
first call of the job this many times, it is not begun."""


def collect(session: Session, make_callback: Callable[[Recorder], Any]) -> Measurements:
    """Measure the job of an open session."""
    assert session.job is not None
    job, environment = session.job, session.environment
    length = job.steps_per_epoch.value if isinstance(job.steps_per_epoch, Quantity) else None
    return _measured(session, session.worker, LiveRun(session, make_callback, length), environment, job)


def _measured(
    session: Session, worker: Worker, live_run: LiveRun, environment: Environment, job: Job
) -> Measurements:
    live: Live | Missing
    pipeline: Pipeline | Missing | None = None
    alone_: InputAlone | Missing = Missing("the budget was used up by the job itself")
    replayed: Replay | Missing = Missing("the budget was used up by the job itself")
    device: DeviceTrace | Missing = Missing("the budget was used up by the job itself")
    placement: Placement | Missing = Missing("the budget was used up before ops were placed")
    estimates: DeviceEstimates | Missing = Missing("the budget was used up by the job itself")
    compute: Compute | Missing = Missing("the budget was used up before operations were counted")
    scaling: Scaling | Missing = Missing("the budget was used up before other batch sizes were run")
    on_devices: StepOnDevices | Missing = Missing("the budget was used up before the step ran elsewhere")
    model: ModelFacts | Missing = Missing("the budget was used up before the model was looked at")
    compilation: Compilation | Missing | None = None
    gpus = GpuSampler(session.request.clock, environment.devices)
    with HostSampler(session.request.clock) as sampler, gpus:
        session.samples, session.capability = sampler.samples, gpus.capability
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
                estimates = phases.estimate_device(session, worker, job, batch, live, device)
                compute = compute_phases.count_work(session, worker, job, live, replayed, placement)
                if session.deadline.left() >= _LEAST_S + _TRACES * max(live.duration_s[:1], default=0.0):
                    gpus.hold_memory()
                    scaling = compute_phases.scale_batch(session, worker, job, batch, live, replayed)
                    on_devices = step_on_devices(session, worker, job, batch, live, replayed, device)
                    model = look_at_model(session, worker, job, batch, live, replayed)
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
        machine=sampler.telemetry(),
        estimates=estimates,
        compute=compute,
        scaling=scaling,
        step_devices=on_devices,
        model=model,
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

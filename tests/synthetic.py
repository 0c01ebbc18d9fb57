"""Jobs of known make-up, as measurements: what each part of a step takes is given, not found.

Times are seconds for one call of the train function, or for one epoch where the name says so. Without
`noise` every call is like the other, so that an analysis has to give the numbers back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfdiag.analyse.analysis import Analysis, analyse
from tfdiag.model.compilation import Compilation
from tfdiag.model.compute import Compute
from tfdiag.model.devices import StepOnDevices
from tfdiag.model.estimates import DeviceEstimates
from tfdiag.model.gpu import GpuTelemetry
from tfdiag.model.host import HostTelemetry
from tfdiag.model.host_work import HostWork
from tfdiag.model.layers import ModelFacts
from tfdiag.model.measurements import (
    LOOP,
    BoundaryEvent,
    CallbackTime,
    Device,
    Environment,
    HostSample,
    InputAlone,
    Job,
    Live,
    Measurements,
    Overhead,
    Replay,
    ValidationRun,
)
from tfdiag.model.pipeline import Node, Pipeline, Sample, Stage, StageParameter
from tfdiag.model.placement import DeviceOps, Placement
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.scaling import Scaling

__all__ = ["Cut", "Part", "Synthetic", "analysed", "chain", "pipeline", "sampled", "stage"]

MS = 1e-3
_PLAIN = ModelFacts()
_BLOCK = 50
"""Calls in a block of callback times, as the recorder makes them."""


@dataclass(frozen=True)
class Cut:
    """A validation that was cut short after some calls."""

    calls: int
    of_steps: float | None
    """Steps of a whole one; None where nobody knows."""
    call_s: float
    rate_known: bool = True


@dataclass(frozen=True)
class Synthetic:
    """What a job consists of."""

    wait: float = 0.0
    compute: float = 10 * MS
    dispatch: float = 1 * MS
    loop: float = 0.0
    callbacks: Mapping[str, float] = field(default_factory=dict)
    """Callback to its time after each call."""
    epochs: int = 1
    calls_per_epoch: int = 200
    ends: bool = True
    """The last epoch came to its end."""
    restart: float = 0.0
    """What the first batch of an epoch waits longer than others."""
    epoch_callbacks: Mapping[str, float] = field(default_factory=dict)
    """Callback to its time at each end of an epoch."""
    between_epochs: float = 0.0
    """What lies between epochs besides validation and callbacks."""
    validation: float = 0.0
    validation_first: float | None = None
    """The first validation traces, so it takes longer."""
    validation_freq: int = 1
    validation_cut: Cut | None = None
    first_call: float = 1.0
    """Tracing in the first call, on top of it."""
    retraces: tuple[int, ...] = ()
    retrace: float = 0.0
    extra: Mapping[int, float] = field(default_factory=dict)
    """Calls that took longer, and by how much."""
    noise: float = 0.0
    """Standard deviation of compute and wait, as a share of each."""
    seed: int = 0
    steps_per_call: int = 1
    waits: bool = True
    way: float | None = None
    """What lies between a call's start and the stamp of a batch that is there, where batches are stamped."""
    replay_way: float | None = None
    """The same in the replay, where it is another."""
    stamped: float = 1.0
    """The part of the live calls whose stamp is known."""
    epoch_known: bool = True
    replay: bool = True
    replay_call: float | None = None
    """What a replayed call takes, where it is not compute and dispatch."""
    empty: bool = True
    graph: float | None = None
    """What a call of the eager step takes as a graph."""
    paced: float | None = None
    input_alone: float | None = None
    input_cpu: float = 0.5
    """The part of the input's time in which it computes."""
    replay_cpu: float = 0.5
    cores: int = 4
    quota: float | None = None
    accelerator: bool = False
    pipeline: Pipeline | Missing = Missing("the input is no tf.data pipeline")
    gpu: GpuTelemetry | Missing = Missing("GPU telemetry is not read yet")
    host: tuple[HostSample, ...] = ()
    machine: HostTelemetry | Missing = Missing("the host was not watched")
    estimates: DeviceEstimates | Missing = Missing("nothing had to stand in for a trace")
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Environment` that differ."""
    placement: Placement | Missing | None = None
    """Where ops run; None puts all of them where they belong."""
    work: Compute | Missing = Missing("the operations of the step were not counted")
    scaling: Scaling | Missing = Missing("the step was not run at several batch sizes")
    step_devices: StepOnDevices | Missing = Missing("the step was not run on other devices")
    model: ModelFacts | Missing = _PLAIN
    """What the model consists of: nothing worth a word."""
    did: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Callback to what it does each time it runs, by fields of `CallbackTime`."""
    loop_did: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The same for the loop itself after each call, by `logs` and `step`; `logs` takes time between calls."""
    host_work: HostWork | Missing = Missing("callbacks were not looked at")
    compilation: Compilation | Missing = Missing("traces were not watched")
    job: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Job` that differ from those of a plain Keras job on a tf.data.Dataset."""
    live: Mapping[str, Any] = field(default_factory=dict)
    """The same for `Live`."""

    def measurements(self) -> Measurements:
        """Run the job on a clock of its own."""
        return Measurements(
            environment=self._environment(),
            job=self._job(),
            live=self._live(),
            replay=self._replay(),
            input_alone=self._alone(),
            pipeline=self.pipeline,
            overhead=Overhead(1.0),
            gpu=self.gpu,
            placement=self._placement(),
            host=self.host,
            machine=self.machine,
            estimates=self.estimates,
            compute=self.work,
            scaling=self.scaling,
            step_devices=self.step_devices,
            model=self.model,
            host_work=self.host_work,
            compilation=self.compilation,
        )

    @property
    def per_epoch(self) -> float:
        """What lies between two epochs, as a mean over epochs."""
        return (
            self.between_epochs + sum(self.epoch_callbacks.values()) + self.validation / self.validation_freq
        )

    @property
    def mean_step(self) -> float:
        """The wall time of a steady step."""
        call = self.wait + self.compute + self.dispatch + self.loop + sum(self.callbacks.values())
        retracing = self.retrace * len(self.retraces) / (self.epochs * self.calls_per_epoch)
        epoch = (self.restart + self.per_epoch) / self.calls_per_epoch if self.ends else 0.0
        return (call + retracing + epoch) / self.steps_per_call

    # --- the parts ----------------------------------------------------------------------------------

    def _environment(self) -> Environment:
        devices = [Device("/CPU:0", "CPU"), *([Device("/GPU:0", "GPU")] if self.accelerator else [])]
        known: dict[str, Any] = {
            "tfdiag": "0",
            "python": "3.12.0",
            "platform": "Linux",
            "tensorflow": "2.21.0",
            "keras": "3.15.0",
            "cores": self.cores,
            "memory_bytes": 2**33,
            "devices": tuple(devices),
            "cpu_quota": Missing("no quota") if self.quota is None else Quantity(self.quota, "cores"),
        }
        return Environment(**{**known, **self.environment})

    def _placement(self) -> Placement | Missing:
        if self.placement is not None:
            return self.placement
        device = "/GPU:0" if self.accelerator else "/CPU:0"
        return Placement((DeviceOps(device, 100, {"MatMul": 6}),))

    def _job(self) -> Job:
        steps: Maybe = Missing("a generator does not know its length")
        if self.epoch_known:
            steps = Quantity(float(self.calls_per_epoch * self.steps_per_call), "steps")
        validation: Maybe = Missing("there is no validation")
        if self.validation_cut is not None:
            validation = Missing("the validation data does not know its length")
            if self.validation_cut.of_steps is not None:
                validation = Quantity(self.validation_cut.of_steps, "steps")
        elif self.validation:
            validation = Quantity(7.0, "steps")
        known: dict[str, Any] = {
            "loop": "keras",
            "model": "net (Sequential)",
            "input": "tf.data.Dataset",
            "steps_per_execution": self.steps_per_call,
            "steps_per_epoch": steps,
            "validation_steps": validation,
            "validation_freq": self.validation_freq,
            "epochs": self.epochs,
        }
        return Job(**{**known, **self.job})

    def _live(self) -> Live:  # one line after the other, as the loop itself runs
        draw = np.random.default_rng(self.seed)
        clock, call = 100.0, 0
        start, duration, wait, waits = [], [], [], []
        events, validations = [BoundaryEvent("train_begin", clock, 0)], []
        rows: dict[tuple[str, str, int], list[float]] = {}

        def spend(name: str, method: str, seconds: float) -> None:
            nonlocal clock
            clock += seconds
            cell = rows.setdefault((name, method, max(0, call - 1) // _BLOCK), [0, 0.0])
            cell[0] += 1
            cell[1] += seconds

        for epoch in range(self.epochs):
            events.append(BoundaryEvent("epoch_begin", clock, call))
            for position in range(self.calls_per_epoch):
                compute, waited = (
                    part * (1 + self.noise * draw.standard_normal()) for part in (self.compute, self.wait)
                )
                waited += self.restart if position == 0 and epoch else 0.0
                took = waited + compute + self.dispatch + self.extra.get(call, 0.0)
                took += self.first_call if call == 0 else 0.0
                took += self.retrace if call in self.retraces else 0.0
                start.append(clock)
                duration.append(took)
                wait.append(waited if self.waits else math.nan)
                waits.append(waited)
                clock += took
                call += 1
                for name, seconds in self.callbacks.items():
                    spend(name, "on_train_batch_end", seconds)
                for method, each in self.loop_did.items():
                    fetching = each["sync_s"] if method == "logs" else 0.0
                    spend(LOOP, method, fetching)
                clock += self.loop
            if epoch == self.epochs - 1 and not self.ends:
                break
            if (epoch + 1) % self.validation_freq == 0 and (run := self._validation(clock, validations)):
                events.append(BoundaryEvent("test_begin", clock, call))
                clock = run.end_s
                events.append(BoundaryEvent("test_end", clock, call))
                validations.append(run)
            for name, seconds in self.epoch_callbacks.items():
                spend(name, "on_epoch_end", seconds)
            events.append(BoundaryEvent("epoch_end", clock, call))
            clock += self.between_epochs
        known: dict[str, Any] = {
            "start_s": tuple(start),
            "duration_s": tuple(duration),
            "wait_s": tuple(wait),
            "traced": tuple(sorted({0, *self.retraces})) if self.first_call else self.retraces,
            "steps_per_call": self.steps_per_call,
            "wait_missing": "" if self.waits else "the runtime keeps no model of this pipeline",
            "callbacks": tuple(
                CallbackTime(
                    name,
                    method,
                    block * _BLOCK,
                    min(_BLOCK, call - block * _BLOCK),
                    int(n),
                    total,
                    **{
                        key: n * value
                        for key, value in (self.loop_did if name == LOOP else self.did)
                        .get(method if name == LOOP else name, {})
                        .items()
                    },
                )
                for (name, method, block), (n, total) in rows.items()
            ),
            "events": tuple(events),
            "validations": tuple(validations),
            "arrival_s": self._arrivals(waits),
        }
        return Live(**{**known, **self.live})

    def _arrivals(self, waits: list[float]) -> tuple[float, ...]:
        if self.way is None:
            return ()
        known = round(self.stamped * len(waits))
        return tuple(self.way + waited if call < known else math.nan for call, waited in enumerate(waits))

    def _validation(self, clock: float, before: list[ValidationRun]) -> ValidationRun | None:
        cut = self.validation_cut
        if cut is not None:
            rate = Quantity(cut.call_s, "s") if cut.rate_known else Missing("fewer than three calls")
            inside = cut.calls * cut.call_s
            return ValidationRun(clock, clock + inside + 5 * MS, cut.calls, inside, False, rate)
        if not self.validation:
            return None
        seconds = self.validation
        if self.validation_first is not None and not before:
            seconds = self.validation_first
        return ValidationRun(clock, clock + seconds, 7, 0.9 * seconds, True, Quantity(seconds / 7, "s"))

    def _replay(self) -> Replay | Missing:
        if not self.replay:
            return Missing("there was no time for a replay")
        call = self.compute + self.dispatch if self.replay_call is None else self.replay_call
        return Replay(
            call_s=(call,) * 60,
            cpu_s=60 * call * self.replay_cpu,
            first_call_s=call,
            empty_call_s=(self.dispatch,) * 40 if self.empty else (),
            paced_call_s=() if self.paced is None else (self.paced,) * 40,
            graph_call_s=() if self.graph is None else (self.graph,) * 40,
            steps_per_call=self.steps_per_call,
            arrival_s=self._replayed_arrivals(),
        )

    def _replayed_arrivals(self) -> tuple[float, ...]:
        way = self.way if self.replay_way is None else self.replay_way
        return () if way is None else (way,) * 40

    def _alone(self) -> InputAlone | Missing:
        if self.input_alone is None:
            return Missing("there was no time for the input alone")
        return InputAlone((self.input_alone,) * 60, 60 * self.input_alone * self.input_cpu, 0.4)


def analysed(**parts: Any) -> Analysis:
    """Analyse a job of this make-up."""
    return analyse(Synthetic(**parts).measurements())


def stage(identity: int, name: str, seconds: float, *, threads: float | None = None, tunable: bool = True,
          elements: int = 100, inputs: tuple[int, ...] | None = None) -> Stage:  # fmt: skip
    """Give a stage of a chain, which needs so many seconds for each of 100 batches."""
    knobs = () if threads is None else (StageParameter("parallelism", threads, tunable),)
    return Stage(
        id=identity,
        name=name,
        inputs=((identity - 1,) if identity > 1 else ()) if inputs is None else inputs,
        elements=elements,
        processing_s=100 * seconds,
        parallelism=Missing("this stage has no parallelism")
        if threads is None
        else Quantity(threads, "threads"),
        parameters=knobs,
    )


def chain(*stages: tuple[str, float] | tuple[str, float, float], **fields: Any) -> Pipeline:
    """Give a running pipeline from (name, seconds a batch[, threads]), source first."""
    built = tuple(
        stage(number, name, seconds, threads=rest[0] if rest else None)
        for number, (name, seconds, *rest) in enumerate(stages, 1)
    )
    return Pipeline(stages=built, output=len(built), **fields)


def pipeline(*written: str, **fields: Any) -> Pipeline:
    """Give a pipeline of which only what the caller wrote is known."""
    return Pipeline(written=written, **fields)


@dataclass(frozen=True)
class Part:
    """A stage of a written pipeline: what one of its elements costs in it, alone on one thread."""

    op: str
    """`Map`, `Batch`, `TFRecord` …"""
    label: str
    each_s: float = 0.0
    cpu: float = 1.0
    """The part of this in which a processor works."""
    node: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Node`: size, function, files, parallelism …"""
    parallel: float | None = None
    """Speed-up of the function on two threads, where that was sampled."""
    batched_s: float | None = None
    """What an element costs where the function works on whole batches."""
    free: float = 64.0
    """Cores that others left to the function meanwhile."""
    streams: tuple[int, float] | None = None
    """How many of its files were read at a time, and the speed-up."""


def sampled(
    *parts: Part, running: tuple[Stage, ...] = (), bytes_each: float = 1000.0, **fields: Any
) -> Pipeline:
    """Give a pipeline with a graph and samples: a chain, source first, with ids from 0.

    `running` are stages of the runtime's model, for what differs from what was written (see `stage`); without
    them nothing is known to run in parallel, and prefetch stands at the end unless `prefetch_injected=False`.
    """
    nodes, samples = [], []
    below = 0.0
    below_cpu = 0.0
    for index, part in enumerate(parts):
        size = part.node.get("size") or 1
        taken = size if part.op in ("Batch", "ParallelBatch", "PaddedBatch", "Shard") else 1
        each = below * taken + part.each_s
        cpu = below_cpu * taken + part.each_s * part.cpu
        if part.op == "Cache":  # it is full
            each, cpu = part.each_s, part.each_s * part.cpu
        inputs = (index - 1,) if index else ()
        nodes.append(Node(index, f"{part.op}Dataset", part.label, inputs, **part.node))
        samples.append(_sample("prefix", index, each, cpu, bytes_each))
        if part.parallel is not None:
            each_on_both = max(below * taken, part.each_s / part.parallel)  # the source works beside it
            samples.append(
                _sample("parallel", index, each_on_both, cpu, bytes_each, threads=2, free_cores=part.free)
            )
        if part.batched_s is not None:
            samples.append(_sample("batched", index, below + part.batched_s, cpu, bytes_each))
        if part.streams is not None:
            count, faster = part.streams
            several = below * taken + part.each_s / faster
            samples.append(_sample("interleaved", index, several, cpu, bytes_each, threads=count))
        below, below_cpu = each, cpu
    return Pipeline(
        **{
            "stages": running,
            "output": running[-1].id if running else None,
            "written": tuple(part.label for part in parts),
            "graph": tuple(nodes),
            "samples": tuple(samples),
            "sample_threads": 2,
            "samples_missing": "",
            **fields,
        }
    )


def _sample(
    kind: Any,
    node: int,
    each: float,
    cpu: float,
    bytes_each: float,
    *,
    threads: int = 1,
    free_cores: float = 64.0,
) -> Sample:
    wall = (10 * each,) * 10
    free = Quantity(free_cores, "cores")
    size = Quantity(bytes_each, "B")
    return Sample(kind, node, 100, wall, 100 * cpu, each, size, threads=threads, free_cores=free)

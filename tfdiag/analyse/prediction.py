"""How fast a pipeline feeds a step: what each of its threads, the cores, and the interpreter's lock must do.

A stage that works ahead splits the pipeline: what lies below it runs in a thread of its own, its function in
as many threads as it has, and what lies behind it in whoever reads from it, in the end the step itself. A
batch takes as long as the busiest of them, and no less than its processor time over the cores. A changed
pipeline is predicted by the same rule as the one that was measured, and where the rule misses the measured
one, the prediction's interval is as wide as that miss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tfdiag.analyse.pipeline import PipelineModel, StageTime

__all__ = [
    "Feed",
    "Load",
    "Pace",
    "feed",
    "step_time",
    "with_cache",
    "with_interleave",
    "with_parallel",
    "with_prefetch",
]

_COPY_BYTES_PER_S = 3e9
"""Reading a batch from a cache in memory."""


@dataclass(frozen=True, slots=True)
class Load:
    """Something that can only do so much at a time, and what a batch asks of it."""

    what: str
    """`the step's own thread`, `map(decode)`, `the cores`, `the interpreter's lock` …"""
    seconds: float
    stages: tuple[StageTime, ...] = ()
    """Those whose work it does."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What a pipeline asks of the machine for a batch."""

    ahead: tuple[Load, ...]
    """What works while the step runs."""
    in_step: Load
    """What the step's own thread must do before it has its batch."""
    cpu_s: float
    """Processor time of all stages."""

    def scaled(self, factor: float) -> Feed:
        """Give the same where everything takes so much longer."""
        return Feed(
            tuple(replace(load, seconds=load.seconds * factor) for load in self.ahead),
            replace(self.in_step, seconds=self.in_step.seconds * factor),
            self.cpu_s * factor,
        )

    @property
    def alone_s(self) -> float:
        """Give the time for a batch without the step, on cores without limit."""
        return max([self.in_step.seconds, *(load.seconds for load in self.ahead)])

    @property
    def limit(self) -> Load:
        """Give what takes longest."""
        return max([self.in_step, *self.ahead], key=lambda load: load.seconds)


def feed(model: PipelineModel) -> Feed:
    """Say what the pipeline asks of each thread."""
    ahead: list[Load] = []
    root = len(model.stages) - 1
    in_step: list[StageTime] = []
    if root >= 0:
        _walk(model, root, in_step, ahead)
    if model.prefetches and in_step and not any(stage.asynchronous for stage in model.stages[-1:]):
        # A prefetch that is known to be there, though no stage stands for it.
        ahead.append(_load(in_step))
        in_step = []
    locked = sum(_locked_s(stage) for stage in model.stages)
    if locked > 0:
        users = tuple(stage for stage in model.stages if _locked_s(stage) > 0)
        ahead.append(Load("the interpreter's lock", locked, users))
    return Feed(tuple(ahead), _load(in_step, "the step's own thread"), sum(s.cpu_s for s in model.stages))


def _walk(model: PipelineModel, position: int, thread: list[StageTime], ahead: list[Load]) -> None:
    """Go from a stage to its sources; `thread` collects what is done in the thread that reads from it."""
    stage = model.stages[position]
    below = thread
    if stage.asynchronous:
        if stage.per_batch_s > 0:
            ahead.append(Load(stage.label, stage.shared_s, (stage,)))
        below = []
    else:
        thread.append(stage)
    for source in stage.inputs:
        _walk(model, source, below, ahead)
    if stage.asynchronous and below:
        ahead.append(_load(below))


def _load(stages: list[StageTime], what: str = "") -> Load:
    seconds = sum(stage.per_batch_s for stage in stages)
    most = max(stages, key=lambda stage: stage.per_batch_s, default=None)
    return Load(what or (most.label if most is not None else "nothing"), seconds, tuple(stages))


def _locked_s(stage: StageTime) -> float:
    python = stage.function is not None and stage.function.python
    return (stage.locked or 0.0) * stage.per_batch_s if python and stage.asynchronous else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a step takes, and what it can't be quicker than."""

    seconds: float
    limit: Literal["the step", "turns", "the cores", "input"]
    waits_for: str = ""
    """The part of the input that is the limit, if the input is."""


def step_time(fed: Feed, *, rest_s: float, step_cpu_s: float, cores: float) -> Pace:
    """Give the time of a step that gets its batches from this pipeline.

    `rest_s` is the step without any wait, `step_cpu_s` its processor time.
    """
    slowest = max(fed.ahead, key=lambda load: load.seconds, default=Load("", 0.0))
    paces = (
        Pace(rest_s + fed.in_step.seconds, "turns" if fed.in_step.seconds else "the step"),
        Pace((fed.cpu_s + step_cpu_s) / cores, "the cores"),
        Pace(slowest.seconds, "input", slowest.what),
    )
    return max(paces, key=lambda pace: pace.seconds)


def with_parallel(model: PipelineModel, stage: StageTime, threads: float) -> PipelineModel:
    """Let a stage's function run on several threads."""
    return model.changed(stage, parallelism=threads, asynchronous=True, serial=False)


def with_interleave(model: PipelineModel, stage: StageTime) -> PipelineModel:
    """Let a stage read several of its files at a time, as it was sampled."""
    assert stage.interleaved is not None
    threads = stage.interleaved.threads
    return model.changed(
        stage, parallelism=threads, asynchronous=True, serial=False, spread=stage.interleaved
    )


def with_prefetch(model: PipelineModel) -> PipelineModel:
    """Let the end of the pipeline work ahead."""
    if model.stages and model.stages[-1].asynchronous:
        return replace(model, prefetches=True)
    end = StageTime(
        name="Prefetch",
        label="prefetch",
        per_batch_s=0.0,
        cpu_per_batch_s=0.0,
        parallelism=1.0,
        serial=False,
        inputs=(len(model.stages) - 1,),
        asynchronous=True,
    )
    return replace(model, stages=(*model.stages, end), prefetches=True)


def with_cache(model: PipelineModel, stage: StageTime) -> PipelineModel:
    """Keep what a stage gives in memory: neither it nor anything below it works any more."""
    size = (stage.element_bytes or 0.0) * stage.per_batch
    copying = size / _COPY_BYTES_PER_S
    for below in model.upstream(stage):
        model = _still(model, below)
    kept = next(other for other in model.stages if other is stage)
    return model.changed(
        kept, per_batch_s=copying, cpu_per_batch_s=copying, locked=None, asynchronous=False, parallelism=1.0
    )


def _still(model: PipelineModel, stage: StageTime) -> PipelineModel:
    return model.changed(stage, per_batch_s=0.0, cpu_per_batch_s=0.0, locked=None)

"""One stage with what a batch costs in it, and all of them as a tree."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tfdiag.analyse.pipeline.names import base_of
from tfdiag.model.pipeline import Function, Node

__all__ = ["PipelineModel", "Several", "StageTime"]


@dataclass(frozen=True, slots=True)
class Several:
    """What a stage costs for a batch on several threads, sampled."""

    threads: float
    seconds: float
    cpu_s: float
    """Threads that share a core take more processor time for the same work, and none to spin."""
    cores: float
    """How many of the threads could work at a time: other processes take cores too."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """One stage, and what a batch costs in it."""

    name: str
    """The runtime's name, or the operation's where the runtime does not tell."""
    label: str
    """As the caller wrote it, where that is known."""
    per_batch_s: float
    """Time that the stage needs for a batch, on one thread; of the runtime's model, on all of its threads."""
    parallelism: float
    serial: bool
    """A stage with a function that works on one element after the other."""
    id: int = -1
    """Of the node in the graph; -1 for a stage that only the runtime knows."""
    inputs: tuple[int, ...] = ()
    """Positions, in `PipelineModel.stages`, of the stages that it reads from."""
    cpu_per_batch_s: float | None = None
    """Processor time in it for a batch; None where nothing was sampled."""
    low_s: float = 0.0
    high_s: float = 0.0
    """Within these the time for a batch lies."""
    per_batch: float = 1.0
    """Elements that leave it for each batch."""
    ratio: float = 1.0
    """Elements that go in for each that comes out."""
    element_bytes: float | None = None
    asynchronous: bool = False
    """It works ahead of whoever reads from it."""
    tunable: bool = False
    node: Node | None = None
    sampled: bool = False
    timed: bool = True
    """False where neither a sample nor the runtime tells its time: the 0 in its place means nothing."""
    locked: float | None = None
    """The part of its function that only one thread at a time can do (the interpreter's lock, or one of its
    own), from a sample on all cores; None where that was not sampled."""
    together: Several | None = None
    """Its function on all cores."""
    interleaved: Several | None = None
    """Several of the files or datasets that it reads, at a time."""
    spread: Several | None = None
    """How it works now, where that is known better than from its time on one thread."""
    batched_s: float | None = None
    """Time for a batch of its function on whole batches, where it takes them."""
    batched_exact: bool = True
    """It gave the same then; False where the values had another layout."""
    spared_s: float = 0.0
    """What a batch would cost in it, were it not for a full cache behind it."""
    calls_per_batch: float = 0.0
    """How often its function is called for a batch."""
    first_s: float = 0.0
    """Time to its first element."""
    advancing: bool | None = None
    """It gave elements between the two readings of what runs; None where there was one, or none."""

    @property
    def base(self) -> str:
        """Give what kind of stage it is, without version: `Map`, `Batch`, `Generator`."""
        return base_of(self.name)

    @property
    def function(self) -> Function | None:
        """Give the caller's function in it."""
        return self.node.function if self.node is not None else None

    @property
    def shared_s(self) -> float:
        """Give the time for a batch on as many threads as it has; what is locked is not shared."""
        threads = max(1.0, self.parallelism)
        if self.spread is not None:
            return self.spread.seconds
        if self.together is None:
            locked = self.locked or 0.0
            return self.per_batch_s * (locked + (1 - locked) / threads)
        sampled, seconds = self.together.threads, self.together.seconds
        if threads > sampled:  # more threads than cores: waits overlap, also with what others compute
            return seconds * max(sampled / threads, 1 - (self.waiting or 0.0))
        return self.per_batch_s - (self.per_batch_s - seconds) * (1 - 1 / threads) / (1 - 1 / sampled)

    @property
    def cpu_s(self) -> float:
        """Give the processor time for a batch, as it is when all cores are busy where that was sampled."""
        crowded = self.spread or self.together
        if crowded is not None:
            return crowded.cpu_s
        return self.per_batch_s if self.cpu_per_batch_s is None else self.cpu_per_batch_s

    @property
    def waiting(self) -> float | None:
        """Give the part of its time in which no processor works for it."""
        if self.cpu_per_batch_s is None or self.per_batch_s <= 0:
            return None
        return max(0.0, 1.0 - self.cpu_per_batch_s / self.per_batch_s)


@dataclass(frozen=True, slots=True)
class PipelineModel:
    """The pipeline that runs."""

    stages: tuple[StageTime, ...]
    """Source first."""
    prefetches: bool
    """Its last stage works ahead of the consumer."""
    written: tuple[str, ...]
    python_functions: tuple[str, ...]
    from_model: bool
    """The stages are the runtime's own; otherwise only what the caller wrote is known."""
    sampled: bool = False
    """Stages have costs of their own, measured alone."""
    autotune: bool = True
    overhead_s: float | None = None
    """Of one call of a function, whatever it does."""
    cores: float = 1.0

    @property
    def slowest(self) -> StageTime | None:
        """Give the stage that limits the rate."""
        return max(self.stages, key=lambda stage: stage.per_batch_s / stage.parallelism, default=None)

    @property
    def known(self) -> bool:
        """Say whether the stages have times."""
        return self.from_model or self.sampled

    def position(self, stage: StageTime) -> int:
        """Give the place of a stage."""
        return next(index for index, other in enumerate(self.stages) if other is stage)

    def upstream(self, stage: StageTime) -> list[StageTime]:
        """Give everything that a stage reads from, directly or not."""
        found: list[StageTime] = []
        waiting = list(stage.inputs)
        while waiting:
            other = self.stages[waiting.pop()]
            if other not in found:
                found.append(other)
                waiting.extend(other.inputs)
        return found

    def downstream(self, stage: StageTime) -> list[StageTime]:
        """Give what reads from a stage, up to the batch that comes out."""
        found: list[StageTime] = []
        position = self.position(stage)
        for index in range(position + 1, len(self.stages)):
            if any(i == position or self.stages[i] in found for i in self.stages[index].inputs):
                found.append(self.stages[index])
        return found

    def changed(self, stage: StageTime, **changes: object) -> PipelineModel:
        """Give the pipeline with one stage changed."""
        position = self.position(stage)
        stages = list(self.stages)
        if changes.get("locked", stage.locked) != stage.locked:
            changes.setdefault("together", None)  # it was sampled with another lock
        if "per_batch_s" in changes and stage.per_batch_s > 0:
            # What several threads do for a batch becomes more or less with it.
            part = float(changes["per_batch_s"]) / stage.per_batch_s  # type: ignore[arg-type]  # a float
            for name in ("together", "interleaved", "spread"):
                several = getattr(stage, name)
                if several is not None:
                    scaled = replace(several, seconds=several.seconds * part, cpu_s=several.cpu_s * part)
                    changes.setdefault(name, scaled)
        stages[position] = replace(stage, **changes)  # type: ignore[arg-type]  # names are checked by replace
        return replace(self, stages=tuple(stages))

"""What the phases of one diagnosis share: the request, the budget's end, the worker's guard, how to stop."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfdiag.collect.causes import root_cause
from tfdiag.collect.deadline import Deadline
from tfdiag.collect.inputs import Input
from tfdiag.collect.recorder import Recorder
from tfdiag.collect.tracing import TraceLog
from tfdiag.collect.worker import SETTLES_S, Abandoned, Worker
from tfdiag.compat import tensorflow
from tfdiag.compat.profiler import Tracer
from tfdiag.compat.stamps import Stamps
from tfdiag.compat.watch import Watch
from tfdiag.model.measurements import Environment, HostSample, Job
from tfdiag.model.quantity import Missing

__all__ = ["RESERVE_S", "Request", "Session"]

_GRACE_SHARE = 0.05
"""Of the budget: how long a phase may take to unwind after its end."""
RESERVE_S = 0.25
"""What the analysis and the report need after the last phase, with what is used there for the first time."""


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
    verify: bool = False
    """Suggestions are to be tried afterwards, which takes its part of the budget."""
    trace: bool = True
    """Trace some steps where there is a device to see."""


class Session:
    """One diagnosis, from its first phase to its last."""

    def __init__(self, request: Request, folder: Path, environment: Environment, begin: float) -> None:
        self.request = request
        self.folder = folder
        self.environment = environment
        self.job: Job | None = None
        """What is known of it before it runs."""
        self.threads: list[Worker] = []
        """What the job runs on, what takes down behind it, and the lanes of trials."""
        self.over = False
        """Threads are being ended, and are given nothing more."""
        self.deadline = Deadline(request.clock, request.budget_s, begin)
        self.tracer = Tracer(folder)
        self.notes: list[str] = []
        self.recorder: Recorder | None = None
        self.samples: Callable[[], tuple[HostSample, ...]] = tuple
        self.capability: Callable[[str], float | None] = lambda _: None
        """What the driver says of the compute capability of a device."""
        self.stamps: Stamps | None = None
        self.watch: Watch | None = None
        self.traces: TraceLog | None = None
        self.element_spec: Any = None
        self.has_device = any(device.kind != "CPU" for device in environment.devices)
        self.device = next((each.name for each in environment.devices if each.kind == "GPU"), "")
        """The first accelerator, as TensorFlow calls it; empty where there is none."""
        self.stopping = False
        """The live run has seen enough."""
        self.stopped_hard = False
        """Whatever runs must come back at once."""

    @property
    def worker(self) -> Worker:
        """Give the thread that the job is measured on."""
        return self.threads[0]

    @property
    def reaper(self) -> Worker:
        """Give the thread that takes down what runs held."""
        return self.threads[1]

    def guarded(self, worker: Worker, work: Callable[[], Any], what: str) -> Any:
        """Run a later phase; its failure is a gap in the report, not the end of it."""
        if self.deadline.left() <= 2 * RESERVE_S:
            raise Abandoned
        failures = (
            tensorflow.tensorflow().errors.OpError, ValueError, TypeError, RuntimeError,
            AttributeError, NotImplementedError, LookupError, OSError, MemoryError, StopIteration,
        )  # fmt: skip
        try:
            return worker.run(
                work, until=self.deadline.end - RESERVE_S, grace_s=self.grace_s(), stop=self.stop_now
            )
        except failures as error:
            reason = Missing(f"{what} failed: {root_cause(error)}")
            return (reason, None) if what == "reading the input" else reason

    def take_down(self, what: Callable[[], None]) -> None:
        """Have something taken down that may take long, such as an iterator that waits for its tuning.

        It is given a moment, so that its last element does not disturb what is measured next.
        """
        if self.over:
            what()  # on a thread that was left in its work: nobody waits for it
            return
        self.reaper.begin(what)
        self.reaper.settle(min(SETTLES_S, self.grace_s()))

    def unwatch(self) -> None:
        """Take off what watches TensorFlow; harmless when nothing is on."""
        if self.watch is not None:
            self.watch.stop()
        if self.traces is not None:
            self.traces.stop()

    def grace_s(self) -> float:
        """Give how long work may take to come back once it is asked to."""
        return _GRACE_SHARE * self.request.budget_s

    def stop_now(self) -> None:
        """Ask whatever runs on the worker to come back at once."""
        self.stopped_hard = True
        self.stopping = True
        if self.recorder is not None:
            self.recorder.abort = True
            self.recorder.hot.stop_at = -math.inf

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note what a phase takes of the budget."""
        begin = self.request.clock()
        try:
            yield
        finally:
            self.deadline.note(name, begin)

    def say(self, what: str) -> None:
        """Tell the caller what goes on."""
        if self.request.progress is not None:
            self.request.progress(what)

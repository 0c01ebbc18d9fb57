"""Let several workers make the batches of a PyDataset."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.model.pipeline import Edit, PyInput
from tfdiag.model.quantity import Maybe
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_with_input_at

__all__ = ["Calls", "calls", "suggest"]

_THREADS_BELOW = 0.5
"""From this part on that holds the lock, threads don't help and processes do."""
_SPREAD = 1.3
"""How much slower workers get beside a running step."""


@dataclass(frozen=True, slots=True)
class Calls:
    """What a call of `__getitem__` costs."""

    item_s: float
    cpu: float
    """The part of it in which a processor works."""
    locked: float
    """The part that only one thread at a time can do."""
    source: str

    def on_threads(self, workers: float, cores: float) -> float:
        """Give the time for a batch from so many threads."""
        shared = max(1.0, workers)
        free = max(0.0, self.cpu - self.locked)
        waits = max(0.0, 1 - max(self.cpu, self.locked))
        computing = free / min(shared, max(1.0, cores))
        return self.item_s * (self.locked + computing + waits / shared)

    def on_processes(self, workers: float, cores: float) -> float:
        """Give the time for a batch from so many processes."""
        shared = max(1.0, workers)
        return self.item_s * (self.cpu / min(shared, max(1.0, cores)) + (1 - self.cpu) / shared)

    def now_s(self, source: PyInput, cores: float) -> float:
        """Give the time for a batch from the workers as they are."""
        if source.use_multiprocessing:
            return self.on_processes(source.workers, cores)
        return self.on_threads(source.workers, cores)

    def then_s(self, cores: float) -> float:
        """Give the time for a batch from the workers that are suggested."""
        workers = _count(cores)
        if self.locked < _THREADS_BELOW:
            return self.on_threads(workers, cores)
        return self.on_processes(workers, cores)


def calls(source: PyInput, cores: float) -> Calls:
    """Say what a call costs, and how much of it holds Python's lock."""
    item = median(source.item_s)
    cpu = min(1.0, source.cpu_s / max(1e-9, sum(source.item_s)))
    if not source.threads_item_s:
        return Calls(item, cpu, cpu, "its processor time: no threads were tried, all of it may hold the lock")
    threads = max(2.0, cores)
    share = min(1.0, median(source.threads_item_s) / max(1e-9, item))
    locked = min(1.0, max(0.0, (share - 1 / threads) / (1 - 1 / threads)))
    return Calls(item, cpu, locked, "the same calls from as many threads as there are cores")


def _count(cores: float) -> int:
    return max(2, int(cores))


def _predicted(analysis: Analysis, source: PyInput, cores: float) -> Maybe:
    cost = calls(source, cores)
    how = "threads" if cost.locked < _THREADS_BELOW else "processes"
    return gain_with_input_at(
        analysis,
        cost.then_s(cores),
        _SPREAD,
        f"the time of __getitem__ on {_count(cores)} {how}",
        elsewhere=how == "processes",
    )


def suggest(analysis: Analysis, check: str, source: PyInput) -> Suggestion:
    """Suggest threads, or processes where Python's lock binds."""
    cores = usable_cores(analysis.measurements)
    workers = _count(cores)
    predicted = _predicted(analysis, source, cores)
    old = f"- super().__init__(workers={source.workers}, use_multiprocessing={source.use_multiprocessing})"
    if calls(source, cores).locked < _THREADS_BELOW:
        return Suggestion(
            id=f"{check}/threads",
            check=check,
            text=f"Let {workers} threads make batches: workers={workers} in the PyDataset's constructor.",
            code=f"{old}\n+ super().__init__(workers={workers})",
            predicted=predicted,
            risk="__getitem__ is called from several threads at a time: what it shares needs a lock.",
            edits=(Edit("workers", value=workers),),
        )
    risk = (
        "Each process has a copy of the object, which must be picklable, with its memory; forking one in "
        "which TensorFlow has threads can hang."
    )
    if source.picklable:
        risk = f"This object can't go to another process yet: {source.picklable}. {risk}"
    return Suggestion(
        id=f"{check}/processes",
        check=check,
        text=f"Python's lock lets one thread work at a time: make batches in {workers} processes, "
        f"workers={workers}, use_multiprocessing=True.",
        code=f"{old}\n+ super().__init__(workers={workers}, use_multiprocessing=True)",
        predicted=predicted,
        risk=risk,
        reason="not tried: processes are started in the caller's own program only"
        if source.picklable
        else "",
        edits=() if source.picklable else (Edit("workers", value=workers, processes=True),),
    )

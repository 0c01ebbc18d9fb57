"""A PyDataset makes its batches with too few workers.

What it measures
    The time of `__getitem__` called directly, one call after the other and from as many threads as
    there are cores. What more threads don't make faster holds Python's lock. It fires when the step
    waits, making batches is at least half of that, and more workers or processes would make them
    faster.
Why it matters
    With `workers=1` Keras makes one batch at a time. Threads help while a batch waits for files or
    computes outside of Python; what computes in Python runs on one core however many threads there are.
How to fix it
    `workers=n` in the constructor of the PyDataset, with `use_multiprocessing=True` where Python itself
    is what takes the time.
When to ignore it
    When `__getitem__` is not safe to be called from several threads.
References
    https://keras.io/api/utils/python_utils/#pydataset-class
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.pipeline import PyInput
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import py_workers

__all__ = ["CHECK"]

_PART = 0.5
"""Making a batch must be this part of the wait, or something else holds the step up."""
_FASTER = 1.25
"""More workers must make batches so much faster."""
_BINDS = 0.5


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step waits for a PyDataset that more workers would make faster."""
    if analysis.measurements.job.input != "PyDataset":
        return
    wait = facts.waits(analysis)
    if not wait:
        return
    source = _py_input(analysis)
    cores = usable_cores(analysis.measurements)
    calls = py_workers.calls(source, cores)
    binds = calls.locked >= _BINDS
    if source.workers >= cores and (source.use_multiprocessing or not binds):
        return
    now, then = calls.now_s(source, cores), calls.then_s(cores)
    seconds = facts.input_wait(analysis) + analysis.contended_s
    if now < _PART * seconds or then <= 0 or now / then < _FASTER:
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title="The PyDataset makes batches slower than the step takes them",
            severity=severity_of(wait),
            cost=facts.share(wait, source="wait for input"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                Evidence(
                    "time of __getitem__ for a batch",
                    Quantity(calls.item_s, "s", source="called directly", count=len(source.item_s)),
                ),
                Evidence(
                    "a batch from the workers as they are",
                    Quantity(now, "s", origin="estimated", source="time of __getitem__ on the workers"),
                    Quantity(_PART * seconds, "s", origin="given"),
                    "above",
                ),
                Evidence(
                    "how much faster batches are made with the workers suggested",
                    Quantity(
                        now / then, "x", origin="estimated", source="time of __getitem__ on more workers"
                    ),
                    Quantity(_FASTER, "x", origin="given"),
                    "above",
                ),
                Evidence(
                    "part of __getitem__ that only one thread at a time can do",
                    Quantity(calls.locked, "share", source=calls.source),
                ),
                Evidence("workers", Quantity(source.workers, "workers", source="PyDataset")),
            ),
            where="__getitem__ of the PyDataset",
        ),
        (py_workers.suggest(analysis, CHECK.id, source),),
    )


def _py_input(analysis: Analysis) -> PyInput:
    pipeline = analysis.measurements.pipeline
    if isinstance(pipeline, Missing):
        raise Undecided(f"the PyDataset was not asked for batches: {pipeline.reason}")
    if isinstance(pipeline.py_input, Missing):
        raise Undecided(f"the PyDataset was not asked for batches: {pipeline.py_input.reason}")
    if not pipeline.py_input.item_s:
        raise Undecided("the PyDataset was not asked for batches: no call came to its end")
    return pipeline.py_input


CHECK = Check("python-dataset-workers", "A PyDataset has too few workers", "input", __doc__, run)

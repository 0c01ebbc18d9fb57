"""The step takes hardly longer with more rows: the device is underused, and memory allows more.

What it measures
    One kept batch, cut and repeated, goes through the same train function at half, once, twice and four times
    its size, by turns. From what a step then takes, and from what lies around it in the live run, follows how
    much sooner each row would be done. It fires when that is half as fast again, at a size that was run and
    fitted into memory: by TensorFlow's own allocator on a device, by the memory of the host on the CPU.
Why it matters
    A step has costs that don't grow with its batch: each op is started, each weight is read and updated.
    With few rows a device spends its time on those, and its arithmetic units idle.
How to fix it
    A bigger batch, as far as training allows: the learning rate is usually raised along with it.
When to ignore it
    When the size of the batch is part of the method, or when the result suffers.
References
    https://www.tensorflow.org/guide/gpu_performance_analysis
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.checks.steps import is_tiny, scaling_evidence
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding, Severity
from tfdiag.remedies import bigger_batch

__all__ = ["CHECK"]

_GAIN = 1.5
_SURELY = 1.3
"""The lower end of the interval."""
_LEAST = 0.9 * (1 - 1 / _GAIN)
"""Of the step, inside of its call: callbacks and other things that each batch costs are not the device's. A
little less than the gain asks for, because the call was replayed and not live."""
_LARGE_GAIN = 2.0
"""From here on the size of the batch is more than a detail of the job."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when a larger batch that was run gives much for each row."""
    job = analysis.measurements.job
    if job.run_eagerly or job.loop in ("custom", "unknown") or is_tiny(analysis):
        return  # these have checks of their own
    scaling = analysis.scaling
    if isinstance(scaling, Missing):
        raise Undecided(scaling.reason)
    best = bigger_batch.best_size(analysis)
    if best is None:
        return
    rows, gain = best
    surely = gain.value if gain.low is None else gain.low
    cost = min(1 - 1 / gain.value, bigger_batch.saved_in_call(analysis, rows))
    if gain.value < _GAIN or surely < _SURELY or cost < _LEAST:
        return
    # Nothing is wrong with the job: a bigger batch is another training.
    severity: Severity = severity_of(cost) if gain.value >= _LARGE_GAIN else "info"
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Each row would be done {gain.value:.1f} times as fast in batches of {rows}",
            severity=severity,
            cost=facts.share(cost, source="what a step costs beside its rows"),
            evidence=(
                Evidence(
                    f"gain for each row with {rows / scaling.rows:g} times the batch",
                    gain,
                    Quantity(_GAIN, "x", origin="given"),
                    "above",
                ),
                Evidence(f"the step with {scaling.rows} rows", scaling.steps[scaling.rows]),
                Evidence(f"the step with {rows} rows", scaling.steps[rows]),
                *scaling_evidence(scaling),
                *_memory(analysis, rows),
            ),
            where=f"a batch of {scaling.rows} rows",
            detail="" if scaling.linear else f"The step does not grow linearly: {scaling.bend}.",
        ),
        (bigger_batch.suggest(analysis, CHECK.id, rows, gain),),
    )


def _memory(analysis: Analysis, rows: int) -> Iterator[Evidence]:
    measured = analysis.measurements.scaling
    if isinstance(measured, Missing):
        return
    for size in measured.sizes:
        if size.rows == rows and isinstance(size.memory, Quantity):
            yield Evidence(f"memory in use with {rows} rows", size.memory)
    if isinstance(measured.memory_limit, Quantity):
        yield Evidence("memory that there is", measured.memory_limit)


CHECK = Check(
    "small-batch", "The device is underused, and a bigger batch fits", "compute", __doc__, run, rank=1
)

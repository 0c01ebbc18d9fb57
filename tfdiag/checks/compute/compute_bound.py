"""The device computes nearly all the time: the good case.

What it measures
    The share of the step in which the step's own operations run, from the call less its wait and its
    dispatch. Beside it: the floating-point operations of a step (its matrix products and convolutions,
    counted in the traced graph, which holds the backward pass too), how many of them are done a second, and
    how that compares with what the machine reached in a short benchmark of its own.
Why it matters
    Nothing around the step is worth mending: input, callbacks and dispatch together cost little. What is
    left is the computation itself.
How to fix it
    Nothing is broken. To go on: a smaller or leaner model, lower precision where the device is faster
    with it, a faster device or more of them.
When to ignore it
    Always, if the job is fast enough.
References
    https://www.tensorflow.org/guide/gpu_performance_analysis
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.compute import best_peak
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding

__all__ = ["CHECK"]

_SHARE = 0.7
_NEAR_PEAK = 0.5
"""From this part of the machine's peak on, arithmetic is what limits the step."""
_NEXT = "What would come next: lower precision, a leaner model, or a faster device."


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when compute takes the step and nothing else does."""
    assert not isinstance(analysis.step, Missing)
    compute = analysis.step.segments["device_compute"]
    if isinstance(compute, Missing):
        raise Undecided(compute.reason)
    if isinstance(analysis.replay, Missing) and isinstance(analysis.device, Missing):
        raise Undecided(f"compute is not told apart from dispatch: {analysis.replay.reason}")
    cost = analysis.share(compute.value)
    if cost < _SHARE or analysis.verdict.code != "compute-bound":
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The step computes for {cost:.0%} of its time: nothing around it is worth mending",
            severity="info",
            cost=facts.share(cost, source="compute"),
            evidence=(
                Evidence(
                    "compute per step",
                    compute,
                    Quantity(_SHARE * analysis.step.mean_s, "s", origin="given"),
                    "above",
                ),
                *(
                    [Evidence("the most that any fix around the step can gain", best)]
                    if isinstance(best := analysis.bounds.best_speedup, Quantity)
                    else []
                ),
                *_rate(analysis),
            ),
            where="the model",
            detail=_detail(analysis),
        )
    )


def _rate(analysis: Analysis) -> Iterator[Evidence]:
    """Show what the step computes a second, and what the machine can, as far as that is known."""
    done, compute = analysis.arithmetic, analysis.measurements.compute
    if isinstance(done, Missing) or isinstance(compute, Missing) or not done.flops.value:
        return
    yield Evidence("operations of a step (matrix products and convolutions)", done.flops)
    if isinstance(done.achieved, Quantity):
        yield Evidence("operations a second while it computes", done.achieved)
    for dtype in compute.by_dtype if isinstance(done.at_peak_s, Quantity) else ():
        if not isinstance(peak := best_peak(compute, dtype), Missing):
            yield Evidence(f"the machine's own peak in {dtype} ({peak.kind}, {peak.size})", peak.rate)
    if isinstance(done.share, Quantity):
        yield Evidence("share of that peak", done.share)


def _detail(analysis: Analysis) -> str:
    done = analysis.arithmetic
    if isinstance(done, Missing) or isinstance(done.share, Missing) or not done.flops.value:
        return _NEXT
    share = f"{done.share.value:.0%}"
    if done.share.value >= _NEAR_PEAK:
        limit = f"Its products and convolutions run at {share} of the machine's peak: arithmetic limits it."
        return f"{limit} {_NEXT}"
    return (
        f"Its products and convolutions would take {share} of that time at the machine's peak: the rest goes "
        "into memory traffic and into operations on single numbers. What would come next: larger batches, "
        "fewer and larger layers, jit_compile=True, or a faster memory."
    )


CHECK = Check("compute-bound", "The device computes nearly all the time", "compute", __doc__, run, rank=2)

"""The device computes nearly all the time: the good case.

What it measures
    The share of the step in which the step's own operations run, from the call less its wait and its
    dispatch.
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
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding

__all__ = ["CHECK"]

_SHARE = 0.7


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
            ),
            where="the model",
            detail="What would come next: lower precision, a leaner model, or a faster device.",
        )
    )


CHECK = Check("compute-bound", "The device computes nearly all the time", "compute", __doc__, run)

"""The step is faster on the CPU than on the accelerator that it runs on.

What it measures
    Copies of the model train on one batch, without the input, on the accelerator and on the CPU by turns,
    with larger and smaller batches too. The copy of the batch to the accelerator is in its step, as in
    the job. It fires when the CPU is faster beyond doubt, and by enough to matter to the job's own step.
Why it matters
    Each op costs the host a launch, and each batch and result a copy, whatever the batch holds. A small
    model on small batches is done on the CPU before an accelerator has been told what to do.
How to fix it
    Build and train the model under `tf.device("/CPU:0")`, or hide the accelerator with
    `tf.config.set_visible_devices([], "GPU")`. Where batches may be larger, the batch size from which the
    accelerator wins is the other way out.
When to ignore it
    When the model is a small stand-in for a large one, or the CPU is needed for something else.
References
    https://www.tensorflow.org/guide/gpu
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.step_devices import other_device
from tfdiag.checks import facts, placed
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import other_device as remedy

__all__ = ["CHECK"]

_CLEARLY = 1.1


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step is clearly faster on the CPU."""
    if all(device.kind == "CPU" for device in analysis.measurements.environment.devices):
        return
    facts.watched(analysis)
    placement = analysis.measurements.placement
    if isinstance(placement, Placement) and placed.main_device(placement).startswith("/CPU"):
        return  # it is there already
    found = other_device(analysis)
    if found is None:
        return
    if isinstance(found, Missing):
        raise Undecided(found.reason)
    surely = found.ratio.value if found.ratio.low is None else found.ratio.low
    cost = analysis.share(facts.mean(analysis) - found.after_s)
    if surely < _CLEARLY or not analysis.crosses(cost, facts.COST_SHARE):
        return
    told = "" if isinstance(found.from_rows, Quantity) else found.from_rows.reason
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The step is {found.ratio.value:.1f} times as fast on the CPU as on {found.device}",
            severity=severity_of(cost),
            cost=facts.share(cost, source="the step less what it would take on the CPU"),
            evidence=(
                Evidence(f"the step on {found.device}", found.there),
                Evidence("the same step on the CPU", found.here),
                Evidence(
                    "times as fast on the CPU, at least",
                    Quantity(surely, "x", source=found.ratio.source),
                    Quantity(_CLEARLY, "x", origin="given"),
                    "above",
                ),
                *(
                    Evidence(name, value)
                    for name, value in (
                        ("times as fast on the CPU", found.ratio),
                        ("copying the batch to it", found.copy),
                        ("batch from which it is faster than the CPU", found.from_rows),
                    )
                    if isinstance(value, Quantity)
                ),
            ),
            where="the train step",
            detail=told and f"A batch from which {found.device} wins is not known: {told}.",
        ),
        (remedy.on_the_cpu(analysis, CHECK.id, found),),
    )


CHECK = Check("better-on-cpu", "The step is faster on the CPU", "placement", __doc__, run)

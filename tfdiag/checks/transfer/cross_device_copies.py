"""Tensors go back and forth between devices inside a step.

What it measures
    Which tensors cross devices in the middle of a step (not the batch on its way in, nor results on their
    way out), with type, shape and bytes, from the parts into which TensorFlow cut the step's graph; and,
    from a trace of a few steps, how long such copies take while no kernel runs.
Why it matters
    A copy inside the step can hide behind nothing: what comes after it needs it. The bus is ten to a
    hundred times slower than the device's own memory.
How to fix it
    Keep what belongs together on one device: see which op and layer the tensors come from and go to. The
    findings `cpu-op-in-gpu-step`, `python-function-in-step` and `model-on-cpu` say why it is elsewhere.
When to ignore it
    When a model is spread over several devices because it does not fit on one.
References
    https://www.tensorflow.org/guide/gpu
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, placed
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.placement import Copy
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import placed_ops

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when copies inside the step take their time from it."""
    if not placed.accelerators(analysis):
        return
    found = placed.placement(analysis)
    if placed.main_device(found).startswith("/CPU"):
        return
    copies = sorted(
        (copy for copy in found.copies if copy.purpose == "inside"),
        key=lambda copy: copy.bytes.value if isinstance(copy.bytes, Quantity) else 0.0,
        reverse=True,
    )
    seconds = placed.copy_seconds(found, ("inside",), "tensors cross devices inside the step")
    seconds /= placed.per_call(analysis)
    cost = min(1.0, analysis.share(seconds))  # traced calls are slower than others
    if not copies or not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title="Tensors go back and forth between devices inside the step",
            severity=severity_of(cost),
            cost=facts.share(cost, source="copies inside the step while no kernel runs"),
            evidence=(
                Evidence(
                    "time of copies inside the step",
                    Quantity(seconds, "s", origin="estimated", source="trace of replayed calls, by bytes"),
                    placed.limit(analysis),
                    "above",
                ),
                Evidence(
                    "tensors that cross inside the step",
                    Quantity(float(len(copies)), "tensors", source="partitioned graph of the step"),
                ),
                *placed.bytes_evidence("copied inside a step", copies),
            ),
            where=", ".join(map(told, copies[:3])),
        ),
        (placed_ops.fewer_copies(analysis, CHECK.id, copies[0], seconds),),
    )


def told(copy: Copy) -> str:
    """Name a copy: what crosses, how large, and where to."""
    layer = f" of layer {copy.layer}" if copy.layer else ""
    return f"{copy.op}{layer}, {copy.dtype}{copy.shape}, {copy.source} to {copy.target}"


CHECK = Check("cross-device-copies", "Tensors cross devices inside the step", "transfer", __doc__, run)

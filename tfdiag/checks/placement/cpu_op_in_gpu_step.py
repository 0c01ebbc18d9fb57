"""An op on the CPU in the middle of a step that runs on a GPU.

What it measures
    Which ops run on the CPU, although most of the step runs on an accelerator, and take tensors from it or
    give tensors to it, from the parts into which TensorFlow cut the step's graph; why they are there; and,
    from a trace of a few steps, how long the accelerator stands idle around them, copies included. Ops on
    shapes, which TensorFlow keeps on the host on purpose, don't count.
Why it matters
    Everything that the op needs is copied to the host, and before that all kernels queued so far have to
    finish; then the result is copied back, and only then can kernels be queued again.
How to fix it
    Depending on why it is there: take the `with tf.device("/CPU:0")` away; cast to a type that the GPU has
    a kernel for (float32 instead of float64); use another op that it has a kernel for; or do the work in the
    dataset.
When to ignore it
    When the op needs more memory than the GPU has.
References
    https://www.tensorflow.org/guide/gpu
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, placed
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.placement import PlacedOp
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import placed_ops

__all__ = ["CHECK"]

_WHY = {
    "pinned": "pinned to the CPU with tf.device",
    "no kernel": "the accelerator has no kernel for it",
    "no kernel for this type": "the accelerator has no kernel for {dtype}",
    "variable there": "a variable or resource that it uses is there",
}


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the accelerator stands idle around ops on the CPU."""
    if not placed.accelerators(analysis):
        return
    found = placed.placement(analysis)
    if placed.main_device(found).startswith("/CPU"):
        return
    ops = placed.of_kind(found, "host")
    if not ops:
        return
    time = placed.time_of(found, "host", f"ops run on the CPU in the middle of the step: {placed.named(ops)}")
    seconds = time.alone_s / placed.per_call(analysis)
    cost = min(1.0, analysis.share(seconds))  # traced calls are slower than others
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    copies = [copy for copy in found.copies if copy.purpose == "inside"]
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{ops[0].op} runs on the CPU in the middle of the step",
            severity=severity_of(cost),
            cost=facts.share(cost, source="time in which the accelerator stood idle around these ops"),
            evidence=(
                *placed.time_evidence(
                    analysis,
                    time,
                    "time that the accelerator waits for ops on the CPU",
                    "time in ops on the CPU",
                ),
                Evidence(
                    "ops on the CPU that exchange tensors with the accelerator",
                    Quantity(float(len(ops)), "ops", source="partitioned graph of the step"),
                ),
                *placed.bytes_evidence("copied to the CPU and back in a step", copies),
            ),
            where=placed.named(ops),
            detail=why(ops[0]),
        ),
        (placed_ops.on_the_accelerator(analysis, CHECK.id, ops[0], seconds),),
    )


def why(op: PlacedOp) -> str:
    """Say why an op is on the CPU, as far as it is known."""
    text = _WHY.get(op.reason, "")
    return f"{op.op} is on the CPU: {text.format(dtype=op.dtype)}." if text else ""


CHECK = Check(
    "cpu-op-in-gpu-step", "An op runs on the CPU in the middle of the step", "placement", __doc__, run
)

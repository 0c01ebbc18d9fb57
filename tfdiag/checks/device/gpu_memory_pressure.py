"""TensorFlow's memory on the GPU is nearly full, and steps lose time that nothing else explains.

What it measures
    The most memory that was in use during the diagnosis, over what TensorFlow may take on the device, both
    from TensorFlow's own allocator: it takes nearly all memory in advance, so that what NVML calls used says
    nothing. And the time of the live step that neither its wait nor the replay explains. It fires from 95 %
    of the memory and 5 % of the step on: a job that fills the memory and loses no time is well made.
Why it matters
    An allocation that does not fit waits for others to free some, up to ten seconds, and kernels are chosen
    that need less room and are slower.
How to fix it
    A smaller batch, or the same in parts (`gradient_accumulation_steps` of the optimizer), recomputed
    activations (`tf.recompute_grad`), mixed precision, an optimizer with less state. Where memory is in
    pieces: `TF_GPU_ALLOCATOR=cuda_malloc_async`.
When to ignore it
    When the unexplained time has another cause: other processes on the machine, for instance.
References
    https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.gpu import Allocator
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding

__all__ = ["CHECK"]

_FULL = 0.95


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for each device whose memory is full at a cost."""
    telemetry, devices = analysis.measurements.gpu, analysis.measurements.environment.devices
    if not any(device.kind == "GPU" for device in devices):
        return
    if isinstance(telemetry, Missing):
        raise Undecided(f"TensorFlow's memory on the GPU was not read: {telemetry.reason}")
    if not telemetry.allocators:
        raise Undecided("TensorFlow's memory on the GPU was not read")
    for allocator in telemetry.allocators:
        yield from _judge(analysis, allocator)


def _judge(analysis: Analysis, allocator: Allocator) -> Iterator[Result]:
    assert not isinstance(analysis.step, Missing)
    limit = allocator.limit
    used = allocator.in_use if isinstance(allocator.peak, Missing) else allocator.peak
    if isinstance(limit, Missing) or isinstance(used, Missing):
        missing = limit if isinstance(limit, Missing) else used
        assert isinstance(missing, Missing)
        raise Undecided(f"how full {allocator.device} is is not known: {missing.reason}")
    if used.value < _FULL * limit.value:
        return
    unexplained = analysis.step.segments["unexplained"]
    if isinstance(unexplained, Missing):
        raise Undecided(f"whether full memory costs time is not known: {unexplained.reason}")
    cost = analysis.share(unexplained.value)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"TensorFlow's memory on {allocator.device} is full, and steps lose unexplained time",
            severity=severity_of(cost),
            cost=facts.share(cost, source="what neither wait nor replay explains"),
            evidence=(
                Evidence("memory in use", used, Quantity(_FULL * limit.value, "B", origin="given"), "above"),
                Evidence("what TensorFlow may take", limit),
                Evidence(
                    "unexplained time per step",
                    unexplained,
                    Quantity(facts.COST_SHARE * analysis.step.mean_s, "s", origin="given"),
                    "above",
                ),
            ),
            where=allocator.device,
        )
    )


CHECK = Check("gpu-memory-pressure", "TensorFlow's memory on the GPU is full", "device", __doc__, run)

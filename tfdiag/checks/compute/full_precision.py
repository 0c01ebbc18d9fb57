"""The step computes in float32 on a GPU whose Tensor Cores idle.

What it measures
    The compute capability of the GPU (7.0 and above have Tensor Cores), the type of the step's products and
    convolutions, whether TensorFloat-32 lets float32 use Tensor Cores (from 8.0 on, TensorFlow's default),
    the names of the kernels in the trace, and how many operations a second the GPU does in float16 and in
    float32 in a short benchmark. It fires when the products take a good part of the step and float16 is half
    as fast again.
Why it matters
    Tensor Cores multiply matrices in float16 several times as fast as the other units do in float32, and half
    as many bytes are moved.
How to fix it
    `keras.mixed_precision.set_global_policy("mixed_float16")` before the model is built.
When to ignore it
    When the result needs float32, or when the loss becomes NaN in spite of its scaling.
References
    https://www.tensorflow.org/guide/mixed_precision
    https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.precision import TENSOR_CORES, computed, peak_evidence, peak_of, product_s
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.device import DeviceTrace
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import precision

__all__ = ["CHECK"]

_FASTER = 1.5
_TENSOR_FLOAT = 8.0
"""The compute capability from which on float32 may use Tensor Cores."""
_ON_TENSOR_CORES = re.compile(r"tensorop|[hs]884|[hs]1688|16816|_tf32|wgmma|hmma", re.IGNORECASE)
"""What NVIDIA's libraries call kernels that use them."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when float32 leaves Tensor Cores idle at a cost."""
    if all(device.kind != "GPU" for device in analysis.measurements.environment.devices):
        return
    compute = computed(analysis)
    if compute is None or isinstance(compute.capability, Missing):
        return
    capability, flops = compute.capability.value, compute.by_dtype.get("float32", 0.0)
    if capability < TENSOR_CORES or flops <= 0:
        return
    if capability >= _TENSOR_FLOAT and compute.tensor_float_32 is not False:
        return  # Tensor Cores work in TensorFloat-32
    if _seen_at_work(analysis):
        return
    slow, fast = peak_of(compute, "float32"), peak_of(compute, "float16")
    ratio = fast.rate.value / slow.rate.value
    if ratio < _FASTER:
        return
    spent = product_s(analysis, flops, slow)
    saved = spent * (1 - 1 / ratio)
    cost = analysis.share(saved)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The step computes in float32; in float16 the GPU is {ratio:.1f} times as fast",
            severity=severity_of(cost),
            cost=facts.share(cost, source="the step's products, by the two rates that were measured"),
            evidence=(
                Evidence(
                    "compute capability",
                    compute.capability,
                    Quantity(TENSOR_CORES, "", origin="given"),
                    "above",
                ),
                Evidence(
                    "products in float32 per step, at the machine's best",
                    Quantity(spent, "s", origin="estimated", source="operations over the measured rate"),
                    Quantity(facts.COST_SHARE * facts.mean(analysis), "s", origin="given"),
                    "above",
                ),
                *peak_evidence(slow, fast, _FASTER),
            ),
            where=f"the policy {analysis.measurements.job.dtype_policy or 'float32'}",
            detail="" if capability < _TENSOR_FLOAT else "TensorFloat-32 is switched off in TensorFlow.",
        ),
        (precision.suggest_mixed(analysis, CHECK.id, saved),),
    )


def _seen_at_work(analysis: Analysis) -> bool:
    """Say whether kernels of Tensor Cores are among the busiest of the trace."""
    trace = analysis.measurements.device
    return isinstance(trace, DeviceTrace) and any(
        _ON_TENSOR_CORES.search(kernel.name) for kernel in trace.busiest
    )


CHECK = Check("full-precision", "Tensor Cores idle in float32", "compute", __doc__, run)

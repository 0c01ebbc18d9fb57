"""The model computes in float16 or bfloat16 on a processor that is slow with it.

What it measures
    The type of the matrix products and convolutions in the step's graph, and how many operations a second the
    processor does in that type and in float32, in a short benchmark on the job's own threads. It fires when
    float32 was at least twice as fast and the step's products take a good part of it.
Why it matters
    Few processors have instructions for these types; on the others each number is converted, or handled
    one by one. Mixed precision makes a GPU faster, and such a processor many times slower.
How to fix it
    The policy `float32` on the CPU; `mixed_bfloat16` where the processor has AMX or AVX512-BF16.
When to ignore it
    When the job only tries out on the CPU what will run on a GPU.
References
    https://www.tensorflow.org/guide/mixed_precision
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.precision import HALF, computed, peak_evidence, peak_of, product_s
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.compute import Compute
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import precision

__all__ = ["CHECK"]

_FASTER = 2.0
"""Two short benchmarks of a shared machine differ by less than that."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step would take less time in float32."""
    measured = analysis.measurements.compute
    if not isinstance(measured, Missing) and not _has_low(measured):
        return
    if isinstance(measured, Missing) and not _policy(analysis):
        return  # nothing says that it computes in any other type than float32
    compute = computed(analysis)
    if compute is None or not compute.device.startswith("/CPU"):
        return
    dtype = max(HALF, key=lambda each: compute.by_dtype.get(each, 0.0))
    slow, fast = peak_of(compute, dtype), peak_of(compute, "float32")
    ratio = fast.rate.value / slow.rate.value
    if ratio < _FASTER:
        return
    spent = product_s(analysis, compute.by_dtype[dtype], slow)
    saved = spent * (1 - 1 / ratio)
    cost = analysis.share(saved)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    policy = analysis.measurements.job.dtype_policy or dtype
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The step computes in {dtype} on a processor that is {ratio:.3g} times as fast in float32",
            severity=severity_of(cost),
            cost=facts.share(cost, source="the step's products, by the two rates that were measured"),
            evidence=(
                Evidence(
                    f"products in {dtype} per step, at the machine's best",
                    Quantity(spent, "s", origin="estimated", source="operations over the measured rate"),
                    Quantity(facts.COST_SHARE * facts.mean(analysis), "s", origin="given"),
                    "above",
                ),
                *peak_evidence(slow, fast, _FASTER),
            ),
            where=f"the policy {policy}",
            detail=_features(compute),
        ),
        (precision.suggest_plain(analysis, CHECK.id, policy, "float32", saved),),
    )


def _has_low(compute: Compute) -> bool:
    return any(compute.by_dtype.get(dtype, 0.0) > 0 for dtype in HALF)


def _policy(analysis: Analysis) -> bool:
    return any(dtype in analysis.measurements.job.dtype_policy for dtype in HALF)


def _features(compute: Compute) -> str:
    if compute.cpu_features_missing:
        return ""
    if not compute.cpu_features:
        return "The processor lists no instructions for float16 or bfloat16."
    return f"Of instructions for low precision the processor has {', '.join(compute.cpu_features)}."


CHECK = Check("low-precision-on-cpu", "float16 on a processor that is slow with it", "compute", __doc__, run)

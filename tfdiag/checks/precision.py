"""What the checks of number formats share: how long a step's products take, and how long they would."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.compute import best_peak
from tfdiag.checks import facts
from tfdiag.checks.registry import Undecided
from tfdiag.model.compute import Compute, Peak
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence

__all__ = ["HALF", "MAIN_PART", "TENSOR_CORES", "computed", "peak_evidence", "peak_of", "product_s"]

HALF = ("float16", "bfloat16")
TENSOR_CORES = 7.0
"""The compute capability from which on a GPU has Tensor Cores."""
MAIN_PART = 0.25
"""Of the step, for its computation to matter."""


def computed(analysis: Analysis) -> Compute | None:
    """Give what the step computes where computing is a good part of it, None where it is not."""
    compute = analysis.measurements.compute
    if isinstance(compute, Missing):
        raise Undecided(compute.reason)
    if not analysis.crosses(analysis.share(facts.segment(analysis, "device_compute")), MAIN_PART):
        return None
    return compute


def peak_of(compute: Compute, dtype: str, *, aligned: bool = True) -> Peak:
    """Give what the machine reached in a type, or say why it is not known."""
    peak = best_peak(compute, dtype, aligned=aligned)
    if isinstance(peak, Missing):
        raise Undecided(peak.reason)
    return peak


def product_s(analysis: Analysis, flops: float, peak: Peak) -> float:
    """Give how long so many operations run: at the machine's best, and no longer than the step computes."""
    return min(flops / peak.rate.value, facts.segment(analysis, "device_compute"))


def peak_evidence(slow: Peak, fast: Peak, ratio: float) -> tuple[Evidence, ...]:
    """Show two rates, and how much one is above the other against the least that counts."""
    return (
        Evidence(f"the machine in {fast.dtype}{_sizes(fast)}", fast.rate),
        Evidence(f"the machine in {slow.dtype}{_sizes(slow)}", slow.rate),
        Evidence(
            "the faster over the slower",
            Quantity(fast.rate.value / slow.rate.value, "x", source="short benchmarks of the machine"),
            Quantity(ratio, "x", origin="given"),
            "above",
        ),
    )


def _sizes(peak: Peak) -> str:
    return "" if peak.aligned else f", sizes like {peak.size}"

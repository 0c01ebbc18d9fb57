"""Layers have sizes that Tensor Cores can't use well.

What it measures
    For mixed precision on a GPU with Tensor Cores: which layers have a number of units, filters or input
    channels that is no multiple of 8, how much of the step's operations is theirs, and how much slower the
    GPU multiplies matrices of such sizes, in a short benchmark. It fires when that costs a share of the step.
Why it matters
    Tensor Cores work on blocks of 8 numbers and more. What does not fill its blocks is padded, or goes to
    slower kernels.
How to fix it
    Round the sizes of the layers that are named up to multiples of 8; a vocabulary or a number of classes
    likewise, with entries that nobody uses.
When to ignore it
    When the sizes are given from outside.
References
    https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.precision import HALF, TENSOR_CORES, computed, peak_evidence, peak_of, product_s
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.compute import Compute, LayerWork
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import aligned_layers

__all__ = ["CHECK"]

_FASTER = 1.2
_NAMED = 5
_IMAGES = 4
"""Channels of an image at most: nobody can change those, and libraries pad them."""
_OTHERWISE = ("Einsum", "Depthwise", "Separable")
"""Layers whose kernel has other dimensions than the matrices that are multiplied."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when layers of unaligned sizes cost a share of the step."""
    if all(device.kind != "GPU" for device in analysis.measurements.environment.devices):
        return
    compute = computed(analysis)
    if compute is None or isinstance(compute.capability, Missing) or compute.capability.value < TENSOR_CORES:
        return
    dtype = max(HALF, key=lambda each: compute.by_dtype.get(each, 0.0))
    layers = unaligned(compute, dtype)
    if not layers:
        return
    slow, fast = peak_of(compute, dtype, aligned=False), peak_of(compute, dtype)
    ratio = fast.rate.value / slow.rate.value
    if ratio < _FASTER:
        return
    spent = product_s(analysis, sum(layer.flops for layer in layers), slow)
    saved = spent * (1 - 1 / ratio)
    cost = analysis.share(saved)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    names = ", ".join(f"{layer.layer} {layer.kernel}" for layer in layers[:_NAMED])
    more = f" and {len(layers) - _NAMED} more" if len(layers) > _NAMED else ""
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{len(layers)} layers have sizes that are no multiples of {aligned_layers.STEP}",
            severity=severity_of(cost),
            cost=facts.share(cost, source="these layers' products, by the two rates that were measured"),
            evidence=(
                Evidence(
                    "products of these layers per step, at the machine's best",
                    Quantity(spent, "s", origin="estimated", source="operations over the measured rate"),
                    Quantity(facts.COST_SHARE * facts.mean(analysis), "s", origin="given"),
                    "above",
                ),
                *peak_evidence(slow, fast, _FASTER),
            ),
            where=names + more,
        ),
        (aligned_layers.suggest(analysis, CHECK.id, layers, saved),),
    )


def unaligned(compute: Compute, dtype: str) -> list[LayerWork]:
    """Give the layers that compute in this type and don't fill its blocks, most work first."""
    return [
        layer
        for layer in compute.layers
        if layer.dtype == dtype and not layer.kind.startswith(_OTHERWISE) and _off(layer.kernel)
    ]


def _off(kernel: tuple[int, ...]) -> bool:
    sizes = [size for size in kernel[-2:] if size > _IMAGES]
    return len(kernel) > 1 and any(size % aligned_layers.STEP for size in sizes)


CHECK = Check("unaligned-shapes", "Sizes that Tensor Cores can't use well", "compute", __doc__, run)

"""What a report says about the computation: its operations, the machine's peak, growth with the batch."""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.compute import best_peak
from tfdiag.analyse.scaling import batch_scaling
from tfdiag.model.measurements import Measurements
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.render.format import clean, duration, number, quantity, with_interval

__all__ = ["compute_gaps", "compute_lines"]


def compute_lines(measurements: Measurements) -> Iterator[tuple[str, str]]:
    """Give what a step computes, what the machine reaches at most, and how the step grows."""
    compute, scaling = measurements.compute, batch_scaling(measurements.scaling)
    if not isinstance(compute, Missing):
        if isinstance(compute.flops, Quantity) and compute.flops.value:
            kinds = ", ".join(compute.by_dtype)
            source = compute.flops.source
            yield "operations of a step", clean(f"{quantity(compute.flops)} in {kinds}: {source}")
        for dtype in dict.fromkeys(peak.dtype for peak in compute.peaks):
            peak = best_peak(compute, dtype)
            if not isinstance(peak, Missing):
                at_most = f"{quantity(peak.rate)} in a {peak.kind} of {peak.size}"
                yield (
                    clean(f"{peak.device} in {dtype}"),
                    clean(f"{at_most}, measured on the job's own threads"),
                )
    if not isinstance(scaling, Missing):
        sizes = ", ".join(f"{rows}: {duration(step.value)}" for rows, step in sorted(scaling.steps.items()))
        yield "the step by rows of its batch", clean(f"{sizes} (without input)")
        if isinstance(scaling.fixed, Quantity) and isinstance(scaling.per_row, Quantity):
            yield (
                "fixed cost and cost of a row",
                clean(
                    f"{with_interval(scaling.fixed)} and {with_interval(scaling.per_row)}; "
                    f"R² {number(scaling.r_squared)}, at most {scaling.off:.1%} off the line"
                ),
            )
        else:
            yield "the step is not linear", clean(scaling.bend)


def compute_gaps(measurements: Measurements) -> Iterator[tuple[str, Maybe]]:
    """Give what of the computation could not be seen."""
    compute, scaling = measurements.compute, measurements.scaling
    if isinstance(compute, Missing):
        yield "operations of a step", compute
    elif isinstance(compute.flops, Missing):
        yield "operations of a step", compute.flops
    if isinstance(scaling, Missing):
        yield "the step at other batch sizes", scaling

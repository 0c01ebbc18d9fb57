"""What a report says about the step on the accelerator and on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.model.devices import StepOnDevices
from tfdiag.model.quantity import Missing
from tfdiag.render.format import clean, number, with_interval

__all__ = ["step_lines"]


def step_lines(found: StepOnDevices | Missing) -> Iterator[tuple[str, str]]:
    """Give what the step takes on each device, and the batch from which one wins."""
    if isinstance(found, Missing) or not found.runs:
        return
    from tfdiag.analyse.devices import crossing, median_of  # numpy, which most reports can do without

    for run in found.runs:
        size = run.at(found.rows)
        if size is not None:
            yield clean(run.device), f"{with_interval(median_of(size.call_s, ''))} without input"
    host, *others = found.runs
    for other in others:
        at = crossing(host, other)
        if isinstance(at, Missing):
            yield "batch from which it wins", clean(found.sizes_missing or at.reason)
        else:
            ends = [end for end in (at.low, at.high) if end is not None]
            spread = f" ({' to '.join(number(round(end)) for end in ends)})" if len(ends) == 2 else ""
            about = "~" if at.origin == "estimated" else ""
            yield (
                "batch from which it wins",
                clean(f"{about}{number(round(at.value))} rows{spread} on {other.device}"),
            )

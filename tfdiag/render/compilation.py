"""What a report says of traces and of what XLA compiled."""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.model.compilation import Compilation, Trace
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.format import clean, duration, quantity

__all__ = ["compilation_lines"]

_SHOWN = 4


def compilation_lines(found: Compilation | Missing) -> Iterator[tuple[str, str]]:
    """Give a line for each function whose traces say something: more than its first one."""
    if isinstance(found, Missing):
        return
    of: dict[tuple[str, str], list[Trace]] = {}
    for trace in found.traces:
        if trace.during != "elsewhere":
            of.setdefault((trace.function, trace.where), []).append(trace)
    told = [each for each in of.items() if any(trace.argument for trace in each[1])]
    for (function, _), traces in told[:_SHOWN]:
        took = sum(trace.seconds for trace in traces)
        latest = next(trace for trace in reversed(traces) if trace.argument)
        text = f"traced {len(traces)} times, {duration(took)} in all; {clean(latest.argument)} was "
        yield clean(function), f"{text}{clean(latest.before)}, then {clean(latest.after)}"
    if isinstance(found.xla_compile, Quantity):
        shapes = f"; {found.looked} batches had {found.different} shapes" if found.shapes else ""
        yield "XLA, for a new shape", f"{quantity(found.xla_compile)}{shapes}"

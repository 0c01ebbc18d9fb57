"""`tfdiag.DeviceComparison`: what a comparison of devices found, and how it reads."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from tfdiag.model import codec
from tfdiag.model.comparison import ComparisonData, Crossing, DeviceCost
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.render.format import cells, clean, duration, interval, number, quantity, share, speedup
from tfdiag.render.terminal import WIDTH

__all__ = ["DeviceComparison"]

_MOSTLY = 0.8
"""From this part on a call is called fixed cost."""
_EVEN = 0.05
_HARDLY = 1.25

Rows = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True, repr=False)
class DeviceComparison(ComparisonData):
    """What a function costs on each device; print it, or read its fields."""

    @classmethod
    def from_data(cls, data: ComparisonData) -> DeviceComparison:
        """Give the same comparison with the ways to show it."""
        return cls(**{f.name: getattr(data, f.name) for f in fields(ComparisonData)})

    def to_dict(self) -> dict[str, Any]:
        """Give the whole comparison as plain JSON data, without loss."""
        return codec.encode(self)

    def to_json(self, indent: int | None = None) -> str:
        """Give the whole comparison as strict JSON."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.to_dict(), allow_nan=False, indent=indent, separators=separators)

    def __str__(self) -> str:
        """Give what a person reads in a terminal."""
        return "\n".join(line.rstrip() for line in _lines(self))

    def __repr__(self) -> str:
        """Give one short line."""
        return f"<tfdiag.DeviceComparison of {clean(self.function)}: {headline(self)}>"


def headline(found: ComparisonData) -> str:
    """Say in one sentence which device is faster."""
    known = [cost for cost in found.devices if isinstance(cost.call, Quantity)]
    if not known:
        return "no device was measured"
    if len(found.devices) == 1:
        return _alone(found, known[0])
    if len(known) == 1:
        others = ", ".join(cost.device for cost in found.devices if cost is not known[0])
        return f"Only {known[0].device} was measured: {others} failed"
    best = min(known, key=lambda cost: _value(cost.call))
    first = next((each for each in found.crossings), None)
    if first is None or isinstance(first.speedup, Missing):
        return f"{best.device} is the fastest"
    if best.device == first.against:
        nearest = max(found.crossings, key=lambda each: _value(each.speedup))
        return _faster(best.device, nearest.device, nearest.speedup, inverted=True)
    mine = next(each for each in found.crossings if each.device == best.device)
    return _faster(best.device, mine.against, mine.speedup, inverted=False)


def _faster(best: str, other: str, gain: Maybe, *, inverted: bool) -> str:
    if isinstance(gain, Missing):
        return f"{best} is faster than {other}"
    ends = [gain.value if end is None else end for end in (gain.low, gain.high)]
    ends = [1 / end if inverted and end else end for end in ends]
    value = 1 / gain.value if inverted and gain.value else gain.value
    if min(ends) <= 1 or value < 1 + _EVEN:
        return f"{best} and {other} take the same, within what this machine lets one see"
    return f"{best} is {speedup(value)} ({speedup(min(ends))} to {speedup(max(ends))}) as fast as {other}"


def _alone(found: ComparisonData, cost: DeviceCost) -> str:
    """Say what one device's numbers tell about others."""
    there = f"There is no other device than {cost.device} to compare with"
    if isinstance(found.limit, Missing) or isinstance(cost.fixed, Missing) or isinstance(cost.call, Missing):
        return f"{there}; what of the call is fixed cost is not known"
    part = min(1.0, cost.fixed.value / cost.call.value)
    if part >= _MOSTLY:
        return (
            f"{share(part)} of this call is the same for any size: a GPU would not help. "
            "Make the work of a call larger"
        )
    moved = _with_transfer(found, cost)
    if moved is not None and moved < _HARDLY:
        return (
            f"{share(part)} of this call does not grow with its size, and its data would have to cross the "
            f"bus: a GPU would make it at most {speedup(moved)} as fast, if each call's data came from the "
            "host"
        )
    return (
        f"{share(1 - part)} of this call grows with its size: "
        f"a GPU could make it up to {speedup(found.limit.value)} as fast"
    )


def _with_transfer(found: ComparisonData, cost: DeviceCost) -> float | None:
    if not all(isinstance(each, Quantity) for each in (found.transfer, cost.fixed, cost.call)):
        return None
    return _value(cost.call) / (_value(cost.fixed) + _value(found.transfer))


def _value(quantity_: Maybe) -> float:
    return quantity_.value if isinstance(quantity_, Quantity) else float("inf")


def _lines(found: ComparisonData) -> Iterator[str]:
    yield from _wrap(f"{headline(found)}.", 0)
    yield from _wrap(_subject(found), 0)
    yield from _part("A call, until its result is there", _calls(found))
    yield from _part("What of it grows", _growth(found))
    yield from _part("From which size on", _turns(found))
    yield from _part("Only one device", _one_device(found))
    yield from _part("Not measured", (("-", text) for text in dict.fromkeys(_gaps(found))), between=" ")
    yield from _part("Notes", (("-", clean(note)) for note in found.notes), between=" ")
    calls = ", ".join(f"{cost.calls:,} on {cost.device}" for cost in found.devices)
    yield from _part(
        "This comparison",
        iter(
            (
                ("cost", f"{duration(found.total_s)} of a budget of {duration(found.budget_s)}"),
                ("calls made", calls),
                ("to read", "~ is estimated, not measured; a range is a 95 % interval"),
            )
        ),
    )


def _subject(found: ComparisonData) -> str:
    parts = [clean(found.function)]
    if isinstance(found.rows, Quantity):
        parts.append(quantity(found.rows))
    if found.scaled:
        parts.append(f"called with fewer and with more rows of {clean(found.scaled)}")
    return ", ".join(parts)


def _calls(found: ComparisonData) -> Rows:
    for cost in found.devices:
        if isinstance(cost.call, Missing):
            yield cost.device, f"failed: {clean(cost.failed)}" if cost.failed else clean(cost.call.reason)
            continue
        yield cost.device, _spread(cost.call)
        if cost.kind != "CPU":
            yield "  comes back after", _spread(cost.returns)
            for name, part in (("  arguments there", cost.there), ("  result to the host", cost.back)):
                yield name, _spread(part) if isinstance(part, Quantity) else clean(part.reason)
        yield "  the first call", quantity(cost.first_call)


def _growth(found: ComparisonData) -> Rows:
    for cost in found.devices:
        if isinstance(cost.fixed, Quantity) and isinstance(cost.per_row, Quantity):
            row = quantity(cost.per_row.scaled(1, "s"))
            yield cost.device, f"{_spread(cost.fixed)} for any size, and {row} for each row"
            yield "  from", clean(cost.fixed.source)


def _turns(found: ComparisonData) -> Rows:
    for each in found.crossings:
        for name, rows in (
            (f"{each.device} against {each.against}", each.rows),
            ("  data from and to the host", each.with_transfers),
        ):
            yield name, _turn(each, rows)


def _turn(each: Crossing, rows: Maybe) -> str:
    if isinstance(rows, Missing):
        return clean(rows.reason)
    about = "about " if rows.origin == "estimated" else ""
    ends = interval(Quantity(rows.value, "", _whole(rows.low), _whole(rows.high)))
    text = f"{each.device} is faster from {about}{number(round(rows.value))} rows on"
    return text + (f" ({ends})" if ends else "")


def _whole(end: float | None) -> float | None:
    return None if end is None else float(round(end))


def _one_device(found: ComparisonData) -> Rows:
    if isinstance(found.limit, Quantity):
        ends = interval(found.limit)
        yield "faster at most", f"{speedup(found.limit.value)}" + (f" ({ends})" if ends else "")
        yield "  if", "what grows with the size took no time, and dispatch, which a GPU adds to, the same"
    if isinstance(found.transfer, Quantity):
        yield "data over a bus", f"{quantity(found.transfer)} a call"
        yield "  from", clean(found.transfer.source)


def _gaps(found: ComparisonData) -> Iterator[str]:
    if found.sizes_missing:
        yield f"other sizes: {clean(found.sizes_missing)}"
    for cost in found.devices:
        if isinstance(cost.call, Quantity) and isinstance(cost.fixed, Missing):
            yield f"fixed cost on {cost.device}: {clean(cost.fixed.reason)}"
        if cost.failed and isinstance(cost.call, Quantity):
            yield f"more calls on {cost.device}: {clean(cost.failed)}"


def _spread(value: Maybe) -> str:
    ends = interval(value)
    return quantity(value) + (f" ({ends})" if ends else "")


def _part(title: str, rows: Rows, between: str = "  ") -> Iterator[str]:
    known = list(rows)
    if not known:
        return
    yield ""
    yield title
    widest = max(cells(name) for name, _ in known)
    for name, text in known:
        lead = f"  {name}{' ' * (widest - cells(name))}{between}"
        yield from textwrap.wrap(
            text, WIDTH, initial_indent=lead, subsequent_indent=" " * cells(lead), break_on_hyphens=False
        ) or [lead]


def _wrap(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)

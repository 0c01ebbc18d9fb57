"""What a report says about where ops run: nothing where all of them run on the only device there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tfdiag.model.placement import Copy, DeviceOps, PlacedOp, Placement
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.format import clean, duration, number, size

__all__ = ["placement_lines"]

_TYPES_SHOWN = 4
_OPS_SHOWN = 8
_PURPOSES = {
    "input": "of the batch",
    "output": "of results",
    "variable": "for variables",
    "inside": "inside the step",
    "peer": "between accelerators",
}
_REASONS = {
    "pinned": "pinned with tf.device",
    "no kernel": "the accelerator has no kernel for it",
    "no kernel for this type": "the accelerator has no kernel for this type",
    "variable there": "a variable that it uses is there",
    "python": "calls Python",
    "text": "processes text",
}


def placement_lines(placement: Placement | Missing) -> Iterator[tuple[str, str]]:
    """Give what runs on each device, what crosses between them, and the ops that may be misplaced."""
    if isinstance(placement, Missing):
        return
    several = any(not each.device.startswith("/CPU") for each in placement.devices)
    if several:
        for each in placement.devices:
            yield clean(each.device), clean(_device(each, placement))
    yield from _copies(placement.copies)
    for (name, text), count in list(Counter(map(_op, placement.ops)).items())[:_OPS_SHOWN]:
        yield clean(name), clean(f"{count} times, {text}" if count > 1 else text)


def _device(each: DeviceOps, placement: Placement) -> str:
    types = ", ".join(f"{count} {op}" for op, count in list(each.types.items())[:_TYPES_SHOWN])
    parts = [
        f"{number(each.ops)} ops" + (f" ({types} …)" if len(each.types) > _TYPES_SHOWN else f" ({types})")
    ]
    held = [one for one in placement.variables if one.device == each.device]
    parts += [f"{number(one.count)} variables of {size(one.bytes)}" for one in held]
    return ", ".join(parts)


def _copies(copies: tuple[Copy, ...]) -> Iterator[tuple[str, str]]:
    groups: dict[tuple[str, str], list[Copy]] = {}
    for copy in copies:
        groups.setdefault((copy.direction, copy.purpose), []).append(copy)
    for (direction, purpose), group in groups.items():
        known = [copy.bytes.value for copy in group if isinstance(copy.bytes, Quantity)]
        text = f"{len(group)} copies" if len(group) > 1 else "1 copy"
        text += f" {_PURPOSES[purpose]}"
        if known:
            text += f", {size(sum(known))}"
        if len(known) < len(group):
            text += f", {len(group) - len(known)} of unknown size"
        yield direction, text


def _op(op: PlacedOp) -> tuple[str, str]:
    parts = [f"on {op.device}"]
    if op.layer or op.part:
        parts.append(f"layer {op.layer}" if op.layer else op.part)
    if op.function:
        parts.append(f"calls {op.function}" + (f" at {op.where}" if op.where else ""))
    elif op.reason in _REASONS:
        parts.append(_REASONS[op.reason])
    if op.in_loop:
        parts.append("in a loop")
    if isinstance(op.per_call_s, Quantity):
        parts.append(f"{duration(op.per_call_s.value)} a call")
    return op.op, ", ".join(parts)

"""Which GPU of the machine is which of TensorFlow's.

NVML numbers the machine by PCI bus. CUDA numbers what `CUDA_VISIBLE_DEVICES` lets it see, in the order that
stands there, and without one by speed unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tfdiag.model.quantity import Missing

__all__ = ["Listed", "tensorflow_names", "visible_gpus"]

_BY_SPEED = (
    "the machine has different GPUs, and CUDA numbers them by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID "
    "is set"
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A GPU as NVML lists it."""

    uuid: str
    name: str
    slices: tuple[str, ...] = ()
    """UUIDs of its MIG slices, where it is partitioned."""


def visible_gpus(
    machine: Sequence[Listed], visible: str | None, order: str | None
) -> tuple[str, ...] | Missing:
    """Give the UUIDs of what CUDA sees, in its order, or say why that order is not known."""
    by_bus = order == "PCI_BUS_ID" or len({gpu.name for gpu in machine}) <= 1
    if visible is None:
        if not by_bus:
            return Missing(_BY_SPEED)
        return _without_other_slices(machine, [gpu.uuid for gpu in machine])
    chosen: list[str] = []
    for word in (part.strip() for part in visible.split(",")):
        found = _named(machine, word) if word[:1].isalpha() else _numbered(machine, word)
        if not found:
            break  # CUDA ignores what comes after a name that it doesn't know
        if not word[:1].isalpha() and not by_bus:
            return Missing(_BY_SPEED)
        if found in chosen:
            return ()  # a GPU that stands there twice hides all of them
        chosen.append(found)
    return _without_other_slices(machine, chosen)


def _numbered(machine: Sequence[Listed], word: str) -> str:
    number = re.match(r"\+?(\d+)", word)
    return machine[int(number[1])].uuid if number and int(number[1]) < len(machine) else ""


def _named(machine: Sequence[Listed], word: str) -> str:
    """Find a GPU or a slice by the beginning of its UUID; `MIG-GPU-<uuid>/1/0` is a slice, the older way."""
    if older := re.fullmatch(r"MIG-(GPU-[^/]+)/(\d+)/(\d+)", word):
        slices = [uuid for gpu in machine if gpu.uuid == older[1] for uuid in gpu.slices]
        return word if word in slices else slices[0] if len(slices) == 1 else ""
    known = [uuid for gpu in machine for uuid in (gpu.uuid, *gpu.slices)]
    found = [uuid for uuid in known if uuid.lower().startswith(word.lower())]
    return found[0] if len(found) == 1 else ""


def _without_other_slices(machine: Sequence[Listed], chosen: list[str]) -> tuple[str, ...]:
    """Give what a process can use: a partitioned GPU stands for its first slice, and one slice is all."""
    slices_of = {gpu.uuid: gpu.slices for gpu in machine}
    every_slice = {uuid for gpu in machine for uuid in gpu.slices}
    meant = [slices_of[uuid][0] if slices_of.get(uuid) else uuid for uuid in chosen]
    slices = [uuid for uuid in meant if uuid in every_slice]
    whole = tuple(uuid for uuid in meant if uuid not in every_slice)
    if not slices:
        return whole
    # Asked for by its own name, or nothing else there: a slice is all that the process sees.
    if chosen[0] in every_slice or not whole:
        return (slices[0],)
    return whole


def tensorflow_names(
    machine: Sequence[Listed], visible: tuple[str, ...] | Missing, seen: Sequence[tuple[str, str]]
) -> dict[str, str] | Missing:
    """Give TensorFlow's name for each UUID; `seen` are the names of its GPUs with their descriptions."""
    if not isinstance(visible, Missing) and len(visible) == len(seen):
        return {uuid: name for uuid, (name, _) in zip(visible, seen, strict=True)}
    # By what they are called, where that tells them apart.
    matches: dict[str, str] = {}
    for name, description in seen:
        alike = [gpu.uuid for gpu in machine if description and gpu.name == description]
        if len(alike) != 1 or alike[0] in matches:
            break
        matches[alike[0]] = name
    if len(matches) == len(seen):
        return matches
    if isinstance(visible, Missing):
        return visible
    return Missing(f"TensorFlow sees {len(seen)} of the {len(visible)} GPUs that CUDA shows it")

"""What `compare_devices` found: costs of a call on each device, and where one begins to win."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.model.devices import DeviceRun
from tfdiag.model.quantity import Maybe, Missing

__all__ = ["ComparisonData", "Crossing", "DeviceCost"]


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """What a call costs on one device, at the size that the caller gave."""

    device: str
    kind: str
    call: Maybe
    """Until the result is there, on the device; the arguments are there already, unless they are numpy's."""
    returns: Maybe = Missing("not measured")
    """Until the call comes back: its dispatch, where the device works beside the host."""
    there: Maybe = Missing("not measured")
    """Copying the arguments to the device."""
    back: Maybe = Missing("not measured")
    """Copying the result to the host."""
    fixed: Maybe = Missing("not measured")
    """The part of a call that does not grow with the size."""
    per_row: Maybe = Missing("not measured")
    """What each row adds to a call."""
    first_call: Maybe = Missing("not measured")
    calls: int = 0
    ran_on: tuple[str, ...] = ()
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Crossing:
    """Two devices, and from which size on the first of them wins."""

    device: str
    against: str
    speedup: Maybe
    """At the caller's size: how many times as fast `device` is as `against`."""
    rows: Maybe
    """From so many rows on `device` is faster, or why there is no such size."""
    with_transfers: Maybe
    """The same where each call's data come from the host and go back to it."""


@dataclass(frozen=True, slots=True)
class ComparisonData:
    """A function on each of some devices."""

    function: str
    rows: Maybe
    """The caller's size: the first dimension of what was scaled."""
    devices: tuple[DeviceCost, ...]
    crossings: tuple[Crossing, ...] = ()
    scaled: str = ""
    """Which arguments were tiled and cut."""
    sizes_missing: str = ""
    """Why there is only one size."""
    limit: Maybe = Missing("there is more than one device")
    """On one device only: no other can be more times as fast, if it computed in no time."""
    transfer: Maybe = Missing("there is more than one device")
    """On one device only: what the data of a call would take to an accelerator and back."""
    notes: tuple[str, ...] = ()
    budget_s: float = 0.0
    total_s: float = 0.0
    runs: tuple[DeviceRun, ...] = ()
    """The series behind all this."""

    def on(self, device: str) -> DeviceCost:
        """Give the cost on a device, by its name or the end of it, as in `GPU:0`."""
        for cost in self.devices:
            if cost.device.lower().endswith(device.lower().lstrip("/")):
                return cost
        raise KeyError(f"{device!r} is none of {', '.join(cost.device for cost in self.devices)}")

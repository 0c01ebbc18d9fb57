"""The same work on several devices, at several sizes: raw series, before any judgement."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.model.quantity import Maybe, Missing

__all__ = ["DeviceRun", "SizeTimes", "StepOnDevices"]


@dataclass(frozen=True, slots=True)
class SizeTimes:
    """Calls at one size; one entry a round, in seconds a call."""

    rows: int
    call_s: tuple[float, ...]
    """From the call until its result really is there."""
    returns_s: tuple[float, ...] = ()
    """Until the call comes back: an accelerator may still be at work then."""
    there_s: tuple[float, ...] = ()
    """Copying the arguments to the device; empty where they are in the host's memory and it is the CPU."""
    back_s: tuple[float, ...] = ()
    """Copying the result to the host; empty where it is there already."""


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """The work on one device."""

    device: str
    kind: str
    first_call_s: Maybe = Missing("nothing was called")
    """The first call of all: tracing, compiling, loading of kernels."""
    sizes: tuple[SizeTimes, ...] = ()
    """By rising size."""
    calls: int = 0
    """All calls that were made on this device."""
    ran_on: tuple[str, ...] = ()
    """The devices that the results were on; empty where a result does not tell."""
    wait_s: Maybe = Missing("nothing was waited for")
    """What looking whether the device is done takes by itself; it was taken off each call."""
    failed: str = ""
    """Why there are no times."""

    def at(self, rows: float) -> SizeTimes | None:
        """Give the calls at a size."""
        return next((size for size in self.sizes if size.rows == rows), None)


@dataclass(frozen=True, slots=True)
class StepOnDevices:
    """The train step without its input, with batches of several sizes, on each visible device."""

    rows: int
    """Of the job's own batch."""
    runs: tuple[DeviceRun, ...]
    sizes_missing: str = ""
    """Why there is only one size."""
    spared: str = ""
    """Why there was nothing to learn from it, so that it was not run."""

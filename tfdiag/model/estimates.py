"""What stands in for a device's trace where there is none: copies alone, and a batch twice as long."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CopySample", "DeviceEstimates"]


@dataclass(frozen=True, slots=True)
class CopySample:
    """Copies of one tensor of the batch to the device, from the memory that the job hands over."""

    bytes: int
    whole_s: tuple[float, ...]
    quarter_bytes: int
    quarter_s: tuple[float, ...]
    """Of its first quarter: the difference tells bandwidth from latency."""


@dataclass(frozen=True, slots=True)
class DeviceEstimates:
    """Times of the wall clock; a device that works by itself is waited for."""

    tensors: tuple[int, ...] = ()
    """Bytes of each tensor of a batch that goes to the device."""
    copies: tuple[CopySample, ...] = ()
    op_s: tuple[float, ...] = ()
    """The same call on the host, without a copy: what the calling costs."""
    copies_missing: str = ""
    """Why copies were not timed, empty where they were."""
    once_s: tuple[float, ...] = ()
    """Calls of the train function on a batch, one after the other."""
    twice_s: tuple[float, ...] = ()
    """The same on a batch that has each row twice."""
    twice_missing: str = ""
    """Why there are none, empty where there are."""

"""What a trace tells about the device, condensed: sums, series over steps, no row per event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tfdiag.model.quantity import Maybe, Missing

__all__ = ["Busiest", "Copies", "DeviceTimes", "DeviceTrace", "Direction", "TracedSteps"]

Direction: TypeAlias = Literal["host_to_device", "device_to_host", "device_to_device"]


@dataclass(frozen=True, slots=True)
class Copies:
    """All copies of one direction within the traced steps, of one device."""

    direction: Direction
    count: int
    busy_s: float
    """Time in which at least one of them was under way."""
    overlapped_s: float
    """The part of it in which kernels ran as well."""
    bytes: Maybe = Missing("the trace does not tell the bytes of its copies")
    pinned_bytes: Maybe = Missing("the trace does not tell where its copies came from")
    pageable_bytes: Maybe = Missing("the trace does not tell where its copies came from")
    largest_bytes: Maybe = Missing("the trace does not tell the bytes of its copies")

    @property
    def bandwidth(self) -> Maybe:
        """Give the bytes that crossed in a second of copying."""
        if isinstance(self.bytes, Missing):
            return self.bytes
        if self.busy_s <= 0:
            return Missing("nothing was copied")
        return self.bytes.scaled(1 / self.busy_s, "B/s")


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """What one device did within the traced steps."""

    name: str
    host: str = ""
    kernels: int = 0
    kernel_s: float = 0.0
    """Sum of the kernels' times."""
    busy_s: float = 0.0
    """Time in which at least one kernel ran, collectives apart."""
    median_kernel_s: float = 0.0
    short_kernels: int = 0
    """Kernels shorter than the host's call that launched them."""
    launches: int = 0
    """Host calls that could be joined with what they launched."""
    launch_s: float = 0.0
    """Sum of these calls' times."""
    late_gaps: int = 0
    """Times that the device idled because the kernel that ran next was launched only then."""
    late_gap_s: float = 0.0
    queued_gap_s: float = 0.0
    """Idle although the next work had been launched before."""
    collectives: int = 0
    collective_s: float = 0.0
    """Time in which collectives were under way."""
    copies: tuple[Copies, ...] = ()

    def copy(self, direction: Direction) -> Copies | None:
        """Give the copies of a direction, None where there were none."""
        return next((copies for copies in self.copies if copies.direction == direction), None)


@dataclass(frozen=True, slots=True)
class Busiest:
    """A kernel, or an op, that took long."""

    name: str
    op: str
    """The op it belongs to, empty where the trace does not tell."""
    layer: str
    count: int
    total_s: float


@dataclass(frozen=True, slots=True)
class TracedSteps:
    """The steps that a trace holds; series have one entry a step."""

    found_by: str
    """How the bounds of the steps were found, in a few words."""
    count: int
    mean_s: float
    segments: dict[str, float]
    """Mean seconds per step of each exclusive segment, a mean over all devices that computed; they add up to
    `mean_s`."""
    duration_s: tuple[float, ...] = ()
    """Of the first steps only, where there are very many."""
    busy_s: tuple[float, ...] = ()
    """How long kernels ran in each of these steps."""
    kernels: tuple[int, ...] = ()
    whole: bool = False
    """No step could be told from another: the whole trace counts as one."""


@dataclass(frozen=True, slots=True)
class DeviceTrace:
    """A trace, condensed."""

    source: str
    form: Literal["XSpace", "TF1 timeline"]
    events: dict[str, int] = field(default_factory=dict)
    """How many events there are of each kind; together all that the trace holds."""
    hosts: tuple[str, ...] = ()
    devices: tuple[DeviceTimes, ...] = ()
    """Those that did something."""
    idle_devices: tuple[str, ...] = ()
    """Those that are in the trace and did nothing."""
    steps: TracedSteps | Missing = Missing("the trace holds no steps")
    busiest: tuple[Busiest, ...] = ()
    """The kernels that took most time, by op."""
    input_wait_s: float = 0.0
    """How long the host waited for input per step, whether or not the device idled meanwhile."""
    unknown: tuple[tuple[str, str], ...] = ()
    """What the trace does not tell, each with the reason."""
    warnings: tuple[str, ...] = ()

"""What the machine, the process and its container did while the job ran.

Times are on the clock of the live run. A series has an entry for each moment in `at_s`, `nan` where it was
not read at that moment. What counts up does so from the first sample on, unless it says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.model.gpu import Series
from tfdiag.model.quantity import Maybe, Missing

__all__ = ["HostProcess", "HostTelemetry"]

_NOT_READ = Missing("not read")


@dataclass(frozen=True, slots=True)
class HostProcess:
    """Another process that computed meanwhile."""

    pid: int
    name: str
    """Empty where it can't be seen."""
    cores: float
    """How many cores it kept busy, as a mean."""
    tensorflow: bool = False
    """It has TensorFlow loaded; false as well where that can't be seen."""


@dataclass(frozen=True, slots=True)
class HostTelemetry:
    """What was read of the host, a few times a second, beside the plain samples."""

    at_s: tuple[float, ...] = ()
    system_cpu: Series | Missing = _NOT_READ
    """Seconds that the process computed in the kernel; counts up from its start."""
    machine_busy: Series | Missing = _NOT_READ
    """Seconds that the cores which this process may use were busy, all together."""
    iowait: Series | Missing = _NOT_READ
    """Seconds that these cores idled while something waited for a disk."""
    stolen: Series | Missing = _NOT_READ
    """Seconds of `machine_busy` in which the host of a virtual machine had taken these cores away."""
    runnable: Series | Missing = _NOT_READ
    """Threads of the machine that ran or wanted to: the run queue."""
    blocked: Series | Missing = _NOT_READ
    """Tasks of the machine that waited for a disk."""
    voluntary_switches: Series | Missing = _NOT_READ
    """How often threads of this process went to sleep by themselves; counts up from its start."""
    involuntary_switches: Series | Missing = _NOT_READ
    """How often they were taken off a core for another thread."""
    anonymous_memory: Series | Missing = _NOT_READ
    """Resident memory without pages of files, which the system can take back."""
    free_memory: Series | Missing = _NOT_READ
    """What the process can still have, in its container as well."""
    received: Series | Missing = _NOT_READ
    """Bytes that the machine, or its container, got over the network, without those to itself."""
    sent: Series | Missing = _NOT_READ
    periods: Series | Missing = _NOT_READ
    """Periods of the container's quota; counts up from its start, as do the next three."""
    throttled_periods: Series | Missing = _NOT_READ
    """Those in which the quota was used up and threads were held back."""
    throttled: Series | Missing = _NOT_READ
    """Seconds for which they were, on each core that had work."""
    group_cpu: Series | Missing = _NOT_READ
    """Processor time of everything under the quota."""
    core_at_s: tuple[float, ...] = ()
    cores: tuple[Series, ...] = ()
    """Seconds that each core was busy, at the moments in `core_at_s`: those that this process may use."""
    cores_missing: str = ""
    """Why single cores are not known, empty where they are."""
    processes: tuple[HostProcess, ...] = ()
    """Those of others that computed most."""
    processes_missing: str = ""
    period_s: float = 0.0
    """Between two samples, as a median."""
    cost: Maybe = _NOT_READ
    """Processor time of the sampling, as a share of one core."""

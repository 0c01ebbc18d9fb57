"""The door to psutil: what the process and the machine are doing."""

from __future__ import annotations

import mmap
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tfdiag.compat import cgroup, machine
from tfdiag.compat.machine import NO_QUOTA
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = [
    "Host", "busy_s", "cores", "cpu_quota", "free_disk_bytes", "free_memory_bytes", "is_ours",
    "low_precision_features", "memory_bytes", "peak_memory_bytes", "process_name", "resident_bytes",
    "stolen_s",
]  # fmt: skip


_PAGE = mmap.PAGESIZE


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the host."""

    process_cpu_s: float
    system_cpu_s: float
    rss_bytes: int
    read_bytes: Maybe
    write_bytes: Maybe
    runnable: Maybe
    threads: int


class Host:
    """Reads this process and its machine; a value that the platform hides is `Missing`."""

    def __init__(self) -> None:
        self._process = psutil.Process()

    def read(self) -> Reading:
        """Take one reading."""
        rss, threads = self._size()
        system = psutil.cpu_times()
        read: Maybe = Missing("this platform does not count a process's reads")
        write: Maybe = Missing("this platform does not count a process's writes")
        try:
            counters = self._process.io_counters()
        except (psutil.Error, OSError, AttributeError, NotImplementedError):
            pass
        else:
            read = Quantity(float(counters.read_bytes), "B", source="psutil")
            write = Quantity(float(counters.write_bytes), "B", source="psutil")
        idle = system.idle + getattr(system, "iowait", 0.0)
        return Reading(
            process_cpu_s=time.process_time(),
            system_cpu_s=sum(system[:8]) - idle,
            rss_bytes=rss,
            read_bytes=read,
            write_bytes=write,
            runnable=_runnable(),
            threads=threads,
        )

    def _size(self) -> tuple[int, int]:
        """Give resident bytes and threads: from one file where there is one, which is quicker."""
        try:
            cells = machine.read("/proc/self/stat").rpartition(")")[2].split()
            return int(cells[21]) * _PAGE, int(cells[17])
        except (OSError, ValueError, IndexError):
            with self._process.oneshot():
                return int(self._process.memory_info().rss), int(self._process.num_threads())


def _runnable() -> Maybe:
    """Count the threads of the machine that want a core right now."""
    try:
        running = Path("/proc/loadavg").read_text().split()[3].split("/")[0]
    except (OSError, IndexError):
        return Missing("the platform has no /proc/loadavg")
    return Quantity(float(running), "threads", source="/proc/loadavg")


def cores() -> int:
    """Count the cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def busy_s() -> float | None:
    """Give for how long the cores that this process may run on were busy, all together; None if unknown."""
    mine = _times_of_cores()
    if not mine:
        return None
    # Guests are counted in user already, hence the first eight only.
    return float(sum(sum(times[:8]) - times.idle - getattr(times, "iowait", 0.0) for times in mine))


def stolen_s() -> float:
    """Give for how long the host of a virtual machine had these cores, all together; 0 where none tells."""
    return float(sum(getattr(times, "steal", 0.0) for times in _times_of_cores()))


def _times_of_cores() -> list[Any]:
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:
        allowed = set(range(os.cpu_count() or 1))
    try:
        each = psutil.cpu_times(percpu=True)
    except (OSError, NotImplementedError):
        return []
    return [times for number, times in enumerate(each) if number in allowed]


def cpu_quota(root: Path = cgroup.ROOT) -> Maybe:
    """Give the cores that the container's quota grants: the tightest of those that this process is under."""
    group = cgroup.cpu_group(root)
    if group is None:
        return Missing(NO_QUOTA)
    return Quantity(group.cores, "cores", source=group.source)


def memory_bytes() -> int:
    """Give the machine's memory."""
    return int(psutil.virtual_memory().total)


def free_memory_bytes() -> int:
    """Give the memory that a process can have without swapping."""
    return int(psutil.virtual_memory().available)


def free_disk_bytes(folder: str) -> int:
    """Give the room on the disk that holds `folder`."""
    return int(psutil.disk_usage(folder).free)


def is_ours(pid: int) -> bool:
    """Say whether a process is this one or was started by it, directly or not."""
    own = os.getpid()
    if pid == own:
        return True
    try:
        return any(parent.pid == own for parent in psutil.Process(pid).parents())
    except (psutil.Error, OSError, ValueError):
        return False


def process_name(pid: int) -> str:
    """Give the name of a process, empty where it can't be seen."""
    try:
        return str(psutil.Process(pid).name())
    except (psutil.Error, OSError, ValueError):
        return ""


def resident_bytes() -> int:
    """Give the memory that this process holds now."""
    return int(psutil.Process().memory_info().rss)


def peak_memory_bytes() -> int | None:
    """Give the most memory that this process ever held; None where the platform does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) * (1 if sys.platform == "darwin" else 1024)


_LOW_PRECISION = ("avx512_fp16", "amx_fp16", "avx512_bf16", "amx_bf16", "fphp", "asimdhp", "bf16")
"""What x86 and Arm call their instructions for float16 and bfloat16."""


def low_precision_features(root: Path = Path("/proc")) -> tuple[str, ...] | Missing:
    """List the instructions for low precision that the processor has."""
    try:
        lines = (root / "cpuinfo").read_text().splitlines()
    except OSError:
        return Missing("the platform has no /proc/cpuinfo")
    for line in lines:
        key, _, flags = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return tuple(name for name in _LOW_PRECISION if name in flags.split())
    return Missing("/proc/cpuinfo lists no features of the processor")

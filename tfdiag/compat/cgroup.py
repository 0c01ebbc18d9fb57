"""The door to Linux's control groups, versions 1 and 2: what a container may use, and what held it back."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "CpuGroup", "MemoryGroup", "cpu_group", "memory_groups"]

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
_UNLIMITED = 2**60
"""Version 1 writes a number of this size for no limit."""


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """The group whose quota is the tightest of those that this process is under."""

    folder: Path
    cores: float
    source: str
    usage: Path
    """The file that counts its processor time."""

    def counters(self) -> dict[str, float]:
        """Read how often and how long it was held back, and what it used; what can't be read is left out."""
        found: dict[str, float] = {}
        stat = _pairs(self.folder / "cpu.stat")
        for name, key, factor in (
            ("periods", "nr_periods", 1.0),
            ("throttled_periods", "nr_throttled", 1.0),
            ("throttled", "throttled_usec", 1e-6),
            ("throttled", "throttled_time", 1e-9),
            ("group_cpu", "usage_usec", 1e-6),
        ):
            if key in stat:
                found[name] = stat[key] * factor
        if "group_cpu" not in found:
            with contextlib.suppress(OSError, ValueError):
                found["group_cpu"] = float(self.usage.read_text()) * 1e-9
        return found


def cpu_group(root: Path = ROOT, own: Path = OWN) -> CpuGroup | None:
    """Find the group with the tightest quota; None where there is none."""
    found = []
    for folder in _folders(root, own, ""):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()[:2]
            if quota != "max":
                cores = float(quota) / float(period)
                found.append(CpuGroup(folder, cores, "cgroup v2 cpu.max", folder / "cpu.stat"))
    for folder in _folders(root, own, "cpu"):
        with contextlib.suppress(OSError, ValueError):
            quota_us = float((folder / "cpu.cfs_quota_us").read_text())
            period_us = float((folder / "cpu.cfs_period_us").read_text())
            if quota_us > 0:
                cores = quota_us / period_us
                found.append(CpuGroup(folder, cores, "cgroup v1 cfs_quota_us", _usage(root, own, folder)))
    return min(found, key=lambda group: group.cores, default=None)


def _usage(root: Path, own: Path, folder: Path) -> Path:
    """Give the file of version 1 that counts processor time: it has a folder of its own, or shares one."""
    here = folder / "cpuacct.usage"
    if here.exists():
        return here
    return next((there / "cpuacct.usage" for there in _folders(root, own, "cpuacct")), here)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A group with a limit of its memory."""

    folder: Path
    limit: float
    used: str
    files: str

    def room(self) -> float:
        """Give the bytes that are left; pages of files that nobody uses go before anything is refused."""
        with contextlib.suppress(OSError, ValueError):
            used = float((self.folder / self.used).read_text())
            return max(0.0, self.limit - used + _pairs(self.folder / "memory.stat").get(self.files, 0.0))
        return math.inf


def memory_groups(root: Path = ROOT, own: Path = OWN) -> tuple[MemoryGroup, ...]:
    """Find the groups of this process that have a limit of their memory."""
    found = []
    for kind, name, used, files in (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for folder in _folders(root, own, kind):
            with contextlib.suppress(OSError, ValueError):
                limit = float((folder / name).read_text())  # "max" is no number
                if limit < _UNLIMITED:
                    found.append(MemoryGroup(folder, limit, used, files))
    return tuple(found)


def _folders(root: Path, own: Path, kind: str) -> Iterator[Path]:
    """Give the folders of this process's groups, its own first; of version 2 where `kind` is empty.

    In a container the path that the process is told may be one of the machine's, which is not there: then the
    folder at the top is its own.
    """
    tops = [root / kind, root / "cpu,cpuacct"] if kind.startswith("cpu") else [root / kind]
    tops = tops if kind else [root, root / "unified"]
    path = _path(own, kind)
    for top in tops:
        folder = top / path
        while folder != top:
            yield folder
            folder = folder.parent
        yield top


def _path(own: Path, kind: str) -> str:
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            number, _, rest = line.partition(":")
            kinds, _, path = rest.partition(":")
            if kind in kinds.split(",") and (kind or number == "0") and ".." not in path:
                return path.strip("/")
    return ""


def _pairs(file: Path) -> dict[str, float]:
    found = {}
    with contextlib.suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            found[name] = float(value)
    return found

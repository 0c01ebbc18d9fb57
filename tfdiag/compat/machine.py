"""The door to what Linux tells of the machine, of this process and of its container, beside psutil.

All of it comes from files of the system that are read in some microseconds. On another system there are none
of them, and each value says so.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
from pathlib import Path
from typing import Any

from tfdiag.compat import cgroup

resource: Any = None
with contextlib.suppress(ImportError):  # Windows has none
    resource = importlib.import_module("resource")

__all__ = ["LISTS_PROCESSES", "Meter", "processor_times", "read", "uses_tensorflow"]

LISTS_PROCESSES = Path("/proc/self").is_dir()

_BUSY = (0, 1, 2, 5, 6, 7)
"""The columns of /proc/stat in which a core works: not idle and not iowait; guests are counted in user."""
_IOWAIT = 4
_STOLEN = 7
"""The column of what a virtual machine's host took: a core that wants to work, and may not."""
_PROCESSES_MOST = 4000
_NO_FILE = "the platform has no {}"
NO_QUOTA = "no container quota is set"


def _ticks() -> float:
    try:
        return 1.0 / os.sysconf("SC_CLK_TCK")
    except (AttributeError, ValueError, OSError):
        return 0.01


def read(path: str) -> str:
    """Read a small file of the system, without what buffering and decoding by lines cost."""
    with open(path, "rb", buffering=0) as file:
        return file.readall().decode("ascii", "replace")


class Meter:
    """Reads the host; what can't be read has its reason in `refused`."""

    def __init__(self, proc: Path = Path("/proc"), groups: Path = cgroup.ROOT) -> None:
        # Ready as text: a Path takes longer to be joined and opened than the file to be read.
        names = ("stat", "self/statm", "meminfo", "net/dev")
        self._stats, self._sizes, self._free_memory, self._net = (str(proc / name) for name in names)
        self._tick_s = _ticks()
        self._page = mmap.PAGESIZE
        self._group = cgroup.cpu_group(groups, proc / "self/cgroup")
        self._limits = cgroup.memory_groups(groups, proc / "self/cgroup")
        self._allowed = _allowed()
        self.refused: dict[str, str] = {}
        self.cores: dict[int, float] = {}
        """Seconds that each core was busy since the machine began, as of the last reading; of those that may
        be used."""
        if self._group is None:
            names = ("periods", "throttled_periods", "throttled", "group_cpu")
            self.refused |= dict.fromkeys(names, NO_QUOTA)

    def read(self, *, slow: bool = True) -> dict[str, float]:
        """Take one reading; `slow` with what takes longer and changes slowly."""
        found, self.cores = self._stat()
        found |= {**self._usage(), **self._memory()}
        if slow:
            found |= {**self._free(), **self._network()}
        if self._group is not None:
            found |= self._group.counters()
        return found

    def _usage(self) -> dict[str, float]:
        if resource is None:
            names = ("system_cpu", "voluntary_switches", "involuntary_switches")
            self.refused |= dict.fromkeys(names, "the platform does not count them")
            return {}
        # Of all threads, the ended ones too: the files of /proc tell of the first thread only.
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "system_cpu": used.ru_stime,
            "voluntary_switches": float(used.ru_nvcsw),
            "involuntary_switches": float(used.ru_nivcsw),
        }

    def _memory(self) -> dict[str, float]:
        found = {}
        try:
            resident, shared = read(self._sizes).split()[1:3]
            found["anonymous_memory"] = float((int(resident) - int(shared)) * self._page)
        except (OSError, ValueError):
            self.refused["anonymous_memory"] = _NO_FILE.format("/proc/self/statm")
        return found

    def _free(self) -> dict[str, float]:
        found = {}
        try:
            lines = read(self._free_memory).splitlines()
            (left,) = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
            found["free_memory"] = min([float(left) * 1024, *(limit.room() for limit in self._limits)])
        except (OSError, ValueError, IndexError):
            self.refused["free_memory"] = _NO_FILE.format("/proc/meminfo")
        return found

    def _network(self) -> dict[str, float]:
        try:
            lines = read(self._net).splitlines()[2:]
            cells = [line.partition(":") for line in lines]
            rows = [rest.split() for name, _, rest in cells if name.strip() != "lo"]
            return {
                "received": float(sum(int(row[0]) for row in rows)),
                "sent": float(sum(int(row[8]) for row in rows)),
            }
        except (OSError, ValueError, IndexError):
            self.refused |= dict.fromkeys(("received", "sent"), _NO_FILE.format("/proc/net/dev"))
            return {}

    def _stat(self) -> tuple[dict[str, float], dict[int, float]]:
        """Read what the machine's cores did, and what waits for them."""
        found: dict[str, float] = {}
        cores: dict[int, float] = {}
        iowait = stolen = 0.0
        try:
            for line in read(self._stats).splitlines():
                name, _, rest = line.partition(" ")
                if name.startswith("cpu") and name != "cpu":
                    number, cells = int(name[3:]), rest.split()
                    if self._allowed is None or number in self._allowed:
                        cores[number] = sum(int(cells[column]) for column in _BUSY) * self._tick_s
                        iowait += int(cells[_IOWAIT]) * self._tick_s
                        stolen += int(cells[_STOLEN]) * self._tick_s
                elif name == "procs_running":
                    found["runnable"] = float(rest)
                elif name == "procs_blocked":
                    found["blocked"] = float(rest)
        except (OSError, ValueError, IndexError):
            names = ("machine_busy", "iowait", "stolen", "runnable", "blocked")
            self.refused |= dict.fromkeys(names, _NO_FILE.format("/proc/stat"))
            return {}, {}
        if cores:
            found |= {"machine_busy": sum(cores.values()), "iowait": iowait, "stolen": stolen}
        return found, cores


def _allowed() -> set[int] | None:
    try:
        return set(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return None


def processor_times(proc: Path = Path("/proc")) -> dict[int, tuple[str, float]]:
    """Give name and processor time of each process that can be seen, by its number."""
    tick_s = _ticks()
    found: dict[int, tuple[str, float]] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(proc):
            if not entry.name.isdigit() or len(found) >= _PROCESSES_MOST:
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                # A name may hold brackets and spaces; what follows the last bracket has neither.
                head, _, tail = (proc / entry.name / "stat").read_text().rpartition(")")
                cells = tail.split()
                name = head.partition("(")[2]
                found[int(entry.name)] = (name, (int(cells[11]) + int(cells[12])) * tick_s)
    return found


def uses_tensorflow(pid: int, proc: Path = Path("/proc")) -> bool:
    """Say whether a process has TensorFlow loaded; one that can't be looked into is said to have not."""
    try:
        return "libtensorflow" in (proc / str(pid) / "maps").read_text()
    except (OSError, ValueError):
        return False

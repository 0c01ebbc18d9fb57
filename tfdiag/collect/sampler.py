"""Reads the host a few times a second while the job runs."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable

from tfdiag.compat import machine
from tfdiag.compat.host import Host, is_ours
from tfdiag.model.gpu import Series
from tfdiag.model.host import HostProcess, HostTelemetry
from tfdiag.model.measurements import HostSample
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["HostSampler"]

PERIOD_S = 0.2
_MOST_OF_A_CORE = 0.002
"""Samples that cost more are taken less often …"""
_FIRST, _MOST_AT_FIRST = 20, 0.01
"""… but the first ones not by so much: on a slow kernel a short run would be seen a handful of times."""
_LONGEST_S = 5.0
_FULL_RATE = 600
"""After so many samples the period doubles, and so on: a report must not grow with the budget."""
_KEEP = 1200
"""Samples kept; older ones are dropped, so that weeks of training take no more memory than minutes."""
_SLOW_EVERY = 5
"""What changes slowly is read that much less often, and single cores are kept so: a machine may have
hundreds."""
_SHOWN = 4
_LEAST_CORES = 0.05
"""A process that keeps less of a core busy is not worth a line."""

_UNITS = {
    "system_cpu": ("s", "getrusage"), "machine_busy": ("s", "/proc/stat"), "iowait": ("s", "/proc/stat"),
    "stolen": ("s", "/proc/stat"), "runnable": ("threads", "/proc/stat"), "blocked": ("tasks", "/proc/stat"),
    "voluntary_switches": ("switches", "getrusage"), "involuntary_switches": ("switches", "getrusage"),
    "anonymous_memory": ("B", "/proc/self/statm"), "free_memory": ("B", "/proc/meminfo and control groups"),
    "received": ("B", "/proc/net/dev"), "sent": ("B", "/proc/net/dev"),
    "periods": ("periods", "control group"), "throttled_periods": ("periods", "control group"),
    "throttled": ("s", "control group"), "group_cpu": ("s", "control group"),
}  # fmt: skip
_FROM_FIRST = ("machine_busy", "iowait", "stolen", "received", "sent")
"""What others counted before is nobody's business: these begin at 0."""


class HostSampler:
    """A thread that takes samples until it is stopped; it stops within one wake-up.

    `alive` says whether what is watched still runs: the thread ends by itself when it does not.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        period_s: float = PERIOD_S,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._period_s = period_s
        self._alive = alive
        self._stop = threading.Event()
        self._host = Host()
        self._meter = machine.Meter()
        self._samples: list[HostSample] = []
        self._rows: list[tuple[float, dict[str, float]]] = []
        self._cores: list[tuple[float, dict[int, float]]] = []
        self._taken = 0
        self._cpu_s = 0.0
        self._wall = (math.nan, math.nan)
        self._processes: tuple[HostProcess, ...] = ()
        self._thread = threading.Thread(target=self._run, name="tfdiag-host", daemon=True)

    def __enter__(self) -> HostSampler:  # noqa: PYI034  # typing.Self is younger than Python 3.10
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def samples(self) -> tuple[HostSample, ...]:
        """Give what was read so far."""
        return tuple(self._samples)

    def telemetry(self) -> HostTelemetry | Missing:
        """Give what else was read so far."""
        rows, cores = list(self._rows), list(self._cores)
        if not rows:
            return Missing("no sample was taken")
        steps = sorted(later[0] - before[0] for before, later in itertools.pairwise(rows))
        wall = self._wall[1] - self._wall[0]
        numbers = sorted(cores[0][1]) if cores else []
        return HostTelemetry(
            at_s=tuple(at for at, _ in rows),
            **{name: self._series(name, rows) for name in _UNITS},
            core_at_s=tuple(at for at, _ in cores),
            cores=tuple(
                Series(
                    tuple(_rounded(row.get(number, math.nan) - cores[0][1][number]) for _, row in cores),
                    "s",
                    "/proc/stat",
                )
                for number in numbers
            ),
            cores_missing="" if numbers else self._meter.refused.get("machine_busy", "no core was read"),
            processes=self._processes,
            processes_missing="" if machine.LISTS_PROCESSES else "the platform has no /proc",
            period_s=steps[len(steps) // 2] if steps else 0.0,
            cost=Quantity(
                self._cpu_s / wall, "share", source="clock of the sampling thread", count=self._taken
            )
            if wall > 0
            else Missing("fewer than two samples were taken"),
        )

    # --- on the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        before, began = machine.processor_times(), self._clock()
        self._read()
        while not self._stop.wait(self._next_s()) and self._alive():
            self._read()
        self._read()
        self._processes = _others(before, machine.processor_times(), self._clock() - began)

    def _next_s(self) -> float:
        slower = self._period_s * 2.0 ** (self._taken // _FULL_RATE)
        # The first sample opens files and loads what the others find there.
        each = self._cpu_s / (self._taken - 1) if self._taken > 1 else 0.0
        most = _MOST_AT_FIRST if self._taken < _FIRST else _MOST_OF_A_CORE
        return min(max(self._period_s, _LONGEST_S), max(slower, each / most))

    def _read(self) -> None:
        begin, now = time.thread_time(), self._clock()
        reading = self._host.read()
        self._samples.append(
            HostSample(
                at_s=now,
                process_cpu_s=reading.process_cpu_s,
                system_cpu_s=reading.system_cpu_s,
                rss_bytes=reading.rss_bytes,
                read_bytes=reading.read_bytes,
                write_bytes=reading.write_bytes,
                runnable=reading.runnable,
                threads=reading.threads,
            )
        )
        slow = self._taken % _SLOW_EVERY == 0
        self._rows.append((now, self._meter.read(slow=slow)))
        if slow:
            self._cores.append((now, self._meter.cores))
        for kept in (self._samples, self._rows, self._cores):
            if len(kept) > _KEEP:
                del kept[: _KEEP // 2]
        self._taken += 1
        if self._taken == 1:
            self._wall = (now, now)
        else:
            self._wall = (self._wall[0], now)
            self._cpu_s += time.thread_time() - begin

    def _series(self, name: str, rows: list[tuple[float, dict[str, float]]]) -> Series | Missing:
        values = [row.get(name, math.nan) for _, row in rows]
        if all(math.isnan(value) for value in values):
            return Missing(self._meter.refused.get(name, "the platform gave no value"))
        if name in _FROM_FIRST:
            first = next(value for value in values if not math.isnan(value))
            values = [value - first for value in values]
        unit, source = _UNITS[name]
        return Series(tuple(map(_rounded, values)), unit, source)


def _rounded(value: float) -> float:
    """Give a number that a report is not full of, or the one nan that equals itself when it comes back."""
    return round(value, 6) if math.isfinite(value) else math.nan


def _others(
    before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]], wall_s: float
) -> tuple[HostProcess, ...]:
    """Give the processes of others that computed most between two looks."""
    if wall_s <= 0:
        return ()
    used = {pid: (seconds - before.get(pid, ("", 0.0))[1]) / wall_s for pid, (_, seconds) in after.items()}
    # One that was not there before has all of its time from since then.
    busy = sorted((pid for pid, cores in used.items() if cores >= _LEAST_CORES), key=lambda pid: -used[pid])
    strangers = [pid for pid in busy[: 4 * _SHOWN] if not is_ours(pid)][:_SHOWN]
    return tuple(
        HostProcess(pid, after[pid][0], round(used[pid], 3), machine.uses_tensorflow(pid))
        for pid in strangers
    )

"""Reads the host a few times a second while the job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfdiag.compat.host import Host
from tfdiag.model.measurements import HostSample

__all__ = ["HostSampler"]


class HostSampler:
    """A thread that takes samples until it is stopped; it stops within one wake-up."""

    def __init__(self, clock: Callable[[], float], period_s: float = 0.25) -> None:
        self._clock = clock
        self._period_s = period_s
        self._stop = threading.Event()
        self._host = Host()
        self._samples: list[HostSample] = []
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

    def _run(self) -> None:
        self._read()
        while not self._stop.wait(self._period_s):
            self._read()
        self._read()

    def _read(self) -> None:
        reading = self._host.read()
        self._samples.append(
            HostSample(
                at_s=self._clock(),
                process_cpu_s=reading.process_cpu_s,
                system_cpu_s=reading.system_cpu_s,
                rss_bytes=reading.rss_bytes,
                read_bytes=reading.read_bytes,
                write_bytes=reading.write_bytes,
                runnable=reading.runnable,
                threads=reading.threads,
            )
        )

"""Looks at host and GPUs while a `fit` runs, as a diagnosis does, and ends with it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType

from tfdiag.collect.sampler import HostSampler
from tfdiag.collect.telemetry import GpuSampler
from tfdiag.model.gpu import GpuTelemetry
from tfdiag.model.host import HostTelemetry
from tfdiag.model.measurements import Device, HostSample
from tfdiag.model.quantity import Missing

__all__ = ["Watching"]

_HOST_EVERY_S = 0.5
"""A training has more time than a diagnosis: what the host does is looked at less often."""
_NO_FIT = "the callback runs outside of a fit, so nobody could say when to stop looking"


class Watching:
    """The samplers of one `fit`.

    Keras tells a callback nothing when a `fit` raises. So the threads look for themselves, with each sample,
    whether it still runs: it does while its frame is in the stack of the thread that called it.
    """

    def __init__(
        self, clock: Callable[[], float], devices: Iterable[Device], attached: Callable[[], bool]
    ) -> None:
        frame = _running_fit()
        self._fit = None if frame is None else id(frame)
        self._thread = threading.get_ident()
        self._attached = attached
        self._host = HostSampler(clock, _HOST_EVERY_S, self._alive)
        self._gpus = GpuSampler(clock, devices, alive=self._alive)

    def start(self) -> None:
        """Begin to look, where there is a `fit` to look at."""
        if self._fit is not None:
            self._host.__enter__()
            self._gpus.__enter__()

    def stop(self) -> None:
        """End the threads; harmless when they have ended."""
        if self._fit is not None:
            self._gpus.__exit__()
            self._host.__exit__()

    def samples(self) -> tuple[HostSample, ...]:
        """Give the plain samples of the host so far."""
        return self._host.samples()

    def host(self) -> HostTelemetry | Missing:
        """Give what else was read of the host."""
        return Missing(_NO_FIT) if self._fit is None else self._host.telemetry()

    def gpus(self) -> GpuTelemetry | Missing:
        """Give what was seen of the GPUs."""
        return Missing(_NO_FIT) if self._fit is None else self._gpus.telemetry()

    def _alive(self) -> bool:
        if not self._attached():
            return False
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  # what other threads do is only known there
        while frame is not None:
            if id(frame) == self._fit:
                return True
            frame = frame.f_back
        return False


def _running_fit() -> FrameType | None:
    """Find the innermost `fit` that this call stands in."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # only the stack knows it
    while frame is not None and frame.f_code.co_name != "fit":
        frame = frame.f_back
    return frame

"""What the GPUs did in the steady part of the live run, from their samples.

A report is rendered with this, so it does without numpy: there are a few hundred samples at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfdiag.model.gpu import Gpu, GpuSamples, GpuTelemetry, Series
from tfdiag.model.measurements import Measurements
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["BUSY", "HELD_DOWN", "WatchedGpu", "held_down", "watched_gpus"]

BUSY = 0.1
"""From this part of NVML's window on in which some kernel ran, a sample counts as busy."""
_IDLE = 0x1

HELD_DOWN = (
    ("heat", 0x60),
    ("the power brake", 0x80),
    ("a slow-down by the hardware", 0x08),
    ("the power limit", 0x04),
    ("a setting of the clocks", 0x112),
)
"""What can hold clocks down, by the bits of NVML's mask; what comes first is the cause of what comes later.
An idle GPU is not held down."""

Rows: TypeAlias = tuple[bool, ...]
"""Which samples of the live run are meant."""


@dataclass(frozen=True, slots=True)
class WatchedGpu:
    """A GPU that TensorFlow sees, with its samples from the steady part of the live run."""

    gpu: Gpu
    samples: GpuSamples
    live: Rows
    """Which of all samples are from there."""

    @property
    def name(self) -> str:
        """Give TensorFlow's name, or the driver's number where that is all there is."""
        return self.gpu.tensorflow or f"GPU {self.gpu.index} of the machine"

    @property
    def count(self) -> int:
        """Count the samples."""
        return sum(self.live)

    def column(self, name: str) -> tuple[float, ...] | Missing:
        """Give a reading during the live run, `nan` where it was not taken."""
        series: Series | Missing = getattr(self.samples, name)
        if isinstance(series, Missing):
            return series
        return tuple(value for value, live in zip(series.values, self.live, strict=True) if live)

    def mean(self, name: str, rows: Rows | None = None) -> Maybe:
        """Give the mean of a reading over the live run, or over some of its samples."""
        values = self._known(name, rows)
        if isinstance(values, Missing):
            return values
        return self._quantity(name, math.fsum(values) / len(values), len(values))

    def highest(self, name: str, rows: Rows | None = None) -> Maybe:
        """Give the highest value of a reading, over the same."""
        values = self._known(name, rows)
        return values if isinstance(values, Missing) else self._quantity(name, max(values), len(values))

    @property
    def busy(self) -> Rows | Missing:
        """Say in which samples of the live run the GPU worked."""
        utilisation = self.column("utilisation")
        if not isinstance(utilisation, Missing):
            return tuple(value >= BUSY for value in utilisation)
        # A partitioned GPU has no utilisation, but its clocks know whether it idles.
        reasons = self.column("throttle")
        if isinstance(reasons, Missing):
            return Missing(f"whether {self.name} was busy is not known: {utilisation.reason}")
        return tuple(not math.isnan(bits) and not int(bits) & _IDLE for bits in reasons)

    def _known(self, name: str, rows: Rows | None) -> Sequence[float] | Missing:
        values = self.column(name)
        if isinstance(values, Missing):
            return values
        chosen = rows or (True,) * len(values)
        known = [value for value, take in zip(values, chosen, strict=True) if take and math.isfinite(value)]
        return known or Missing("it was not read during the live run")

    def _quantity(self, name: str, value: float, count: int) -> Quantity:
        series: Series = getattr(self.samples, name)
        return Quantity(value, series.unit, source=series.source, count=count)


def watched_gpus(measurements: Measurements, first_call: int = 0) -> tuple[WatchedGpu, ...] | Missing:
    """Give the GPUs that the job may compute on; none where there is none, `Missing` where nobody looked.

    Samples count from the first steady call on.
    """
    telemetry = measurements.gpu
    accelerated = any(device.kind == "GPU" for device in measurements.environment.devices)
    if not accelerated:
        return ()
    if isinstance(telemetry, Missing):
        return telemetry
    if telemetry.gpus_missing:
        return Missing(f"NVML tells nothing: {telemetry.gpus_missing}")
    live = measurements.live
    if isinstance(live, Missing):
        return live
    begin, end = 0.0, 0.0
    if live.start_s:
        begin = live.start_s[min(first_call, len(live.start_s) - 1)]
        end = live.start_s[-1] + live.duration_s[-1]
    found = []
    for gpu in _candidates(telemetry):
        samples = gpu.samples
        if not isinstance(samples, Missing):
            found.append(WatchedGpu(gpu, samples, tuple(begin <= at <= end for at in samples.at_s)))
    if not found:
        return Missing(telemetry.mapping_missing or "none of TensorFlow's GPUs was sampled")
    return tuple(found)


def _candidates(telemetry: GpuTelemetry) -> tuple[Gpu, ...]:
    """Give those that TensorFlow sees; where that is not known, the only one there is."""
    named = tuple(gpu for gpu in telemetry.gpus if gpu.tensorflow)
    if named or len(telemetry.gpus) != 1:
        return named
    return telemetry.gpus


def held_down(watched: WatchedGpu) -> tuple[str, Rows] | None:
    """Name what held the clocks of the busy GPU down most often, and in which samples; None for nothing."""
    reasons, busy = watched.column("throttle"), watched.busy
    if isinstance(reasons, Missing) or isinstance(busy, Missing):
        return None
    causes = [
        _cause(int(bits)) if works and not math.isnan(bits) else ""
        for bits, works in zip(reasons, busy, strict=True)
    ]
    often = {name: causes.count(name) for name, _ in HELD_DOWN if name in causes}
    if not often:
        return None
    most = max(often, key=lambda name: often[name])
    return most, tuple(cause == most for cause in causes)


def _cause(bits: int) -> str:
    return next((name for name, mask in HELD_DOWN if bits & mask), "")

"""What the host did in the steady part of the live run, from its samples.

A report is rendered with this, so it does without numpy: there are a few hundred samples at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfdiag.model.gpu import Series
from tfdiag.model.host import HostTelemetry
from tfdiag.model.measurements import Environment, HostSample, Measurements
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["LEAST_SAMPLES", "HostFacts", "host_facts"]

LEAST_SAMPLES = 3
"""Two ends, and something between them."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The samples from the steady part of the live run."""

    telemetry: HostTelemetry
    rows: tuple[int, ...]
    """Which of the samples are from there."""
    samples: tuple[HostSample, ...]
    """The plain ones from there."""
    cores: float
    """Those that the job may use, under its quota."""

    @property
    def seconds(self) -> float:
        """Give how long they span."""
        at = self.telemetry.at_s
        return at[self.rows[-1]] - at[self.rows[0]]

    def column(self, name: str) -> tuple[float, ...] | Missing:
        """Give a reading over the live run."""
        series: Series | Missing = getattr(self.telemetry, name)
        if isinstance(series, Missing):
            return series
        return tuple(series.values[row] for row in self.rows)

    def used(self, name: str) -> Maybe:
        """Give by how much a counter rose."""
        known = self._known(name)
        if isinstance(known, Missing):
            return known
        return self._quantity(name, known[-1] - known[0], len(known))

    def rate(self, name: str) -> Maybe:
        """Give by how much a counter rose in a second."""
        risen = self.used(name)
        if isinstance(risen, Missing):
            return risen
        return risen.scaled(1 / self.seconds, "cores" if risen.unit == "s" else f"{risen.unit}/s")

    def mean(self, name: str) -> Maybe:
        """Give the mean of a reading that goes up and down."""
        known = self._known(name)
        if isinstance(known, Missing):
            return known
        return self._quantity(name, math.fsum(known) / len(known), len(known))

    @property
    def own_cores(self) -> Maybe:
        """Give how many cores this process kept busy."""
        first, last = self.samples[0], self.samples[-1]
        wall = last.at_s - first.at_s
        if wall <= 0:
            return Missing("there is one sample only")
        used = (last.process_cpu_s - first.process_cpu_s) / wall
        return Quantity(used, "cores", source="processor time", count=len(self.samples))

    def _known(self, name: str) -> list[float] | Missing:
        column = self.column(name)
        if isinstance(column, Missing):
            return column
        known = [value for value in column if math.isfinite(value)]
        return known if len(known) > 1 else Missing("it was not read during the live run")

    def _quantity(self, name: str, value: float, count: int) -> Quantity:
        series: Series = getattr(self.telemetry, name)
        return Quantity(value, series.unit, source=series.source, count=count)


def host_facts(measurements: Measurements, first_call: int = 0) -> HostFacts | Missing:
    """Give the samples from the first steady call on, or say why there are none."""
    telemetry, live = measurements.machine, measurements.live
    if isinstance(telemetry, Missing):
        return telemetry
    if isinstance(live, Missing):
        return live
    if not live.start_s:
        return Missing("no step was seen")
    begin = live.start_s[min(first_call, len(live.start_s) - 1)]
    end = live.start_s[-1] + live.duration_s[-1]
    rows = tuple(row for row, at in enumerate(telemetry.at_s) if begin <= at <= end)
    samples = tuple(sample for sample in measurements.host if begin <= sample.at_s <= end)
    if min(len(rows), len(samples)) < LEAST_SAMPLES:
        return Missing(f"the steady part of the live run has {len(rows)} samples of the host")
    return HostFacts(telemetry, rows, samples, _usable(measurements.environment))


def _usable(environment: Environment) -> float:
    quota = environment.cpu_quota
    cores = float(environment.cores)
    return min(cores, quota.value) if isinstance(quota, Quantity) else cores

"""Hosts of known make-up, for the jobs of `tests.synthetic`: what the samples say is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfdiag.model.gpu import Series
from tfdiag.model.host import HostTelemetry
from tfdiag.model.measurements import HostSample

__all__ = ["EVERY_S", "host"]

EVERY_S = 0.1
_BEGIN_S = 100.0
"""When the live run of a synthetic job begins."""
_UNITS = {
    "system_cpu": "s", "machine_busy": "s", "iowait": "s", "stolen": "s", "runnable": "threads",
    "blocked": "tasks", "voluntary_switches": "switches", "involuntary_switches": "switches",
    "anonymous_memory": "B", "free_memory": "B", "received": "B", "sent": "B", "periods": "periods",
    "throttled_periods": "periods", "throttled": "s", "group_cpu": "s",
}  # fmt: skip
_LEVELS = ("runnable", "blocked", "anonymous_memory", "free_memory")
_HEALTHY: dict[str, Any] = {
    "system_cpu": 0.1, "machine_busy": 2.0, "iowait": 0.0, "stolen": 0.0, "runnable": 2.0, "blocked": 0.0,
    "voluntary_switches": 500.0, "involuntary_switches": 50.0, "anonymous_memory": 1e9,
    "free_memory": 8e9, "received": 0.0, "sent": 0.0,
}  # fmt: skip


def host(
    count: int = 33,
    own: float = 1.9,
    rss: Callable[[float], float] = lambda at: 1.2e9,
    fields: dict[str, Any] | None = None,
    **readings: Any,
) -> dict[str, Any]:
    """Give the samples of a host as parts of a synthetic job.

    What counts up is given as what it rises by in a second; a reading may be a function of the seconds since
    the run began, or `Missing`. `own` is how many cores the job keeps busy.
    """
    at = tuple(_BEGIN_S + EVERY_S * number for number in range(count))
    found: dict[str, Any] = {}
    for name, value in (_HEALTHY | readings).items():
        if callable(value):
            values = tuple(float(value(moment - _BEGIN_S)) for moment in at)
        elif isinstance(value, (int, float)):
            values = tuple(value * (1.0 if name in _LEVELS else moment - _BEGIN_S) for moment in at)
        else:
            found[name] = value
            continue
        found[name] = Series(values, _UNITS[name], "given")
    samples = tuple(
        HostSample(moment, own * moment, 2 * moment, int(rss(moment - _BEGIN_S))) for moment in at
    )
    return {"host": samples, "machine": HostTelemetry(at_s=at, **found, **(fields or {}))}

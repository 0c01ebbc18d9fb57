"""The GPU computes with lower clocks than it could.

What it measures
    In the samples of the live run in which the GPU was busy: how often the driver gave a reason for holding
    the clocks down, and the clock of the multiprocessors there over the highest it has. What that takes from
    a step is estimated as if all computing followed that clock, so it is the most that it can be. It fires
    from 5 % of the step on. That an idle GPU lowers its clocks is no reason.
Why it matters
    Kernels that compute take as much longer as the clock is lower; kernels that wait for memory do not, or
    less. Nothing in the program shows it, and the same job is faster on the machine next to it.
How to fix it
    By the reason that the finding names. Heat: air, dust, fans, a slot with more room. The power limit:
    `nvidia-smi -q -d POWER` shows the limit that is set and the default; a limit below it was set by
    somebody. At its default limit a GPU under full load often can't hold its highest clock; that is how it
    was built. A power brake or a slow-down by the hardware: the power supply and its cables. A setting:
    `nvidia-smi -rac` and `nvidia-smi -rgc` take back clocks that were set.
When to ignore it
    When the limit was chosen, for the noise or for the bill. When the kernels of the job wait for memory.
References
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.telemetry import WatchedGpu, held_down
from tfdiag.checks import devices, facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding, Severity

__all__ = ["CHECK"]

_POWER = "the power limit"
_LOWERED = 0.98
"""A limit below this part of the default was set by somebody."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for each busy GPU whose clocks were held down at a cost."""
    for watched in devices.busy_gpus(analysis):
        yield from _judge(analysis, watched)


def _judge(analysis: Analysis, watched: WatchedGpu) -> Iterator[Result]:
    for name in ("throttle", "sm_clock"):
        column = watched.column(name)
        if isinstance(column, Missing):
            raise Undecided(f"the clocks of {watched.name} are not known: {column.reason}")
    found, busy = held_down(watched), watched.busy
    if found is None or isinstance(busy, Missing):
        return
    reason, rows = found
    clock, highest = watched.mean("sm_clock", rows), watched.gpu.max_sm_clock
    if isinstance(clock, Missing) or isinstance(highest, Missing):
        missing = clock if isinstance(clock, Missing) else highest
        assert isinstance(missing, Missing)
        raise Undecided(f"the clocks of {watched.name} are not known: {missing.reason}")
    often = sum(rows) / sum(busy)
    lost = max(0.0, 1 - clock.value / highest.value)
    compute = devices.compute_share(analysis, watched)
    cost = compute.value * often * lost
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{watched.name} runs at {1 - lost:.0%} of its clock: {reason} holds it down",
            severity=_severity(watched, reason, cost),
            cost=Quantity(
                cost, "share", origin="estimated", source="compute time, if it all follows the clock"
            ),
            evidence=devices.known(
                devices.cost_evidence(
                    analysis,
                    "compute time lost to lower clocks, at most",
                    cost,
                    f"NVML, and compute as {compute.source} has it",
                ),
                Evidence(
                    f"part of the busy samples in which {reason} held the clocks down",
                    Quantity(often, "share", source="NVML", count=sum(busy)),
                ),
                Evidence("clock of the multiprocessors in these", clock),
                Evidence("the highest clock that they have", highest),
                Evidence("power", watched.mean("power", rows)),
                Evidence("power limit", watched.gpu.power_limit),
                Evidence("default power limit", watched.gpu.default_power_limit),
                Evidence("highest temperature", watched.highest("temperature")),
                Evidence(
                    "temperature from which on the hardware slows down", watched.gpu.slowdown_temperature
                ),
            ),
            where=f"{watched.name} ({watched.gpu.name})",
            detail=_detail(watched, reason),
        )
    )


def _limit_is_default(watched: WatchedGpu) -> bool:
    limit, default = watched.gpu.power_limit, watched.gpu.default_power_limit
    if isinstance(limit, Missing) or isinstance(default, Missing):
        return False
    return limit.value >= _LOWERED * default.value


def _severity(watched: WatchedGpu, reason: str, cost: float) -> Severity:
    return "info" if reason == _POWER and _limit_is_default(watched) else severity_of(cost)


def _detail(watched: WatchedGpu, reason: str) -> str:
    if reason != _POWER:
        return ""
    if _limit_is_default(watched):
        return "The limit is the default: under full load this GPU can't hold its highest clock."
    return "The limit is not known to be the default one: see `nvidia-smi -q -d POWER`."


CHECK = Check("throttled-gpu", "The GPU's clocks are held down", "device", __doc__, run)

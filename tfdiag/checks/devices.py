"""What the checks of a GPU's samples share."""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.telemetry import WatchedGpu, watched_gpus
from tfdiag.checks import facts
from tfdiag.checks.registry import Undecided
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Evidence

__all__ = ["LEAST_SAMPLES", "busy_gpus", "compute_share", "cost_evidence", "known"]

LEAST_SAMPLES = 5
"""Below a second of samples nothing is said about a GPU."""


def busy_gpus(analysis: Analysis) -> Iterator[WatchedGpu]:
    """Give the GPUs that worked during the live run; none on a machine without one."""
    first = 0 if isinstance(analysis.steady, Missing) else analysis.steady.first
    found = watched_gpus(analysis.measurements, first)
    if isinstance(found, Missing):
        raise Undecided(f"the GPUs were not watched: {found.reason}")
    for gpu in found:
        if gpu.count < LEAST_SAMPLES:
            if gpu.gpu.cut:
                raise Undecided(f"{gpu.name} could not be watched to the end: {gpu.gpu.cut}")
            raise Undecided(
                f"the steady part of the live run has {gpu.count} samples of {gpu.name}; "
                f"it takes {LEAST_SAMPLES}"
            )
    for gpu in found:
        busy = gpu.busy
        if isinstance(busy, Missing):
            raise Undecided(busy.reason)
        if sum(busy) >= LEAST_SAMPLES:
            yield gpu


def compute_share(analysis: Analysis, watched: WatchedGpu) -> Quantity:
    """Give the share of the step in which the device computes, or say why it is not known.

    Where no trace told what the device did, it is the share of time in which some kernel ran, as NVML says.
    """
    assert not isinstance(analysis.step, Missing)
    compute: Maybe = analysis.step.segments["device_compute"]
    traced = isinstance(analysis.step.segments["host_to_device"], Quantity)
    if traced and isinstance(compute, Quantity):
        return facts.share(analysis.share(compute.value), source="the breakdown")
    ran = watched.mean("utilisation")
    if isinstance(ran, Missing):
        raise Undecided(
            f"the time in which {watched.name} computes is not known: no trace told it, nor NVML: "
            f"{ran.reason}"
        )
    return ran


def cost_evidence(analysis: Analysis, name: str, cost: float, source: str) -> Evidence:
    """Show what a problem costs a step at most, against the least that is worth a finding."""
    assert not isinstance(analysis.step, Missing)
    mean = analysis.step.mean_s
    return Evidence(
        name,
        Quantity(cost * mean, "s", origin="estimated", source=source),
        Quantity(facts.COST_SHARE * mean, "s", origin="given"),
        "above",
    )


def known(*evidence: Evidence) -> tuple[Evidence, ...]:
    """Leave out what was not measured: a finding shows its numbers."""
    return tuple(one for one in evidence if isinstance(one.quantity, Quantity))

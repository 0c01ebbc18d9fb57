"""What the checks of the host's samples share."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.host import HostFacts, host_facts
from tfdiag.checks import facts
from tfdiag.checks.registry import Undecided
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["exposed", "told", "watched_host"]


def watched_host(analysis: Analysis) -> HostFacts:
    """Give what the host did in the steady part of the live run, or say why that is not known."""
    facts.watched(analysis)
    first = 0 if isinstance(analysis.steady, Missing) else analysis.steady.first
    found = host_facts(analysis.measurements, first)
    if isinstance(found, Missing):
        raise Undecided(f"the host was not watched: {found.reason}")
    return found


def told(value: Maybe, what: str) -> Quantity:
    """Give a number, or say that it is not known and why."""
    if isinstance(value, Missing):
        raise Undecided(f"{what} is not known: {value.reason}")
    return value


def exposed(analysis: Analysis) -> float:
    """Give the part of the step that the host can hold up: an accelerator goes on with what it has."""
    if all(device.kind == "CPU" for device in analysis.measurements.environment.devices):
        return 1.0
    return max(0.0, 1 - analysis.share(analysis.segment("device_compute")))

"""The GPU sits on a slower bus than it supports.

What it measures
    Generation and width of the PCIe link while the GPU is busy, against the best that the GPU supports:
    an idle link steps down to save power and says nothing. What that takes from a step comes from the time
    of the copies where a trace told it; else from the bytes that crossed the link, as if it ran at its full
    rate, which no link does. It fires from 5 % of the step on.
Why it matters
    Each generation doubles the rate of a link, and so does each doubling of its lanes. A card in the wrong
    slot copies its batches at a quarter of the rate or less.
How to fix it
    Look where the link is held back: `nvidia-smi -q -d PCIE`, `lspci -vv`. Another slot (the long ones
    often have fewer lanes than they are long), a riser cable of the right generation, the setting of the
    slot in the firmware. Where the board is the limit, copy less: smaller types, casts on the device.
When to ignore it
    When the copies hide behind kernels. In a virtual machine the link that is shown need not be the real one.
References
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.telemetry import WatchedGpu
from tfdiag.checks import devices, facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Evidence, Finding

__all__ = ["CHECK"]

_FIRST_LANE = 250e6
"""Bytes a second of a lane of the first generation; each generation doubles it, or nearly."""


@dataclass(frozen=True, slots=True)
class _Link:
    generation: Quantity
    width: Quantity

    @property
    def rate(self) -> float:
        """Give the most bytes a second."""
        return _FIRST_LANE * math.pow(2.0, self.generation.value - 1) * self.width.value


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for each busy GPU on a slower link, where copies cost time."""
    for watched in devices.busy_gpus(analysis):
        yield from _judge(analysis, watched)


def _judge(analysis: Analysis, watched: WatchedGpu) -> Iterator[Result]:
    busy = watched.busy
    assert not isinstance(busy, Missing)
    now = _link(watched, *(watched.highest(name, busy) for name in ("pcie_generation", "pcie_width")))
    gpu = watched.gpu
    generation = (
        gpu.pcie_max_generation if isinstance(gpu.pcie_gpu_generation, Missing) else gpu.pcie_gpu_generation
    )
    best = _link(watched, generation, gpu.pcie_max_width)
    if now.rate >= best.rate:
        return
    copied, exact = _copies(analysis, watched, now)
    cost = copied * (1 - now.rate / best.rate)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{watched.name} sits on {_words(now)}, and supports {_words(best)}",
            severity=severity_of(cost) if exact else "info",
            cost=Quantity(cost, "share", origin="estimated", source="what the copies would take less"),
            evidence=devices.known(
                devices.cost_evidence(
                    analysis,
                    "time of copies that a full link would save",
                    cost,
                    "the trace" if exact else "bytes over the link at its full rate",
                ),
                _evidence("PCIe generation while busy", now.generation, best.generation),
                _evidence("PCIe lanes while busy", now.width, best.width),
                Evidence("bytes that came over the link", watched.mean("pcie_received")),
                Evidence("bytes that went over it", watched.mean("pcie_sent")),
            ),
            where=f"{watched.name} ({gpu.name})",
            detail=_where(watched, now),
        )
    )


def _link(watched: WatchedGpu, generation: Maybe, width: Maybe) -> _Link:
    for value in (generation, width):
        if isinstance(value, Missing):
            raise Undecided(f"the PCIe link of {watched.name} is not known: {value.reason}")
    assert isinstance(generation, Quantity)
    assert isinstance(width, Quantity)
    return _Link(generation, width)


def _copies(analysis: Analysis, watched: WatchedGpu, link: _Link) -> tuple[float, bool]:
    """Give the share of the step that copies take, and whether they were timed."""
    assert not isinstance(analysis.step, Missing)
    timed = analysis.step.segments["host_to_device"]
    if isinstance(timed, Quantity):
        return analysis.share(timed.value + analysis.segment("device_to_host")), True
    rates = [watched.mean("pcie_received"), watched.mean("pcie_sent")]
    moved = [rate.value for rate in rates if isinstance(rate, Quantity)]
    if not moved:
        raise Undecided(f"what crosses the link of {watched.name} is not known: {timed.reason}")
    return min(1.0, sum(moved) / link.rate), False


def _evidence(name: str, now: Quantity, best: Quantity) -> Evidence:
    return Evidence(name, now, best, "below") if now.value < best.value else Evidence(name, now)


def _words(link: _Link) -> str:
    return f"PCIe {link.generation.value:g} x{link.width.value:g}"


def _where(watched: WatchedGpu, now: _Link) -> str:
    most = watched.gpu.pcie_max_generation
    if isinstance(most, Quantity) and now.generation.value >= most.value > 0:
        return "The generation is the best that the slot has: what is left is another slot, or more lanes."
    return "The slot could do more than the link does."


CHECK = Check("slow-link", "The GPU sits on a slower bus than it supports", "transfer", __doc__, run)

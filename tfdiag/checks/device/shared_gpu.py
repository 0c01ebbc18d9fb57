"""Another process computes on the same GPU.

What it measures
    The processes that the driver lists on a GPU of the job, without the job's own process and its children,
    and the share of the time in which kernels of theirs ran. Processes take turns on a GPU, so that share is
    taken from the job's computing at most. It fires from 5 % of the step on.
Why it matters
    Two jobs on one GPU are each slower than alone, and what one holds of its memory the other does not have.
    A notebook that was forgotten holds on to both.
How to fix it
    End the other process, or keep the jobs apart: one GPU for each with `CUDA_VISIBLE_DEVICES`, or slices of
    one with MIG.
When to ignore it
    When the GPU is shared on purpose.
References
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.telemetry import WatchedGpu
from tfdiag.checks import devices, facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.gpu import GpuProcess
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding

__all__ = ["CHECK"]

_SHOWN = 4


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for each busy GPU on which others compute."""
    for watched in devices.busy_gpus(analysis):
        yield from _judge(analysis, watched)


def _judge(analysis: Analysis, watched: WatchedGpu) -> Iterator[Result]:
    gpu = watched.gpu
    if gpu.processes_missing and len(gpu.processes) == 1:
        return  # it is ours: the job computes here
    if gpu.processes_missing:
        raise Undecided(f"who else uses {watched.name} is not known: {gpu.processes_missing}")
    strangers = [process for process in gpu.processes if not process.ours]
    if not strangers:
        return
    if all(isinstance(process.utilisation, Missing) for process in strangers):
        reason = strangers[0].utilisation
        assert isinstance(reason, Missing)
        raise Undecided(
            f"other processes are on {watched.name}, but not what they compute there: {reason.reason}"
        )
    strangers.sort(key=_share, reverse=True)
    taken = min(1.0, sum(map(_share, strangers)))
    compute = devices.compute_share(analysis, watched)
    cost = compute.value * taken
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    first = strangers[0]
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{_name(first)} computes on {watched.name} too",
            severity=severity_of(cost),
            cost=Quantity(
                cost, "share", origin="estimated", source="compute time, if others take turns with all of it"
            ),
            evidence=devices.known(
                devices.cost_evidence(
                    analysis,
                    "compute time taken by others, at most",
                    cost,
                    f"NVML, and compute as {compute.source} has it",
                ),
                *(
                    one
                    for process in strangers[:_SHOWN]
                    for one in (
                        Evidence(f"time in which kernels of {_name(process)} ran", process.utilisation),
                        Evidence(f"memory of {_name(process)}", process.memory),
                    )
                ),
            ),
            where=f"{watched.name} ({gpu.name})",
        )
    )


def _share(process: GpuProcess) -> float:
    return process.utilisation.value if isinstance(process.utilisation, Quantity) else 0.0


def _name(process: GpuProcess) -> str:
    return f"process {process.pid} ({process.name})" if process.name else f"process {process.pid}"


CHECK = Check("shared-gpu", "Another process computes on the GPU", "device", __doc__, run)

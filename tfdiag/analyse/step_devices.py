"""The step on the accelerator against the step on the CPU, and what changing over would give the job."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.devices import crossing, median_of, speedup_at
from tfdiag.model.devices import DeviceRun
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["OtherDevice", "other_device"]


@dataclass(frozen=True, slots=True)
class OtherDevice:
    """The step without its input, in seconds, on both devices."""

    device: str
    there: Quantity
    """On the accelerator; the copy of the batch is in it, as in the job."""
    here: Quantity
    """On the CPU."""
    ratio: Quantity
    """How many times as fast the CPU is."""
    from_rows: Maybe
    """The batch from which the accelerator is faster."""
    copy: Maybe
    """Copying the batch to the accelerator."""
    after_s: float
    """What the job's step would take on the CPU."""
    best_s: float
    worst_s: float


def other_device(analysis: Analysis) -> OtherDevice | Missing | None:
    """Hold the step on the CPU against the one on the accelerator; None where that had nothing to tell."""
    found = analysis.measurements.step_devices
    if isinstance(found, Missing):
        return found
    if found.spared:
        return None
    if isinstance(analysis.step, Missing):
        return analysis.step
    host = next((run for run in found.runs if run.kind == "CPU"), None)
    device = next((run for run in found.runs if run.kind != "CPU"), None)
    if host is None or device is None:
        return Missing("the step was not run on the CPU and on an accelerator")
    there, here = _step(device, found.rows), _step(host, found.rows)
    ratio = speedup_at(device, host, found.rows)
    for each in (there, here, ratio):
        if isinstance(each, Missing):
            return each
    assert isinstance(there, Quantity) and isinstance(here, Quantity) and isinstance(ratio, Quantity)
    size = device.at(found.rows)
    saved = there.value - here.value
    least = (there.low or there.value) - (here.high or here.value)
    most = (there.high or there.value) - (here.low or here.value)
    return OtherDevice(
        device=device.device,
        there=there,
        here=here,
        ratio=ratio,
        from_rows=Missing(found.sizes_missing) if found.sizes_missing else crossing(host, device),
        copy=median_of(size.there_s if size is not None else (), "copying the batch, apart from the step"),
        after_s=_after(analysis, saved, here.value),
        best_s=_after(analysis, most, here.low or here.value),
        worst_s=_after(analysis, least, here.high or here.value, crowded=True),
    )


def _step(run: DeviceRun, rows: int) -> Maybe:
    size = run.at(rows)
    if size is None:
        return Missing(f"the job's own batch was not tried on {run.device}")
    return median_of(size.call_s, f"copies of the step on {run.device}, without input")


def _after(analysis: Analysis, saved: float, here: float, *, crowded: bool = False) -> float:
    """Predict the job's step on the CPU: its input then wants the same cores."""
    assert not isinstance(analysis.step, Missing)
    after = max(here, analysis.step.mean_s - saved)
    alone = analysis.input_alone
    if isinstance(alone, Missing):
        return after
    cores = usable_cores(analysis.measurements)
    beside = alone.cpu_per_batch_s * (1.0 if crowded else 1 / cores)
    # An input that is the limit now stays the limit.
    return max(after + beside, alone.batch.value)

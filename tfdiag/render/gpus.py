"""What a report says about the GPUs, a line for each."""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.telemetry import WatchedGpu, held_down, watched_gpus
from tfdiag.model.gpu import Allocator, Gpu, GpuProcess, GpuTelemetry
from tfdiag.model.measurements import Measurements
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.render.format import clean, number, quantity, share, size

__all__ = ["gpu_gaps", "gpu_lines"]

_PROCESSES_SHOWN = 3


def gpu_lines(measurements: Measurements) -> Iterator[tuple[str, str]]:
    """Give name and description of each GPU, and of TensorFlow's memory on it."""
    telemetry = measurements.gpu
    if isinstance(telemetry, Missing):
        return
    found = watched_gpus(measurements)
    watched = {} if isinstance(found, Missing) else {one.gpu.uuid: one for one in found}
    for gpu in telemetry.gpus:
        name = gpu.tensorflow or f"GPU {gpu.index}"
        yield clean(name), clean(", ".join(_parts(gpu, watched.get(gpu.uuid))))
    for allocator in telemetry.allocators:
        if text := _memory(allocator):
            yield clean(f"{allocator.device} memory"), clean(text)
    if telemetry.driver:
        yield "driver", clean(_driver(telemetry))


def _driver(telemetry: GpuTelemetry) -> str:
    return telemetry.driver + (f", CUDA {telemetry.cuda} at most" if telemetry.cuda else "")


def _parts(gpu: Gpu, watched: WatchedGpu | None) -> Iterator[str]:
    yield gpu.name or "a GPU that does not answer"
    if gpu.mig == "on":
        yield "cut into MIG slices"
    if isinstance(gpu.memory, Quantity):
        yield f"{size(gpu.memory.value)} of memory"
    if gpu.cut:
        yield gpu.cut
    if watched is None:
        if not gpu.tensorflow:
            yield "not one of TensorFlow's"
        return
    yield from _seen(watched)
    for process in [one for one in gpu.processes if not one.ours and not gpu.processes_missing][
        :_PROCESSES_SHOWN
    ]:
        yield _stranger(process)


def _seen(watched: WatchedGpu) -> Iterator[str]:
    gpu = watched.gpu
    ran = watched.mean("utilisation")
    if isinstance(ran, Quantity):
        yield f"some kernel ran in {share(ran.value)} of the time (NVML)"
    for name, text in (
        ("sm_active", "of the multiprocessors busy (GPM)"),
        ("tensor_active", "of the time in tensor cores (GPM)"),
    ):
        value = watched.mean(name)
        if isinstance(value, Quantity):
            yield f"{share(value.value)} {text}"
    busy = watched.busy
    rows = None if isinstance(busy, Missing) or not any(busy) else busy
    if text := _of(watched.mean("sm_clock", rows), gpu.max_sm_clock):
        yield f"clock {text}"
    if text := _of(watched.mean("power", rows), gpu.power_limit):
        yield text
    if isinstance(heat := watched.highest("temperature"), Quantity):
        yield f"up to {quantity(heat)}"
    generation, width = watched.highest("pcie_generation"), watched.highest("pcie_width")
    if isinstance(generation, Quantity) and isinstance(width, Quantity):
        yield f"PCIe {number(generation.value)} x{number(width.value)}"
    if (held := held_down(watched)) is not None and not isinstance(busy, Missing):
        yield f"clocks held down by {held[0]} in {share(sum(held[1]) / sum(busy))} of the busy samples"
    errors = watched.highest("ecc_uncorrected")
    if isinstance(errors, Quantity) and errors.value:
        yield f"{number(errors.value)} memory errors that could not be corrected"


def _of(value: Maybe, most: Maybe) -> str:
    if isinstance(value, Missing):
        return ""
    if isinstance(most, Missing):
        return quantity(value)
    return f"{number(value.value)} of {quantity(most)}"


def _stranger(process: GpuProcess) -> str:
    text = f"process {process.pid}" + (f" ({process.name})" if process.name else "")
    if isinstance(process.memory, Quantity):
        text += f" holds {size(process.memory.value)}"
    if isinstance(process.utilisation, Quantity) and process.utilisation.value:
        text += f" and computes in {share(process.utilisation.value)} of the time"
    return text


def _memory(allocator: Allocator) -> str:
    used = allocator.in_use if isinstance(allocator.peak, Missing) else allocator.peak
    if isinstance(used, Missing):
        return ""
    limit = f" of {size(allocator.limit.value)}" if isinstance(allocator.limit, Quantity) else ""
    return f"{size(used.value)}{limit} in use at most, by TensorFlow's own count"


def gpu_gaps(telemetry: GpuTelemetry | Missing) -> Iterator[tuple[str, str]]:
    """Give what of the GPUs could not be seen, and why."""
    if isinstance(telemetry, Missing):
        return
    if telemetry.gpus_missing:
        yield "GPU telemetry", telemetry.gpus_missing
    if telemetry.mapping_missing:
        yield "which GPU is which of TensorFlow's", telemetry.mapping_missing
    for gpu in telemetry.gpus:
        if isinstance(gpu.samples, Missing) and gpu.tensorflow:
            yield f"samples of {gpu.tensorflow}", gpu.samples.reason
        if gpu.processes_missing:
            yield f"who uses {gpu.tensorflow or f'GPU {gpu.index}'}", gpu.processes_missing
        if gpu.cut and not isinstance(gpu.samples, Missing):
            yield f"the rest of the samples of {gpu.tensorflow or f'GPU {gpu.index}'}", gpu.cut

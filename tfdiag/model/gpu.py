"""What the driver, TensorFlow and the system tell about the GPUs, and what the GPUs did while the job ran.

Times are on the clock of the live run. A series has an entry for each moment in `at_s`, `nan` where it was
not read at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tfdiag.model.quantity import Maybe, Missing

__all__ = [
    "Allocator",
    "Gpu",
    "GpuProcess",
    "GpuSamples",
    "GpuSoftware",
    "GpuTelemetry",
    "Series",
]

_NOT_READ = Missing("not read")


@dataclass(frozen=True, slots=True)
class Series:
    """One reading over time."""

    values: tuple[float, ...]
    unit: str
    source: str = "NVML"


@dataclass(frozen=True, slots=True)
class GpuSamples:
    """What NVML said about one GPU, a few times a second."""

    at_s: tuple[float, ...] = ()
    utilisation: Series | Missing = _NOT_READ
    """The share of time in which some kernel ran, in NVML's own window of 1/6 to 1 s. It says nothing about
    how much of the GPU worked."""
    memory_utilisation: Series | Missing = _NOT_READ
    """The share of time in which device memory was read or written."""
    used_memory: Series | Missing = _NOT_READ
    """By all processes; TensorFlow takes memory in advance, so it is not what the job needs."""
    sm_clock: Series | Missing = _NOT_READ
    memory_clock: Series | Missing = _NOT_READ
    power: Series | Missing = _NOT_READ
    temperature: Series | Missing = _NOT_READ
    throttle: Series | Missing = _NOT_READ
    """NVML's mask of the reasons why clocks are not higher."""
    pcie_generation: Series | Missing = _NOT_READ
    pcie_width: Series | Missing = _NOT_READ
    pcie_received: Series | Missing = _NOT_READ
    """Bytes a second that came over the bus, as a mean since the sample before."""
    pcie_sent: Series | Missing = _NOT_READ
    nvlink_received: Series | Missing = _NOT_READ
    nvlink_sent: Series | Missing = _NOT_READ
    ecc_uncorrected: Series | Missing = _NOT_READ
    """Errors since the driver was loaded."""
    sm_active: Series | Missing = _NOT_READ
    """From here on GPM, as a mean since the sample before: the share of multiprocessors that were busy."""
    sm_occupancy: Series | Missing = _NOT_READ
    tensor_active: Series | Missing = _NOT_READ
    dram_active: Series | Missing = _NOT_READ


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that NVML saw on a GPU."""

    pid: int
    """As the driver numbers it, which in a container may be another number than in there."""
    name: str = ""
    """Empty where it can't be seen."""
    ours: bool = False
    """The diagnosed process itself, or a child of it."""
    memory: Maybe = _NOT_READ
    """The most that it held."""
    utilisation: Maybe = _NOT_READ
    """The share of time in which its kernels ran, over the whole run."""
    seen: int = 0
    """Looks at the list of processes in which it was there."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of the machine, or the MIG slice of one that the job computes on."""

    index: int
    """NVML's number, by PCI bus; TensorFlow has its own."""
    uuid: str
    name: str
    tensorflow: str = ""
    """`GPU:0`, as TensorFlow counts the physical GPUs that it sees; empty for one that it does not see."""
    bus_id: str = ""
    compute_capability: str = ""
    mig: Literal["", "off", "on", "slice"] = ""
    """Empty for a GPU that can't be partitioned."""
    memory: Maybe = _NOT_READ
    max_sm_clock: Maybe = _NOT_READ
    max_memory_clock: Maybe = _NOT_READ
    power_limit: Maybe = _NOT_READ
    default_power_limit: Maybe = _NOT_READ
    slowdown_temperature: Maybe = _NOT_READ
    """From here on the hardware slows itself down."""
    pcie_max_generation: Maybe = _NOT_READ
    """What the GPU can do where it sits."""
    pcie_gpu_generation: Maybe = _NOT_READ
    """What the GPU can do by itself."""
    pcie_max_width: Maybe = _NOT_READ
    nvlinks: Maybe = _NOT_READ
    bar1: Maybe = _NOT_READ
    ecc: Maybe = _NOT_READ
    """1 where errors in memory are corrected."""
    samples: GpuSamples | Missing = Missing("TensorFlow does not see this GPU, so it was not sampled")
    processes: tuple[GpuProcess, ...] = ()
    processes_missing: str = ""
    """Why the processes, or whose they are, are not known; empty where they are."""
    looks: int = 0
    """How often the list of processes was read."""
    cut: str = ""
    """Why sampling ended before the run; empty where it did not."""


@dataclass(frozen=True, slots=True)
class Allocator:
    """TensorFlow's own memory of one device."""

    device: str
    in_use: Maybe = _NOT_READ
    """The most that was in use at the moments of the samples."""
    peak: Maybe = _NOT_READ
    """The most that was in use at any moment of the run, or the reason why only earlier peaks are known."""
    limit: Maybe = _NOT_READ
    """What TensorFlow may take on this device."""


@dataclass(frozen=True, slots=True)
class GpuSoftware:
    """What decides whether TensorFlow sees a GPU that is there."""

    cuda_build: bool = False
    rocm_build: bool = False
    cuda_version: str = ""
    """The CUDA that TensorFlow was built for; empty where the build does not say."""
    cudnn_version: str = ""
    distributions: tuple[str, ...] = ()
    """Packages with a TensorFlow or a plug-in in them, with their versions."""
    visible_devices: str | None = None
    """The variable CUDA_VISIBLE_DEVICES."""
    device_order: str | None = None
    """The variable CUDA_DEVICE_ORDER."""
    libraries_missing: tuple[str, ...] = ()
    """Libraries of CUDA that the build needs, and that were not found."""
    hardware: tuple[str, ...] = ()
    """Where the system shows an NVIDIA GPU, beside NVML."""


@dataclass(frozen=True, slots=True)
class GpuTelemetry:
    """The GPUs of the machine."""

    gpus: tuple[Gpu, ...] = ()
    gpus_missing: str = ""
    """Why NVML tells nothing, empty where it does."""
    driver: str = ""
    cuda: str = ""
    """The newest CUDA that the driver knows."""
    mapping_missing: str = ""
    """Why it is not known which of them is which of TensorFlow's; empty where it is."""
    software: GpuSoftware = field(default_factory=GpuSoftware)
    allocators: tuple[Allocator, ...] = ()
    period_s: float = 0.0
    """Between two samples, as a median."""
    opening: Maybe = _NOT_READ
    """Time until the first sample: loading the library and reading what does not change."""
    cost: Maybe = _NOT_READ
    """Processor time of the sampling, as a share of one core."""

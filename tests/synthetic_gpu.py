"""GPUs of known make-up, for the jobs of `tests.synthetic`: what the samples say is given."""

from __future__ import annotations

from typing import Any

from tfdiag.model.gpu import Gpu, GpuProcess, GpuSamples, GpuTelemetry, Series
from tfdiag.model.quantity import Quantity

__all__ = ["EVERY_S", "gpu", "ours", "samples", "stranger", "telemetry"]

EVERY_S = 0.2
_BEGIN_S = 100.0
"""When the live run of a synthetic job begins."""
UNITS = {
    "sm_clock": "MHz", "power": "W", "temperature": "°C", "throttle": "bits", "utilisation": "share",
    "pcie_generation": "generation", "pcie_width": "lanes", "pcie_received": "B/s", "pcie_sent": "B/s",
}  # fmt: skip
_BUSY = {
    "utilisation": 0.9, "sm_clock": 1410.0, "power": 300.0, "temperature": 60.0, "throttle": 0.0,
    "pcie_generation": 4.0, "pcie_width": 16.0, "pcie_received": 1e9, "pcie_sent": 1e6,
}  # fmt: skip


def samples(count: int = 17, **readings: Any) -> GpuSamples:
    """Give samples of a busy, healthy GPU; a reading is a number, one for each sample, or `Missing`."""
    found: dict[str, Any] = {}
    for name, value in (_BUSY | readings).items():
        values = (float(value),) * count if isinstance(value, (int, float)) else value
        given = isinstance(values, (tuple, list))
        found[name] = Series(tuple(values), UNITS.get(name, "")) if given else value
    return GpuSamples(at_s=tuple(_BEGIN_S + EVERY_S * number for number in range(count)), **found)


def ours(**fields: Any) -> GpuProcess:
    """Give the job's own process."""
    known: dict[str, Any] = {
        "memory": Quantity(2.0**34, "B"),
        "utilisation": Quantity(0.9, "share"),
        "seen": 3,
    }
    return GpuProcess(1, "python", True, **{**known, **fields})


def stranger(pid: int = 4242, share: float = 0.3, **fields: Any) -> GpuProcess:
    """Give somebody else's process."""
    known: dict[str, Any] = {
        "name": "python",
        "memory": Quantity(2.0**29, "B"),
        "utilisation": Quantity(share, "share"),
        "seen": 3,
    }
    return GpuProcess(pid, **{**known, **fields})


def gpu(**fields: Any) -> Gpu:
    """Give a healthy GPU that TensorFlow sees."""
    known: dict[str, Any] = {
        "index": 0, "uuid": "GPU-1", "name": "NVIDIA A100", "tensorflow": "GPU:0",
        "memory": Quantity(2.0**35, "B"), "max_sm_clock": Quantity(1410.0, "MHz"),
        "power_limit": Quantity(400.0, "W"), "default_power_limit": Quantity(400.0, "W"),
        "slowdown_temperature": Quantity(90.0, "°C"), "pcie_max_generation": Quantity(4.0, "generation"),
        "pcie_gpu_generation": Quantity(4.0, "generation"), "pcie_max_width": Quantity(16.0, "lanes"),
        "samples": samples(), "processes": (ours(),), "looks": 3,
    }  # fmt: skip
    return Gpu(**{**known, **fields})


def telemetry(*gpus: Gpu, **fields: Any) -> GpuTelemetry:
    """Give what was seen of these GPUs, or of one healthy one."""
    return GpuTelemetry(**{"gpus": gpus or (gpu(),), "driver": "550.54", "cuda": "12.4", **fields})

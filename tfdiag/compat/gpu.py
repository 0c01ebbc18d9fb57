"""The door to what TensorFlow and the system know about GPUs, beside NVML.

Private names and where they were seen, with what happens when they are gone:

- `context()._context_handle`, `pywrap_tfe.TFE_ContextListDevices` and `TF_DeviceListMemoryBytes` (2.21): the
  limit of a device's allocator becomes `Missing`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import site
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from tfdiag.compat.tensorflow import tensorflow
from tfdiag.model.gpu import GpuSoftware
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["allocated", "allocator_limit", "hardware_signs", "missing_libraries", "physical_gpus", "software"]

_NVIDIA = "10de"
_DISTRIBUTIONS = (
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tensorflow-rocm", "tf-nightly",
    "tf-nightly-cpu", "tensorflow-directml", "tensorflow-directml-plugin", "tensorflow-metal",
    "tensorflow-macos", "intel-extension-for-tensorflow", "tensorflow-cpu-aws", "tensorflow-aarch64",
)  # fmt: skip
_FAILURES = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, ImportError)


def physical_gpus() -> list[tuple[str, str]]:
    """Name the GPUs that TensorFlow sees, in its order, each with what it says about itself."""
    tf = tensorflow()
    found = []
    for device in tf.config.list_physical_devices("GPU"):
        try:
            details = tf.config.experimental.get_device_details(device)
        except _FAILURES:
            details = {}
        found.append(
            (str(device.name).rpartition("physical_device:")[2], str(details.get("device_name", "")))
        )
    return found


def allocated(device: str) -> tuple[float, float] | Missing:
    """Give the bytes in use on a device now, and the most so far."""
    try:
        info = tensorflow().config.experimental.get_memory_info(device)
        return float(info["current"]), float(info["peak"])
    except (*_FAILURES, tensorflow().errors.OpError) as error:
        return Missing(f"TensorFlow's allocator does not tell: {error}")


def allocator_limit(device: str) -> Maybe:
    """Give the bytes that TensorFlow may take on a device."""
    try:
        context = importlib.import_module("tensorflow.python.eager.context").context()
        eager = importlib.import_module("tensorflow.python.pywrap_tfe")
        session = importlib.import_module("tensorflow.python.client.pywrap_tf_session")
        listed = eager.TFE_ContextListDevices(context._context_handle)
        names = [str(eager.TF_DeviceListName(listed, i)) for i in range(eager.TF_DeviceListCount(listed))]
        (place,) = [i for i, name in enumerate(names) if name.lower().endswith(f"device:{device.lower()}")]
        limit = float(session.TF_DeviceListMemoryBytes(listed, place))
    except _FAILURES as error:
        return Missing(f"this TensorFlow does not tell the limit of its allocator: {type(error).__name__}")
    if limit <= 0:
        return Missing("TensorFlow's allocator has no limit")
    return Quantity(limit, "B", source="TensorFlow's list of devices")


def hardware_signs(root: Path = Path("/")) -> tuple[str, ...]:
    """Say where the system shows an NVIDIA GPU; a few reads, nothing is loaded."""
    signs = []
    with contextlib.suppress(OSError):
        if any((root / "proc/driver/nvidia/gpus").iterdir()):
            signs.append("/proc/driver/nvidia/gpus")
    nodes = [number for number in range(16) if (root / f"dev/nvidia{number}").exists()]
    signs += [f"/dev/nvidia{number}" for number in nodes[:1]]
    with contextlib.suppress(OSError, ValueError):
        lines = (root / "proc/bus/pci/devices").read_text().splitlines()
        # "0100 10de20b0 …": bus and place, maker and model. A maker's audio chips are no GPUs.
        for line in lines:
            place, ids, *_ = [*line.split(), "", ""]
            if ids.startswith(_NVIDIA) and _is_display(root, place):
                signs.append("PCI")
                break
    return tuple(signs)


def _is_display(root: Path, place: str) -> bool:
    """Tell a GPU from the other chips of its maker by the class that the bus gives it."""
    bus, slot = int(place[:2], 16), int(place[2:4], 16)
    # The list leaves the domain out.
    name = f"*:{bus:02x}:{slot >> 3:02x}.{slot & 7}"
    places = (root / "sys/bus/pci/devices").glob(name)
    return any((place / "class").read_text().startswith("0x03") for place in places)


def software(*, look_for_libraries: bool, hardware: tuple[str, ...] = ()) -> GpuSoftware:
    """Read what decides whether TensorFlow sees a GPU."""
    try:
        build: Any = tensorflow().sysconfig.get_build_info()
    except _FAILURES:
        build = {}
    cuda, cudnn = str(build.get("cuda_version", "")), str(build.get("cudnn_version", ""))
    cuda_build = bool(build.get("is_cuda_build", False))
    return GpuSoftware(
        cuda_build=cuda_build,
        rocm_build=bool(build.get("is_rocm_build", False)),
        cuda_version=cuda,
        cudnn_version=cudnn,
        distributions=_distributions(),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        device_order=os.environ.get("CUDA_DEVICE_ORDER"),
        libraries_missing=missing_libraries(cuda, cudnn, library_folders())
        if cuda_build and look_for_libraries
        else (),
        hardware=hardware,
    )


def _distributions() -> tuple[str, ...]:
    found = []
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return tuple(found)


def missing_libraries(cuda: str, cudnn: str, folders: tuple[Path, ...]) -> tuple[str, ...]:
    """Name the libraries that a build for this CUDA loads and that stand nowhere; nothing is loaded.

    Only those whose number is that of CUDA or cuDNN itself: the others are numbered by rules of their own.
    """
    needed = []
    if major := cuda.partition(".")[0]:
        needed += [f"libcudart.so.{major}", f"libcublas.so.{major}"]
    if major := cudnn.partition(".")[0]:
        needed.append(f"libcudnn.so.{major}")
    known = b""
    with contextlib.suppress(OSError):
        known = Path("/etc/ld.so.cache").read_bytes()
    return tuple(
        name
        for name in needed
        if name.encode() + b"\0" not in known and not any((folder / name).exists() for folder in folders)
    )


def library_folders() -> tuple[Path, ...]:
    """List where the loader and TensorFlow look for the libraries of CUDA."""
    listed = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part]
    packages = {
        Path(part) for part in (*site.getsitepackages(), site.getusersitepackages(), *sys.path) if part
    }
    for folder in sorted(packages):
        with contextlib.suppress(OSError):
            listed += sorted((folder / "nvidia").glob("*/lib"))
    with contextlib.suppress(OSError):
        listed += sorted(Path("/usr/local").glob("cuda*/lib64"))
    return tuple(listed)

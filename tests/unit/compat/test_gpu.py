"""What the system and TensorFlow know about GPUs, beside NVML."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfdiag.compat import gpu, host
from tfdiag.model.quantity import Missing


def machine(root: Path, files: dict[str, str]) -> Path:
    """Make the files of a machine."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "signs"),
    [
        ({}, ()),
        ({"proc/driver/nvidia/gpus/0000:01:00.0/information": ""}, ("/proc/driver/nvidia/gpus",)),
        ({"dev/nvidia0": "", "dev/nvidia1": ""}, ("/dev/nvidia0",)),
        ({"dev/nvidiactl": ""}, ()),
    ],
)
def test_signs_of_a_gpu(tmp_path: Path, files: dict[str, str], signs: tuple[str, ...]):
    """The driver's files and nodes; its control node alone is none."""
    assert gpu.hardware_signs(machine(tmp_path, files)) == signs


@pytest.mark.parametrize(
    ("row", "kind", "signs"),
    [
        ("0108\t10de20b0\t0", "0x030200", ("PCI",)),
        ("0108\t10de20b0\t0", "0x040300", ()),
        ("0108\t10022684\t0", "0x030000", ()),
        ("broken", "0x030000", ()),
        ("", "0x030000", ()),
    ],
)
def test_a_gpu_on_the_bus(tmp_path: Path, row: str, kind: str, signs: tuple[str, ...]):
    """A display of NVIDIA's, in whatever domain; sound chips and others' GPUs are not meant."""
    files = {
        "proc/bus/pci/devices": f"0000\t80861237\t0\n{row}\n",
        "sys/bus/pci/devices/0001:01:01.0/class": kind,
    }
    assert gpu.hardware_signs(machine(tmp_path, files)) == signs


def test_libraries_that_stand_nowhere(tmp_path: Path):
    """By the numbers of CUDA and cuDNN; a build that tells none needs none."""
    machine(tmp_path, {"libcublas.so.99": "", "libcudart.so.98": ""})
    assert gpu.missing_libraries("99.1", "97", (tmp_path,)) == ("libcudart.so.99", "libcudnn.so.97")
    assert gpu.missing_libraries("", "", (tmp_path,)) == ()


def test_this_tensorflow_is_described():
    """What is installed here has a name and a version; without CUDA no libraries are missed."""
    found = gpu.software(look_for_libraries=True, hardware=("PCI",))
    assert any(name.startswith(("tensorflow", "tf-nightly")) for name in found.distributions)
    assert found.hardware == ("PCI",)
    assert found.cuda_build or found.libraries_missing == ()
    assert gpu.physical_gpus() == [] or found.cuda_build


def test_a_device_without_an_allocator_says_so():
    """The CPU, and a device that does not exist."""
    assert isinstance(gpu.allocated("GPU:77"), Missing)
    assert isinstance(gpu.allocator_limit("GPU:77"), Missing)


def test_processes_of_ours():
    """This process is ours; its parent, and one that does not exist, are not."""
    assert host.is_ours(os.getpid())
    assert not host.is_ours(os.getppid())
    assert not host.is_ours(2**30)
    assert host.process_name(os.getpid())
    assert host.process_name(2**30) == ""

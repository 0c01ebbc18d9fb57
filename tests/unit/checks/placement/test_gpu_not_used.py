"""gpu-not-used: a GPU is there, and TensorFlow does not see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_gpu import gpu, telemetry
from tests.unit.checks.running import not_run, only, results, with_wait
from tfdiag.checks.placement.gpu_not_used import CHECK
from tfdiag.model.gpu import GpuSoftware, GpuTelemetry
from tfdiag.model.quantity import Missing

CPU_BUILD = {"distributions": ("tensorflow-cpu 2.21.0",)}
CUDA_BUILD = {"cuda_build": True, "cuda_version": "12.5.1", "distributions": ("tensorflow 2.21.0",)}
TWO = (gpu(tensorflow=""), gpu(tensorflow="", index=1, uuid="GPU-2"))


def there(software: dict[str, Any], **fields: Any) -> GpuTelemetry:
    """Give two GPUs that TensorFlow does not see."""
    return telemetry(*TWO, software=GpuSoftware(**software), **fields)


@pytest.mark.parametrize(
    ("software", "fields", "said"),
    [
        (CPU_BUILD, {}, "tensorflow-cpu is installed, which has no CUDA"),
        (
            {"distributions": ("tensorflow 2.21.0", "tensorflow-cpu 2.21.0")},
            {},
            "tensorflow-cpu is installed and overwrites the other build",
        ),
        ({"rocm_build": True}, {}, "ROCm"),
        (
            {"distributions": ("tensorflow 2.10.0", "tensorflow-metal 1.0")},
            {},
            "tensorflow-metal is no plug-in",
        ),
        ({"distributions": ("tensorflow 2.21.0",)}, {}, "it was built without CUDA"),
        (CUDA_BUILD, {"cuda": "11.8"}, "built for CUDA 12, and the driver 550.54 knows CUDA 11.8"),
        ({**CUDA_BUILD, "libraries_missing": ("libcudnn.so.9",)}, {}, "libcudnn.so.9 can't be found"),
        ({**CUDA_BUILD, "visible_devices": "-1"}, {}, "'-1' names no GPU"),
        ({**CUDA_BUILD, "visible_devices": ""}, {}, "'' names no GPU"),
        ({**CUDA_BUILD, "visible_devices": "2,0"}, {}, "'2,0' names no GPU"),
        ({**CUDA_BUILD, "visible_devices": "GPU-3"}, {}, "'GPU-3' names no GPU"),
        ({**CUDA_BUILD, "visible_devices": "1"}, {}, "own message"),
        ({**CUDA_BUILD, "visible_devices": "GPU-2"}, {}, "own message"),
        ({**CUDA_BUILD, "visible_devices": "MIG-GPU-2/1/0"}, {}, "own message"),
        (CUDA_BUILD, {"cuda": ""}, "own message"),
    ],
)
def test_says_which_of_the_reasons_it_is(software: dict[str, Any], fields: dict[str, Any], said: str):
    """Each reason has a cure of its own."""
    finding = only(CHECK, gpu=there(software, **fields)).finding
    assert finding.title.startswith("TensorFlow does not see NVIDIA A100: ")
    assert said in finding.title


def test_names_further_reasons():
    """What would stand in the way next is said too."""
    software = {**CPU_BUILD, "visible_devices": "-1"}
    detail = only(CHECK, gpu=there(software)).finding.detail
    assert detail.startswith("`pip install 'tensorflow[and-cuda]'`")
    assert "Then: CUDA_VISIBLE_DEVICES='-1' names no GPU of this machine. Unset it" in detail


def test_says_what_is_wrong_with_the_driver():
    """Where the driver does not answer, the system still shows the GPU."""
    of = GpuTelemetry(gpus_missing="the NVIDIA driver is not loaded", software=GpuSoftware(hardware=("PCI",)))
    finding = only(CHECK, gpu=of).finding
    assert finding.title == "TensorFlow does not see a GPU of NVIDIA: the NVIDIA driver is not loaded"
    assert finding.severity == "info"


@pytest.mark.parametrize(("visible", "severity"), [(None, "critical"), ("", "info")])
def test_who_hides_a_gpu_may_mean_it(visible: str | None, severity: str):
    """A GPU that was hidden is said, but not blamed."""
    software = {**CUDA_BUILD, "visible_devices": visible}
    assert only(CHECK, gpu=there(software)).finding.severity == severity


@pytest.mark.parametrize(("compute", "fires"), [(4.5 * MS, False), (5.5 * MS, True)])
def test_fires_when_computing_takes_time(compute: float, fires: bool):
    """A job that hardly computes gains nothing from a GPU."""
    parts = {"compute": compute, "dispatch": 1 * MS, "wait": 99 * MS - compute, "gpu": there(CPU_BUILD)}
    assert bool(results(CHECK, **parts)) is fires


def test_silent_where_there_is_nothing_to_say():
    """No GPU, nothing known of one, or one that TensorFlow sees."""
    assert results(CHECK) == []
    assert results(CHECK, gpu=GpuTelemetry()) == []
    assert results(CHECK, accelerator=True, gpu=there(CPU_BUILD)) == []


def test_undecided_without_the_compute():
    """How much a GPU could do is not known then."""
    parts = {**with_wait(0.1), "replay": False, "waits": False}
    assert "could do" in not_run(CHECK, gpu=there(CPU_BUILD), **parts)
    assert results(CHECK, gpu=Missing("there is no GPU"), **parts) == []

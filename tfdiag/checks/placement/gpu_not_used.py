"""There is a GPU in the machine, and TensorFlow computes on the CPU because it sees none.

What it measures
    The GPUs that the driver lists (or, where it does not answer, those that the system shows), against the
    devices that TensorFlow lists; and what decides whether TensorFlow sees one: how it was built, the
    packages that are installed, the libraries of CUDA, the driver, `CUDA_VISIBLE_DEVICES`. It fires when
    computing takes 5 % of the step or more.
Why it matters
    TensorFlow says so once, in a line among many when it is imported, and then trains on the CPU as if that
    was meant.
How to fix it
    By the reason that the finding names. A build without CUDA: `pip uninstall tensorflow-cpu`, then
    `pip install 'tensorflow[and-cuda]'`; on Windows only inside WSL 2. Missing libraries: the same command
    brings them. A driver that is too old: a newer one. `CUDA_VISIBLE_DEVICES`: unset it, or name a GPU that
    is there.
When to ignore it
    When the GPU was hidden on purpose, or belongs to somebody else: in a container without access to it, or
    on a machine where it only draws the desktop.
References
    https://www.tensorflow.org/install/pip
    https://docs.nvidia.com/deploy/cuda-compatibility/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.gpu import GpuSoftware, GpuTelemetry
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding, Severity

__all__ = ["CHECK"]

_WITHOUT_CUDA = (
    "tensorflow-cpu", "tf-nightly-cpu", "tensorflow-intel", "tensorflow-cpu-aws", "tensorflow-aarch64",
    "tensorflow-macos",
)  # fmt: skip
_PLUGINS = ("tensorflow-directml", "tensorflow-metal", "intel-extension-for-tensorflow")
_INSTALL = "`pip install 'tensorflow[and-cuda]'` brings a build with CUDA and its libraries."
_UNKNOWN = (
    "the build has CUDA, its libraries were found and nothing hides the GPU: TensorFlow's own message at its "
    "import (TF_CPP_MIN_LOG_LEVEL=0) says more"
)


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when TensorFlow sees no GPU on a machine that has one, and computing takes time."""
    telemetry, environment = analysis.measurements.gpu, analysis.measurements.environment
    if any(device.kind != "CPU" for device in environment.devices):
        return
    if isinstance(telemetry, Missing) or not (telemetry.gpus or telemetry.software.hardware):
        return
    assert not isinstance(analysis.step, Missing)
    compute = analysis.step.segments["device_compute"]
    if isinstance(compute, Missing):
        raise Undecided(
            f"there is a GPU that TensorFlow does not see, but not how much it could do: {compute.reason}"
        )
    cost = analysis.share(compute.value)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    (reason, cure), *further = list(_reasons(telemetry)) or [(_UNKNOWN, "")]
    names = sorted({gpu.name for gpu in telemetry.gpus if gpu.name})
    what = names[0] if names else "a GPU of NVIDIA"
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"TensorFlow does not see {what}: {reason}",
            severity=_severity(telemetry, cost),
            cost=facts.share(cost, source="compute, which runs on the CPU"),
            evidence=(
                Evidence(
                    "compute per step, on the CPU",
                    compute,
                    Quantity(facts.COST_SHARE * analysis.step.mean_s, "s", origin="given"),
                    "above",
                ),
                Evidence(
                    "GPUs that the driver lists", Quantity(float(len(telemetry.gpus)), "GPUs", source="NVML")
                ),
                Evidence("GPUs that TensorFlow lists", Quantity(0.0, "GPUs", source="TensorFlow")),
            ),
            where=", ".join(telemetry.software.distributions) or "the installation",
            detail=" ".join([cure, *(f"Then: {reason}. {cure}" for reason, cure in further)]).strip(),
        )
    )


def _severity(telemetry: GpuTelemetry, cost: float) -> Severity:
    """Hidden on purpose, or seen on the bus only: said, but not blamed."""
    hidden = telemetry.software.visible_devices is not None and _hides(telemetry)
    return "info" if hidden or not telemetry.gpus else severity_of(cost)


def _reasons(telemetry: GpuTelemetry) -> Iterator[tuple[str, str]]:
    """Say what keeps TensorFlow from the GPU and what to do about it, the most likely first."""
    software = telemetry.software
    if not telemetry.gpus and telemetry.gpus_missing:
        yield telemetry.gpus_missing, "Once `nvidia-smi` lists the GPU, TensorFlow can."
    if not software.cuda_build:
        yield _build(software), _INSTALL
    elif (major := _major(software.cuda_version)) > _major(telemetry.cuda) > 0:
        newest = f"the driver {telemetry.driver} knows CUDA {telemetry.cuda} at most"
        yield (
            f"it was built for CUDA {major}, and {newest}",
            f"It takes a driver for CUDA {major}, or an older TensorFlow.",
        )
    if telemetry.gpus and _hides(telemetry):
        yield (
            f"CUDA_VISIBLE_DEVICES={software.visible_devices!r} names no GPU of this machine",
            "Unset it, or name a GPU that is there.",
        )
    if software.libraries_missing:
        yield f"{', '.join(software.libraries_missing)} can't be found", _INSTALL


def _build(software: GpuSoftware) -> str:
    names = [name.partition(" ")[0] for name in software.distributions]
    without = [name for name in names if name in _WITHOUT_CUDA]
    plugins = [name for name in names if name.startswith(_PLUGINS)]
    if software.rocm_build:
        return "it was built for GPUs of AMD (ROCm)"
    if without:
        beside = " and overwrites the other build" if "tensorflow" in names else ""
        return f"{without[0]} is installed{beside}, which has no CUDA"
    if plugins:
        return f"it was built without CUDA, and {plugins[0]} is no plug-in for this GPU"
    return "it was built without CUDA"


def _hides(telemetry: GpuTelemetry) -> bool:
    """Say whether the first name in CUDA_VISIBLE_DEVICES is none of the GPUs: what follows it is ignored."""
    visible = telemetry.software.visible_devices
    if visible is None:
        return False
    first = visible.split(",")[0].strip()
    if number := re.match(r"\+?(\d+)", first):
        return int(number[1]) >= len({gpu.index for gpu in telemetry.gpus})
    if not first[:1].isalpha():
        return True
    if older := re.match(r"MIG-(GPU-[^/]+)/", first):
        first = older[1]
    return not any(gpu.uuid.lower().startswith(first.lower()) for gpu in telemetry.gpus)


def _major(version: str) -> int:
    number = re.match(r"\d+", version)
    return int(number[0]) if number else 0


CHECK = Check("gpu-not-used", "A GPU is there, and TensorFlow does not see it", "placement", __doc__, run)

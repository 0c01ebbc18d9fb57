"""What is said about each GPU: its readings by their names, and what could not be read."""

from __future__ import annotations

import json

from tests.synthetic import Synthetic, analysed
from tests.synthetic_gpu import gpu, ours, samples, stranger, telemetry
from tfdiag.checks.registry import run_checks
from tfdiag.model.gpu import Allocator, GpuTelemetry
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.gpus import gpu_gaps, gpu_lines
from tfdiag.render.report import Report
from tfdiag.report.build import build

FULL = telemetry(
    gpu(
        samples=samples(throttle=0x40, sm_clock=705, sm_active=0.25, ecc_uncorrected=2.0),
        processes=(ours(), stranger()),
    ),
    gpu(index=1, uuid="GPU-2", tensorflow="", samples=Missing("not sampled")),
    allocators=(Allocator("GPU:0", Quantity(2.0**30, "B"), Missing("old"), Quantity(2.0**31, "B")),),
)


def said(of: GpuTelemetry | Missing) -> dict[str, str]:
    """Give the lines by name."""
    return dict(gpu_lines(Synthetic(accelerator=True, gpu=of).measurements()))


def test_a_line_for_each_gpu():
    """Readings, what holds it down, who else is there, and TensorFlow's own count of its memory."""
    lines = said(FULL)
    for part in (
        "NVIDIA A100", "some kernel ran in 90 % of the time (NVML)", "25 % of the multiprocessors busy (GPM)",
        "clock 705 of 1,410 MHz", "300 of 400 W", "up to 60 °C", "PCIe 4 x16",
        "clocks held down by heat in 100 % of the busy samples", "2 memory errors",
        "process 4242 (python) holds 512 MiB and computes in 30 % of the time",
    ):  # fmt: skip
        assert part in lines["GPU:0"]
    assert "not one of TensorFlow's" in lines["GPU 1"]
    assert lines["GPU:0 memory"].startswith("1.00 GiB of 2.00 GiB in use at most")
    assert lines["driver"] == "550.54, CUDA 12.4 at most"


def test_utilisation_is_not_called_efficiency():
    """That some kernel ran says nothing about how well."""
    assert "efficien" not in " ".join(said(FULL).values()).lower()


def test_what_could_not_be_seen_is_said():
    """Each gap with its reason."""
    of = telemetry(
        gpu(processes_missing="other numbers", cut="the GPU fell off the bus"),
        gpu(index=1, tensorflow="GPU:1", samples=Missing("no handle")),
        gpus_missing="the driver is gone",
        mapping_missing="by speed",
    )
    assert dict(gpu_gaps(of)) == {
        "GPU telemetry": "the driver is gone",
        "which GPU is which of TensorFlow's": "by speed",
        "samples of GPU:1": "no handle",
        "who uses GPU:0": "other numbers",
        "the rest of the samples of GPU:0": "the GPU fell off the bus",
    }
    assert list(gpu_gaps(Missing("none"))) == []
    assert said(Missing("none")) == {}


def test_every_form_shows_them_and_a_report_keeps_them():
    """Saved and loaded, a report is the same; each form has the section."""
    analysis = analysed(accelerator=True, gpu=FULL)
    report = Report.from_data(build(analysis, run_checks(analysis)))
    again = Report.from_dict(json.loads(report.to_json()))
    assert again.measurements.gpu == FULL
    for text in (str(again), again.to_markdown(), again.to_html()):
        assert "some kernel ran" in text

"""tfdiag.analyze_trace, from a file to a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tfdiag
from tests.traces import MS, US, job
from tfdiag.model.device import DeviceTrace
from tfdiag.model.quantity import Missing
from tfdiag.model.report import Step


def test_a_report_in_every_form(tmp_path: Path):
    """The device has a section, and the report survives being saved."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(job(copy=6 * MS, wait=MS))
    report = tfdiag.analyze_trace(path)
    assert report.verdict.code == "transfer-bound"
    assert {finding.check for finding in report.findings} >= {"oversized-transfer", "unoverlapped-transfer"}
    for text in (str(report), report.to_markdown(), report.to_html()):
        assert "On the device" in text
        assert "4 kernels a step" in text
        assert "sequential/dense_0" in text
    report.save(tmp_path / "report.json")
    assert tfdiag.load(tmp_path / "report.json") == report


def test_no_check_fails_on_a_trace():
    """Each decides, or says what it would need."""
    for data in (
        job(wait=9 * MS),
        job(late=20 * US, kernel=3 * US, kernels=60),
        job(kernel=9 * MS),
        job(host=20 * MS),
    ):
        report = tfdiag.analyze_trace(data)
        assert not [reason for _, reason in report.not_run if "the check failed" in reason]
        assert isinstance(report.step, Step)
        assert isinstance(report.measurements.device, DeviceTrace)
        undecided = dict(report.not_run)
        assert "nothing was run" in undecided["slow-callback"]


def test_a_wait_for_input_is_a_finding():
    """A trace does not tell the stages of the input, and the report says what does."""
    report = tfdiag.analyze_trace(job(wait=9 * MS))
    (found,) = [finding for finding in report.findings if finding.check == "unknown-input"]
    advice = "A trace does not tell the stages of the input; tfdiag.diagnose(model, dataset) does"
    assert found.detail == advice
    assert "for input" in next(one.title for one in report.findings if one.check == "idle-gpu")


def test_healthy_traces_have_no_findings():
    """A device that computes nearly all the time is told nothing but that."""
    report = tfdiag.analyze_trace(job(host=MS // 4, kernel=5 * MS, copy=MS // 2))
    assert report.verdict.code == "compute-bound"
    assert [finding.check for finding in report.findings if finding.severity != "info"] == []


def test_checks_can_be_silenced():
    """As in a diagnosis; unknown names are refused before anything is read."""
    report = tfdiag.analyze_trace(job(copy=6 * MS), ignore=("oversized-transfer",))
    assert "oversized-transfer" not in {finding.check for finding in report.findings}
    with pytest.raises(tfdiag.TfdiagError, match="no check named"):
        tfdiag.analyze_trace(b"", ignore=("nothing",))


def test_a_trace_without_a_device_is_inconclusive():
    """And says what is missing."""
    report = tfdiag.analyze_trace(job(kernels=0))
    assert report.verdict.code == "inconclusive"
    assert isinstance(report.step, Missing)


def test_needs_no_tensorflow(tmp_path: Path):
    """A report can be made where no TensorFlow is installed."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(job())
    code = (
        "import sys, tfdiag\n"
        "sys.modules['tensorflow'] = sys.modules['keras'] = None\n"
        f"print(tfdiag.analyze_trace({str(path)!r}).verdict.code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "compute-bound"

"""The report as flat numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.sample_reports import SAMPLES, empty, full, tried


def test_numbers_are_those_of_the_report() -> None:
    """Every part of the report has its number under a name that says what and in which unit."""
    metrics = full().metrics()
    assert metrics["step/mean_s"] == 0.0483
    assert metrics["segment/input_wait/s"] == 0.0321
    assert metrics["segment/input_wait/share"] == pytest.approx(0.0321 / 0.0483)
    assert metrics["bounds/best_speedup"] == 3.86
    assert metrics["verdict/confidence"] == 0.98
    assert metrics["finding/sequential-map/cost"] == 0.664
    assert metrics["host/callback_ModelCheckpoint.on_train_batch_end/s"] == 0.0019
    assert metrics["overhead/total_s"] == 14.2
    assert tried().metrics()["suggestion/missing-prefetch/prefetch/measured"] == 1.003


def test_missing_is_absent() -> None:
    """What was not measured has no number; a measured zero has one."""
    metrics = full().metrics()
    assert "segment/collective/s" not in metrics
    assert "segment/collective/share" not in metrics
    assert metrics["segment/compile/s"] == 0.0
    assert set(empty().metrics()) == {"verdict/share", "verdict/confidence", "overhead/total_s"}


@pytest.mark.parametrize("name", SAMPLES)
def test_values_are_finite_floats(name: str) -> None:
    """Whatever the report holds, a dashboard gets finite floats under one-line names."""
    for key, value in SAMPLES[name]().metrics().items():
        assert type(value) is float
        assert math.isfinite(value)
        assert key.isascii()
        assert key.isprintable()
        assert " " not in key


def test_findings_of_one_check_add_up() -> None:
    """Two findings of one check don't hide each other."""
    report = full()
    twice = replace(report, findings=(report.findings[0], report.findings[0]))
    assert twice.metrics()["finding/sequential-map/cost"] == pytest.approx(2 * 0.664)

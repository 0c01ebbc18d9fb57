"""What every report of a job that ran must hold."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import tfdiag
from tests.pace import enough
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import SEGMENTS, VERDICTS, Step

BUDGET_S = 4.0
"""Enough for a job with steps of some milliseconds."""


def diagnose(model: Any, dataset: Any = None, **kwargs: Any) -> tfdiag.Report:
    """Diagnose within a small budget, of the reference's seconds."""
    budget = enough(kwargs.pop("budget", BUDGET_S))
    return tfdiag.diagnose(model, dataset, **{"budget": budget, "verify": False, **kwargs})


def is_sound(report: tfdiag.Report, *, batch_size: int | None = None) -> None:
    """Check that the report's numbers fit together."""
    assert report.verdict.code in VERDICTS
    assert report.verdict.headline
    assert 0 <= report.verdict.share <= 1
    assert 0 <= report.verdict.confidence <= 1
    _adds_up(report.step)
    _has_series(report.measurements.live)
    if batch_size is not None:
        assert isinstance(report.measurements.job.batch_size, Quantity)
        assert report.measurements.job.batch_size.value == batch_size
    assert report.measurements.overhead.total_s > 0
    survives_json(report)
    assert report.verdict.headline in _unwrapped(str(report))


def _adds_up(step: Any) -> None:
    assert isinstance(step, Step)
    assert tuple(step.segments) == SEGMENTS
    known = [part.value for part in step.segments.values() if isinstance(part, Quantity)]
    assert step.mean_s > 0
    assert math.fsum(known) == pytest.approx(step.mean_s, rel=0.01)
    assert min(known) >= -1e-9
    assert step.steady_steps > 0


def _has_series(live: Any) -> None:
    assert isinstance(live, Live)
    assert len(live.start_s) == len(live.duration_s) == len(live.wait_s) > 0
    assert all(duration > 0 for duration in live.duration_s)
    assert list(live.start_s) == sorted(live.start_s)


def survives_json(report: tfdiag.Report) -> None:
    """Check that the report comes back from strict JSON as it was."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    kept = json.loads(report.to_json(), parse_constant=refuse)
    assert kept["schema_version"] == report.schema_version
    assert tfdiag.Report.from_dict(kept) == report
    assert tfdiag.Report.from_dict(report.to_dict()) == report


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


def share(report: tfdiag.Report, segment: str) -> float:
    """Give a segment's share of the step; fail when it is missing."""
    part = report.step.segments[segment]
    assert isinstance(part, Quantity), f"{segment}: {part}"
    return part.value / report.step.mean_s

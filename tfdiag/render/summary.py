"""The report as one line of JSON, for logs: what was found and what it costs, no raw series."""

from __future__ import annotations

import json
import math
from typing import Any

from tfdiag.model.quantity import Maybe, Quantity
from tfdiag.model.report import ReportData, Step, Suggestion

__all__ = ["to_line"]


def to_line(report: ReportData) -> str:
    """Give one line; what is missing is null, never zero."""
    # Escaped to ASCII, so that no name can break the line or the log.
    return json.dumps(_summary(report), allow_nan=False, separators=(",", ":"))


def _summary(report: ReportData) -> dict[str, Any]:
    environment, job = report.measurements.environment, report.measurements.job
    return {
        "event": "tfdiag.report",
        "schema_version": report.schema_version,
        "date": environment.date,
        "model": job.model,
        "input": job.input,
        "verdict": {
            "code": report.verdict.code,
            "headline": report.verdict.headline,
            "share": _finite(report.verdict.share),
            "confidence": _finite(report.verdict.confidence),
        },
        "step": _step(report.step) if isinstance(report.step, Step) else None,
        "best_speedup": _number(report.bounds.best_speedup),
        "findings": [
            {
                "check": finding.check,
                "severity": finding.severity,
                "cost": _number(finding.cost),
                "where": finding.where,
            }
            for finding in report.findings
        ],
        "suggestions": [_suggestion(suggestion) for suggestion in report.suggestions],
        "rejected": [_suggestion(suggestion) for suggestion in report.rejected],
        "warnings": list(report.warnings),
        "versions": {
            "tfdiag": environment.tfdiag,
            "tensorflow": environment.tensorflow,
            "keras": environment.keras,
            "python": environment.python,
        },
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "mean_s": _finite(step.mean_s),
        "low_s": _finite(step.mean.low),
        "high_s": _finite(step.mean.high),
        "steady_steps": step.steady_steps,
        "segments": {
            name: _finite(part.value / step.mean_s)
            if isinstance(part, Quantity) and step.mean_s > 0
            else None
            for name, part in step.segments.items()
        },
    }


def _suggestion(suggestion: Suggestion) -> dict[str, Any]:
    return {
        "id": suggestion.id,
        "status": suggestion.status,
        "predicted": _number(suggestion.predicted),
        "measured": _number(suggestion.measured),
    }


def _number(value: Maybe) -> float | None:
    return _finite(value.value) if isinstance(value, Quantity) else None


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None

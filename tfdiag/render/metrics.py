"""The report as flat numbers, for dashboards and for comparing runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tfdiag.model.quantity import Maybe, Quantity
from tfdiag.model.report import ReportData, Step

__all__ = ["to_metrics"]


def to_metrics(report: ReportData) -> dict[str, float]:
    """Give every number under a name; what is missing is absent, never zero."""
    metrics: dict[str, float] = {}
    for name, value in _entries(report):
        number = value.value if isinstance(value, Quantity) else value
        # Costs under one name (two findings of one check, two methods of one callback) add up.
        if isinstance(number, float | int) and math.isfinite(number):
            metrics[name] = metrics.get(name, 0.0) + float(number)
    return metrics


def _entries(report: ReportData) -> Iterator[tuple[str, Maybe | float]]:
    yield "verdict/share", report.verdict.share
    yield "verdict/confidence", report.verdict.confidence
    if isinstance(report.step, Step):
        yield from _step(report.step)
    yield "bounds/replay_s", report.bounds.replay
    yield "bounds/input_alone_s", report.bounds.input_alone
    yield "bounds/ideal_overlap_s", report.bounds.ideal_overlap
    yield "bounds/best_speedup", report.bounds.best_speedup
    for finding in report.findings:
        yield f"finding/{_slug(finding.check)}/cost", finding.cost
    for suggestion in (*report.suggestions, *report.rejected):
        yield f"suggestion/{_slug(suggestion.id)}/predicted", suggestion.predicted
        yield f"suggestion/{_slug(suggestion.id)}/measured", suggestion.measured
    yield "overhead/total_s", report.measurements.overhead.total_s
    yield "overhead/per_step_s", report.measurements.overhead.per_step_s


def _step(step: Step) -> Iterator[tuple[str, Maybe | float]]:
    yield "step/mean_s", step.mean_s
    yield "step/median_s", step.median
    yield "step/first_s", step.first_step
    yield "step/compile_once_s", step.compile_once
    yield "step/first_batch_s", step.first_batch
    yield "step/steady_steps", step.steady_steps
    yield "step/outliers", step.outliers
    for name, part in step.segments.items():
        yield f"segment/{_slug(name)}/s", part
        if isinstance(part, Quantity) and step.mean_s > 0:
            yield f"segment/{_slug(name)}/share", part.value / step.mean_s
    for item in step.host_items:
        yield f"host/{_slug(item.name)}/s", item.per_step


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.()/-]+", "_", name)

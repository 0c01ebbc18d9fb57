"""Ranks what the checks found and puts the report together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.stuck import stuck_stage
from tfdiag.checks.registry import Outcome, all_checks
from tfdiag.model.measurements import HostSample, Live, Overhead
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Finding, ReportData, Suggestion
from tfdiag.model.trials import Trial, Trials
from tfdiag.remedies import together

__all__ = ["build", "with_trials"]

_SEVERITY = {"critical": 0, "warning": 1, "info": 2}


def build(
    analysis: Analysis, outcome: Outcome, *, ignored: Iterable[str] = (), untried: str = ""
) -> ReportData:
    """Make the report of an analysis; `untried` says why no suggestion is tried, where none will be."""
    suggestions = [
        replace(s, reason=s.reason or untried) for result in outcome.results for s in result.suggestions
    ]
    combined = together.suggest(analysis, suggestions)
    if combined is not None:
        suggestions.append(combined)
    rejected = [s for s in suggestions if s.status == "refuted"]
    advised = [s for s in suggestions if s.status != "refuted"]
    return ReportData(
        verdict=analysis.verdict,
        step=analysis.step,
        bounds=analysis.bounds,
        findings=_causes_first([result.finding for result in outcome.results]),
        suggestions=tuple(sorted(advised, key=_best_first)),
        rejected=tuple(rejected),
        measurements=analysis.measurements,
        ignored=tuple(ignored),
        not_run=outcome.not_run,
        warnings=tuple(_warnings(analysis)),
    )


def with_trials(
    data: ReportData, trials: Trials, overhead: Overhead, added: Sequence[Suggestion] = ()
) -> ReportData:
    """Give the report with what became of each suggestion when it was tried, and of those that were added."""
    data = replace(data, suggestions=(*data.suggestions, *added))
    results = {trial.suggestion: trial for trial in trials.trials}
    # The same change is tried once, whoever suggests it.
    twins = {_change(one): results[one.id] for one in data.suggestions if one.id in results}
    after = [_tried(one, results.get(one.id) or twins.get(_change(one)), trials) for one in data.suggestions]
    return replace(
        data,
        suggestions=tuple(sorted((one for one in after if one.status != "refuted"), key=_best_first)),
        rejected=(*data.rejected, *(one for one in after if one.status == "refuted")),
        measurements=replace(data.measurements, trials=trials, overhead=overhead),
        warnings=(*data.warnings, *trials.notes),
    )


def _change(one: Suggestion) -> tuple[Any, ...]:
    """Give what is changed; a change that only the caller can make is nobody else's."""
    return (one.edits, one.changes) if one.edits or one.changes else (one.id,)


def _tried(one: Suggestion, trial: Trial | None, trials: Trials) -> Suggestion:
    if trial is None:
        can_be = bool(one.edits or one.changes)
        reason = one.reason or (
            trials.missing if can_be else "not tried: only the caller can make this change"
        )
        return replace(one, reason=reason)
    return replace(one, status=trial.status, measured=trial.measured, reason=trial.reason)


def _causes_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sort by rank, severity and cost; what explains most of a more general finding comes right before it."""
    checks = {check.id: check for check in all_checks()}

    def place(finding: Finding) -> tuple[int, int, float, bool]:
        check = checks.get(finding.check)
        cost = finding.cost.value
        general = [other.cost.value for other in findings if check and other.check in check.explains]
        explained = [other for other in general if cost >= _EXPLAINS * other]
        rank = check.rank if check else 0
        return rank, _SEVERITY[finding.severity], -max([cost, *explained]), not explained

    return tuple(sorted(findings, key=place))


def _best_first(suggestion: Suggestion) -> tuple[int, float]:
    """Confirmed before untried; within them by gain; what has no number comes last."""
    gain = suggestion.measured if suggestion.status == "confirmed" else suggestion.predicted
    rank = 0 if suggestion.status == "confirmed" else 1
    return rank, -gain.value if isinstance(gain, Quantity) else 0.0


_EXPLAINS = 0.8
"""Of what a more general check found."""
_CROWDED = 0.25
"""Cores that others keep busy, on a machine without idle ones."""
_IDLE = 0.1
"""Of the cores: with more that are idle, others take nothing away."""


def _others(samples: tuple[HostSample, ...], cores: int) -> float:
    """Give how many cores other processes kept busy in a machine that had none left."""
    if len(samples) < 2:
        return 0.0
    first, last = samples[0], samples[-1]
    wall = last.at_s - first.at_s
    if wall <= 0:
        return 0.0
    busy = (last.system_cpu_s - first.system_cpu_s) / wall
    own = (last.process_cpu_s - first.process_cpu_s) / wall
    return max(0.0, busy - own) if busy > (1 - _IDLE) * cores else 0.0


def _warnings(analysis: Analysis) -> list[str]:
    found = []
    live = analysis.measurements.live
    pipeline = analysis.measurements.pipeline
    if isinstance(pipeline, Pipeline) and pipeline.hung:
        stage = stuck_stage(pipeline)
        found.append(
            "the step was still waiting for its input when the budget ended"
            + (f": no element came out of {stage}" if stage else "")
        )
    if isinstance(live, Live):
        if live.nan_loss:
            found.append("the loss was NaN during the diagnosis: the model does not train as it is")
        if live.cut:
            found.append(f"the run was cut short: {live.cut}")
        if len(live.start_s) * live.steps_per_call < 2:
            found.append("the dataset has a single batch: there is no steady state to measure")
    others = _others(analysis.measurements.host, analysis.measurements.environment.cores)
    if others >= _CROWDED:
        found.append(
            f"other processes kept {others:.1f} cores busy and hardly any was idle: these are the times of a "
            "shared machine"
        )
    used = analysis.measurements.job.batches_used
    if used:
        found.append(f"{used} batches were taken from the generator and can't be put back")
    return found

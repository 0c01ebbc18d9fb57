"""Hold what trials say of suggestions against the really rewritten job, and let healthy jobs be healthy.

    python -m benchmarks.input_causes --budget 60 --gains SECONDS --trials [--only PART]

Each job of the input suite is diagnosed as a user would, and every suggestion is then made in a copy:
original and copy train by turns through Keras' own `fit`, apart from any diagnosis (`input_gains`). That is
the gain which the trial should have measured. Nothing may be confirmed on a healthy job, and every job must
be bit for bit as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tfdiag
from benchmarks.inputs.suite import Case
from benchmarks.stats import Goal, kept
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Suggestion
from tfdiag.model.trials import Trial


def row_of(case: Case, found: tfdiag.Report, gains: list[dict[str, Any]]) -> dict[str, Any]:
    """Hold the trials of one diagnosis against the gains of the rewritten job."""
    able = [s for s in (*found.suggestions, *found.rejected) if s.edits]
    trials = found.measurements.trials
    realised = {gain["suggestion"]: gain for gain in gains if "realised" in gain}
    turns = {trial.suggestion: trial for trial in trials.trials}
    confirmed = [s for s in able if s.status == "confirmed"]
    return {
        "job": case.name,
        "plant": case.plant,
        "able": len(able),
        "statuses": {s.id: s.status for s in able},
        "reasons": {s.id: s.reason for s in able if s.reason},
        "took_s": found.measurements.overhead.total_s,
        "noise": trials.noise.value if isinstance(trials.noise, Quantity) else None,
        "missing": trials.missing,
        "right_fix": any(s.check in {case.plant, *case.accept} for s in confirmed),
        "pairs": [_pair(one, turns[one.id], realised.get(one.id)) for one in confirmed],
    }


def _pair(suggestion: Suggestion, trial: Trial, gain: dict[str, Any] | None) -> dict[str, Any]:
    measured = suggestion.measured
    assert isinstance(measured, Quantity)
    low, high = measured.low or 0.0, measured.high or np.inf
    realised = None if gain is None else gain["realised"]
    return {
        "suggestion": suggestion.id,
        "measured": measured.value,
        "low": low,
        "high": high,
        "realised": realised,
        # Which side of a miss it was: the job as it is, or with the change.
        "before_s": float(np.mean(trial.before_s)),
        "after_s": float(np.mean(trial.after_s)),
        "really_before_s": None if gain is None else gain["before_s"],
        "really_after_s": None if gain is None else gain["after_s"],
        "error": measured.value / realised - 1 if realised else None,
        "inside": bool(realised and low <= realised <= high),
    }


def show(row: dict[str, Any]) -> None:
    """Print what became of a job's suggestions."""
    noise = "" if row["noise"] is None else f", noise {row['noise']:.1%}"
    print(f"    {row['took_s']:.1f} s{noise} {row['missing']}")
    for name, status in row["statuses"].items():
        print(f"    {name}: {status} {row['reasons'].get(name, '')}")
    for pair in row["pairs"]:
        really = "not run" if pair["realised"] is None else f"{pair['realised']:.2f}x"
        print(
            f"    {pair['suggestion']}: measured {pair['measured']:.2f}x ({pair['low']:.2f} to "
            f"{pair['high']:.2f}), really {really}{'' if pair['inside'] else '  OUTSIDE'}"
            f"; {_ms(pair['before_s'])} -> {_ms(pair['after_s'])} ms, "
            f"really {_ms(pair['really_before_s'])} -> {_ms(pair['really_after_s'])} ms",
            flush=True,
        )


def _ms(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e3:.2f}"


def sum_up(rows: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> bool:
    """Hold what was confirmed against the goals; a job that is not as it was has an error in its row."""
    pairs = [pair for row in rows for pair in row["pairs"] if pair["realised"]]
    errors = np.abs([pair["error"] for pair in pairs])
    able = [row for row in rows if row["plant"] is not None and row["able"]]
    healthy = [row for row in rows if row["plant"] is None]
    goals = [Goal("jobs that were not as before, or failed", sum("error" in job for job in jobs), 0)]
    if pairs:
        inside = sum(pair["inside"] for pair in pairs) / len(pairs)
        goals += [
            Goal("median error of the measured gain", float(np.median(errors)), 0.10),
            Goal("90th percentile of the measured gain's error", float(np.quantile(errors, 0.9)), 0.20),
            Goal("confirmed and slower in the real job", sum(p["realised"] < 1.0 for p in pairs), 0),
            Goal("gains of the real job within the interval", inside, 0.9, above=True),
        ]
    if able:
        share = sum(row["right_fix"] for row in able) / len(able)
        goals.append(Goal("jobs whose fix can be applied with it confirmed", share, 0.9, above=True))
    if healthy:
        wrong = sum(bool(row["pairs"]) for row in healthy)
        goals.append(Goal("healthy jobs with a confirmed suggestion", wrong, 0))
    return kept("trials", goals, rows)

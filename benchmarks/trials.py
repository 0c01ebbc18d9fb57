"""Hold what trials say of suggestions against the really rewritten job, and let healthy jobs be healthy.

    python -m benchmarks.trials [--budget SECONDS] [--only PART] [--seconds SECONDS]

Each job of the input suite is diagnosed as a user would. What is confirmed is then made in a copy, and
original and copy train by turns through Keras' own `fit`, apart from any diagnosis: that is the gain which
the trial should have measured. Nothing may be confirmed on a healthy job, and every job is bit for bit as it
was.
"""

from __future__ import annotations

import argparse
import gc
import sys
from typing import Any

import keras
import numpy as np

import tfdiag
from benchmarks.input_causes import chosen_cases
from benchmarks.input_gains import tried
from benchmarks.inputs import pauses
from benchmarks.inputs.suite import Case
from benchmarks.stats import Goal, kept
from tests.traces_left import leaves_no_trace
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Suggestion


def one(case: Case, budget: float, seconds: float) -> dict[str, Any]:
    """Diagnose a job with trials, and run the best confirmed change for real."""
    work = case.build()
    row: dict[str, Any] = {"job": case.name, "plant": case.plant, "traces": ""}
    try:
        with leaves_no_trace(work.model, dataset=work.dataset):
            found = tfdiag.diagnose(work.model, work.dataset, fit_kwargs=work.kwargs, budget=budget)
    except AssertionError as error:
        return {**row, "traces": str(error)}
    able = [s for s in (*found.suggestions, *found.rejected) if s.edits]
    row["able"] = len(able)
    row["statuses"] = {s.id: s.status for s in able}
    row["reasons"] = {s.id: s.reason for s in able if s.reason}
    row["took_s"] = found.measurements.overhead.total_s
    noise = found.measurements.trials.noise
    row["noise"] = noise.value if isinstance(noise, Quantity) else None
    row["missing"] = found.measurements.trials.missing
    confirmed = [s for s in able if s.status == "confirmed"]
    row["pairs"] = [_pair(work, suggestion, seconds) for suggestion in confirmed[:2]]
    return row


def _pair(work: Any, suggestion: Suggestion, seconds: float) -> dict[str, Any]:
    measured, predicted = suggestion.measured, suggestion.predicted
    assert isinstance(measured, Quantity)
    real = tried(work, suggestion, seconds) if isinstance(predicted, Quantity) else {}
    realised = real.get("realised")
    low, high = measured.low or 0.0, measured.high or np.inf
    return {
        "suggestion": suggestion.id,
        "predicted": predicted.value if isinstance(predicted, Quantity) else None,
        "measured": measured.value,
        "low": low,
        "high": high,
        "realised": realised,
        "error": measured.value / realised - 1 if realised else None,
        "inside": bool(realised and low <= realised <= high),
    }


def show(row: dict[str, Any]) -> None:
    """Print what became of a job."""
    print(f"{row['job'][:60]:<60} {row['plant'] or 'healthy'}", flush=True)
    if row["traces"]:
        print(f"    LEFT TRACES: {row['traces']}")
        return
    noise = "" if row["noise"] is None else f", noise {row['noise']:.1%}"
    print(f"    {row['took_s']:.1f} s{noise} {row['missing']}")
    for name, status in row["statuses"].items():
        print(f"    {name}: {status} {row['reasons'].get(name, '')}")
    for pair in row["pairs"]:
        realised = "not run" if pair["realised"] is None else f"{pair['realised']:.2f}x"
        print(
            f"    {pair['suggestion']}: predicted {pair['predicted']:.2f}x, measured {pair['measured']:.2f}x "
            f"({pair['low']:.2f} to {pair['high']:.2f}), really {realised}"
            f"{'' if pair['inside'] else '  OUTSIDE'}",
            flush=True,
        )


def goals_of(rows: list[dict[str, Any]]) -> list[Goal]:
    """Sum up."""
    pairs = [pair for row in rows for pair in row.get("pairs", []) if pair["realised"]]
    errors = np.abs([pair["error"] for pair in pairs])
    able = [row for row in rows if row["plant"] is not None and row.get("able")]
    healthy = [row for row in rows if row["plant"] is None]
    goals = [Goal("jobs that were not as before", sum(bool(row["traces"]) for row in rows), 0)]
    if pairs:
        goals += [
            Goal("median error of the measured gain", float(np.median(errors)), 0.10),
            Goal("90th percentile of the error", float(np.quantile(errors, 0.9)), 0.20),
            Goal("confirmed gains that the real job does not show", _false(pairs), 0),
            Goal("gains of the real job within the interval", _inside(pairs), 0.9, above=True),
        ]
    if able:
        done = sum(bool(row["pairs"]) for row in able) / len(able)
        goals.append(Goal("jobs whose fix can be applied with one confirmed", done, 0.9, above=True))
    if healthy:
        wrong = sum(bool(row.get("pairs")) for row in healthy)
        goals.append(Goal("healthy jobs with a confirmed suggestion", wrong, 0))
    return goals


def _false(pairs: list[dict[str, Any]]) -> int:
    return sum(pair["realised"] < 1.0 for pair in pairs)


def _inside(pairs: list[dict[str, Any]]) -> float:
    return sum(pair["inside"] for pair in pairs) / len(pairs)


def main() -> None:
    """Run all jobs, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    pauses.preload()
    keras.utils.set_random_seed(0)
    rows = []
    for case in chosen_cases(chosen.only):
        rows.append(one(case, chosen.budget, chosen.seconds))
        show(rows[-1])
        keras.backend.clear_session()
        gc.collect()
    sys.exit(not kept("trials", goals_of(rows), rows))


if __name__ == "__main__":
    main()

"""Hold what remedies are predicted to give against what they give: the change made in a copy, and run.

    python -m benchmarks.input_gains [--budget SECONDS] [--only PART_OF_A_NAME_OR_ID] [--seconds SECONDS]

Each job of the suite is diagnosed. Every suggestion that can be made in a copy is made there, and original
and copy train by turns (A B B A …) through Keras' own `fit`; the steps of a stretch before the rate is steady
are left out. The gain is the median of those that each round of four stretches shows: a machine that changes
its speed changes it for both. Rounds go on until they agree, for some time at most: what waits for other
threads may run at two speeds, from one start to the next. Where nothing is suggested, a prefetch and a
parallel map are predicted and made all the same: that they give nothing is a prediction too. The error is of
the step's time after the change.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from typing import Any

import keras
import numpy as np

import tfdiag
from benchmarks.input_causes import chosen_cases, plain_step
from benchmarks.inputs import pauses
from benchmarks.inputs.suite import Case, Work
from benchmarks.stats import Goal, kept, well_known
from tfdiag.analyse.analysis import analyse
from tfdiag.compat import tfdata
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Step, Suggestion
from tfdiag.remedies import parallel_map, prefetch
from tfdiag.trials.apply import apply


def pairs(case: Case, budget: float, seconds: float) -> list[dict[str, Any]]:
    """Diagnose a job, and try each of its suggestions."""
    work = case.build()
    found = tfdiag.diagnose(work.model, work.dataset, fit_kwargs=work.kwargs, budget=budget, verify=False)
    return pairs_of(case, work, found, seconds)


def pairs_of(case: Case, work: Work, found: tfdiag.Report, seconds: float) -> list[dict[str, Any]]:
    """Try each suggestion of a report."""
    if not isinstance(found.step, Step):
        return []
    suggested = [
        one
        for one in (*found.suggestions, *found.rejected)
        if one.edits and isinstance(one.predicted, Quantity)
    ]
    rows = []
    for suggestion in suggested or others(found):
        rows.append({"job": case.name, **tried(work, suggestion, seconds)})
        show(rows[-1])
    return rows


def others(found: tfdiag.Report) -> list[Suggestion]:
    """Give what could be done to a pipeline with no suggestion: no gain is a prediction too."""
    analysis = analyse(found.measurements)
    if isinstance(analysis.pipeline, Missing) or not found.measurements.pipeline.graph:
        return []
    candidates = [prefetch.suggest(analysis, "other")]
    maps = [
        stage for stage in analysis.pipeline.stages if stage.serial and stage.base == "Map" and stage.id >= 0
    ]
    if maps:
        costliest = max(maps, key=lambda stage: stage.per_batch_s)
        candidates.append(
            parallel_map.suggest(
                analysis,
                "other",
                analysis.pipeline,
                costliest,
                python=bool(costliest.function and costliest.function.python),
            )
        )
    return [one for one in candidates if isinstance(one.predicted, Quantity)]


def tried(work: Any, suggestion: Suggestion, seconds: float) -> dict[str, Any]:
    """Run the job as it is and changed, by turns."""
    assert isinstance(suggestion.predicted, Quantity)
    predicted = suggestion.predicted
    row: dict[str, Any] = {
        "suggestion": suggestion.id,
        "predicted": predicted.value,
        "low": predicted.low,
        "high": predicted.high,
    }
    with tempfile.TemporaryDirectory() as folder:
        changed = apply(work.dataset, suggestion.edits, cache_folder=folder)
        row["sameness"] = changed.sameness
        if changed.dataset is None:
            return {**row, "why_not": changed.why_not}
        original: Any = work.dataset
        if tfdata.is_dataset(original):
            original = tfdata.copy_dataset(original, folder).dataset
        turns = {"A": original, "B": changed.dataset}
        took: list[list[float]] = []

        def stretches(order: str) -> list[float]:
            return [plain_step(work, turns[turn], seconds, epochs=100_000) for turn in order]

        stretches("AB")  # caches fill and tuning settles, which is not counted
        while not well_known([(a + d) / (b + c) for a, b, c, d in took]):
            took.append(stretches("ABBA"))
    rounds = np.asarray(took)
    before, after = rounds[:, [0, 3]].mean(axis=1), rounds[:, [1, 2]].mean(axis=1)
    realised = float(np.median(before / after))
    return {
        **row,
        "before_s": float(np.median(before)),
        "after_s": float(np.median(after)),
        "realised": realised,
        "least": float(np.min(before / after)),
        "most": float(np.max(before / after)),
        "rounds": len(rounds),
        "error": realised / predicted.value - 1,
        "inside": (predicted.low or 0.0) <= realised <= (predicted.high or np.inf),
    }


def show(row: dict[str, Any]) -> None:
    """Print one pair."""
    head = f"{row['job'][:44]:<44} {row['suggestion']:<40}"
    if "why_not" in row:
        print(head, "not applied:", row["why_not"], flush=True)
        return
    print(
        head,
        f"{row['before_s'] * 1e3:8.2f} -> {row['after_s'] * 1e3:8.2f} ms  predicted {row['predicted']:.2f}x"
        f" ({row['low']:.2f} to {row['high']:.2f})  realised {row['realised']:.2f}x"
        f" ({row['least']:.2f} to {row['most']:.2f})"
        f"  error {row['error']:+.0%}  {row['sameness']}{'' if row['inside'] else '  OUTSIDE'}",
        flush=True,
    )


def main() -> None:
    """Try the suggestions of all jobs, or of some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    pauses.preload()
    keras.utils.set_random_seed(0)
    for case in chosen_cases(chosen.only):
        if case.plant is None:
            continue  # nothing is suggested there
        rows += pairs(case, chosen.budget, chosen.seconds)
        keras.backend.clear_session()
        gc.collect()
    sys.exit(not sum_up(rows))


def sum_up(rows: list[dict[str, Any]]) -> bool:
    """Hold the errors against the goals."""
    errors = np.abs([row["error"] for row in rows if "error" in row])
    goals = [
        Goal("pairs of a job and a remedy that was applied", len(errors), 40, above=True),
        Goal("median error of the predicted step time", float(np.median(errors)), 0.10),
        Goal("90th percentile of the error", float(np.quantile(errors, 0.9)), 0.25),
    ]
    return kept("input_gains", goals, rows)


if __name__ == "__main__":
    main()

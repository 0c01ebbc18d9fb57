"""Try on healthy jobs what gives nothing: the trial must not confirm it, whatever the machine does meanwhile.

    python -m benchmarks.healthy_trials [--budget SECONDS] [--runs N] [--only PART_OF_A_NAME]

Nothing is suggested on a healthy job, so nothing could be confirmed there by mistake. Here a prefetch at the
end and a parallel map are promised all the same, and tried as any suggestion is. What is confirmed is made
in a copy and run through Keras' own `fit` as well (`input_gains`): where that shows the gain, it was true.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
from dataclasses import replace
from typing import Any

import keras

from benchmarks import input_gains
from benchmarks.input_causes import chosen_cases
from benchmarks.inputs import pauses
from benchmarks.inputs.suite import Case, Work
from benchmarks.quiet import MACHINE
from benchmarks.stats import Goal, kept
from tests.traces_left import leaves_no_trace
from tfdiag import diagnosis
from tfdiag.analyse.analysis import analyse
from tfdiag.collect.collect import collect
from tfdiag.collect.opening import opened
from tfdiag.collect.session import Request
from tfdiag.compat import tfdata
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.monitor.callback import DiagnosticsCallback
from tfdiag.trials.engine import try_suggestions

RUNS = 20
PROMISED = 1.3
REAL_S = 1.5


def promised(work: Work, maps: list[int]) -> list[Suggestion]:
    """Promise a gain of what should give none."""
    if not tfdata.is_dataset(work.dataset):
        return []  # its input has no graph that could be changed
    edits = {
        "prefetch": Edit("prefetch"),
        **{f"parallel-map-{node}": Edit("parallel", node) for node in maps},
    }
    gain = Quantity(PROMISED, "x", PROMISED / 1.2, PROMISED * 1.2)
    return [Suggestion(f"none/{name}", "none", "", "", gain, edits=(edit,)) for name, edit in edits.items()]


def one(case: Case, budget: float) -> dict[str, Any]:
    """Measure a job, and try on it what should give nothing."""
    work = case.build()
    MACHINE.wait()
    with leaves_no_trace(work.model, dataset=work.dataset), opened(_request(work, budget)) as session:
        analysis = analyse(collect(session, DiagnosticsCallback.recording))
        pipeline = analysis.pipeline
        serial = [] if isinstance(pipeline, Missing) else pipeline.stages
        maps = [each.id for each in serial if each.serial and each.base == "Map" and each.id >= 0]
        suggested = promised(work, maps[:1])
        found, _ = try_suggestions(session, analysis, suggested, DiagnosticsCallback.recording)
    confirmed = {trial.suggestion for trial in found.trials if trial.status == "confirmed"}
    return {
        "job": case.name,
        "noise": found.noise.value if isinstance(found.noise, Quantity) else None,
        "missing": found.missing,
        "trials": {trial.suggestion: [trial.status, _told(trial.measured)] for trial in found.trials},
        "confirmed": {
            one.id: input_gains.tried(work, one, REAL_S).get("realised")
            for one in suggested
            if one.id in confirmed
        },
    }


def _request(work: Work, budget: float) -> Request:
    # What `diagnose` makes of its arguments.
    kwargs = dict(work.kwargs)
    request = diagnosis._checked(work.model, work.dataset, None, None, kwargs, None, budget, None)  # noqa: SLF001
    return replace(request, verify=True)


def _told(measured: Any) -> str:
    if not isinstance(measured, Quantity):
        return ""
    high = "" if measured.high is None else f"{measured.high:.2f}"
    return f"{measured.value:.2f}x ({measured.low or 0.0:.2f} to {high})"


def main() -> None:
    """Run all healthy jobs, the first ones again until there are enough."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--budget", type=float, default=40.0)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    pauses.preload()
    keras.utils.set_random_seed(0)
    healthy = [case for case in chosen_cases("healthy") if chosen.only in case.name]
    rows = []
    for case in itertools.islice(itertools.cycle(healthy), chosen.runs):
        rows.append(one(case, chosen.budget))
        print(rows[-1], flush=True)
        keras.backend.clear_session()
        gc.collect()
    wrong = sum(gain is None or gain <= 1 for row in rows for gain in row["confirmed"].values())
    goals = [
        Goal("runs of healthy jobs", len(rows), RUNS, above=True),
        Goal(
            "suggestions tried that should give nothing",
            sum(bool(told) for row in rows for _, told in row["trials"].values()),
            20,
            above=True,
        ),
        Goal("confirmed", sum(len(row["confirmed"]) for row in rows), 0),
        Goal("confirmed, and no faster when really made", wrong, 0),
    ]
    sys.exit(not kept("healthy_trials", goals, rows))


if __name__ == "__main__":
    main()

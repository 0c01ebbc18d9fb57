"""Build each job once and diagnose it three times: the same verdict and the same top suggestion.

python -m benchmarks.stability [--budget SECONDS] [--jobs N]
"""

from __future__ import annotations

import argparse
from typing import Any

import tfdiag
from benchmarks.jobs import Plan, build
from benchmarks.stats import Goal, report

DIAGNOSES = 3

PLANS = [
    Plan("plain, 1 ms", 0.5),
    Plan("plain, 5 ms", 4.0),
    Plan("plain, 20 ms", 19.0),
    Plan("smallest step", 0.0),
    Plan("no overlap, half of the step", 4.0, "no overlap", 4.0),
    Plan("no overlap, most of the step", 1.0, "no overlap", 10.0),
    Plan("no overlap, a tenth of the step", 19.0, "no overlap", 2.0),
    Plan("prefetch, input slower", 4.0, "prefetch", 10.0),
    Plan("prefetch, input faster", 19.0, "prefetch", 8.0),
    Plan("autotune, input slower", 4.0, "autotune", 12.0),
    Plan("generator", 4.0, "generator", 12.0),
    Plan("PyDataset", 4.0, "PyDataset", 12.0),
    Plan("callback, most of the step", 1.0, callback_ms=5.0),
    Plan("callback, a third of the step", 4.0, callback_ms=2.5),
    Plan("validation, most of the time", 1.0, epoch=20, validation_batches=40),
    Plan("validation, a fifth of the time", 4.0, epoch=50, validation_batches=20),
    Plan("eager", 1.0, run_eagerly=True),
    Plan("eight steps an execution", 0.5, steps_per_execution=8),
    Plan("input and callback", 4.0, "no overlap", 8.0, callback_ms=3.0),
    Plan("short epochs", 0.5, epoch=3),
]


def told(found: tfdiag.Report) -> tuple[str, str]:
    """Give the verdict and the top suggestion."""
    top = found.suggestions[0].id if found.suggestions else "no suggestion"
    return found.verdict.code, top


def one(plan: Plan, budget: float) -> dict[str, Any]:
    """Diagnose one job again and again.

    It is built once: building calibrates its computation with a clock, and gives another job each time. A
    diagnosis leaves the job as it was, so that the next one begins with the same.
    """
    answers, confidences = [], []
    job = build(plan)
    for _ in range(DIAGNOSES):
        found = tfdiag.diagnose(
            job.model, job.dataset, fit_kwargs=job.fit_kwargs, budget=budget, verify=False
        )
        answers.append(told(found))
        confidences.append(found.verdict.confidence)
    same = len(set(answers)) == 1
    return {"job": plan.name, "answers": answers, "confidences": confidences, "same": same}


def main() -> None:
    """Diagnose all jobs, or the first of them, three times each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=15.0)
    parser.add_argument("--jobs", type=int, default=len(PLANS))
    chosen = parser.parse_args()

    rows = []
    for plan in PLANS[: chosen.jobs]:
        row = one(plan, chosen.budget)
        rows.append(row)
        answers = sorted({" ".join(answer) for answer in row["answers"]})
        print(
            "same  " if row["same"] else "DIFFER",
            f"{plan.name:<34}",
            " | ".join(answers),
            flush=True,
        )
    share = sum(row["same"] for row in rows) / len(rows)
    goal = Goal("share of the jobs with the same answer three times", share, 1.0, above=True)
    report("stability", [goal], rows)


if __name__ == "__main__":
    main()

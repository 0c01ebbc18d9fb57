"""Hold every segment of the step against its known value: within 5 % of the step.

    python -m benchmarks.breakdown [--budget SECONDS] [--only PART_OF_A_NAME]

Jobs of known make-up are diagnosed and record their own truth meanwhile. Compared are the wait for
input, the compute, the time in the callback, the time in validation, and what remains (the host's
loop and dispatch, which only together can be told from outside). An error is a share of the step.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import tfdiag
from benchmarks.jobs import Job, Plan, Truth, build, run_plainly, truth
from benchmarks.stats import Goal, report
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Quantity, value_of
from tfdiag.model.report import Step

WITHIN = 0.05
PLAIN_STEPS = 150
STEPS_MS = (0.5, 4.0, 19.0)
"""Compute of the jobs' steps; with what Keras adds, steps of about 1, 5 and 20 ms."""


def plans() -> list[Plan]:
    """Give all combinations."""
    found = []
    for step in STEPS_MS:
        label = f"{step:g} ms"
        found += [
            Plan(f"plain, {label}", step),
            Plan(f"no overlap, {label}", step, "no overlap", 3 + step),
            Plan(f"prefetch, input slower, {label}", step, "prefetch", 3 + 1.5 * step),
            Plan(f"callback, {label}", step, callback_ms=1 + step / 2),
            Plan(f"validation, {label}", step, epoch=25, validation_batches=10),
        ]
    small, middle, large = STEPS_MS
    found += [
        Plan("prefetch, input faster, 19 ms", large, "prefetch", 8),
        Plan("autotune, input slower, 4 ms", middle, "autotune", 9),
        Plan("autotune, input faster, 19 ms", large, "autotune", 8),
        Plan("generator, 4 ms", middle, "generator", 9),
        Plan("PyDataset, 4 ms", middle, "PyDataset", 9),
        Plan("no overlap and callback, 4 ms", middle, "no overlap", 5, callback_ms=3),
        Plan(
            "all of it, 4 ms",
            middle,
            "prefetch",
            10,
            callback_ms=2,
            epoch=25,
            validation_batches=10,
        ),
        Plan("no overlap and validation, 0.5 ms", small, "no overlap", 3, 0, 10, 2, 25),
    ]
    return found


def dispatch_of(job: Job) -> float:
    """Measure the way from the begin of a step to its first op where there is no wait."""
    plan = job.plan
    still = build(Plan(plan.name, plan.step_ms, callback_ms=plan.callback_ms))
    run_plainly(still, PLAIN_STEPS)
    return truth(still, warmup=30, steps=PLAIN_STEPS - 2, dispatch=0.0).request


def known_step(found: tfdiag.Report) -> Step:
    """Give the step of a report that has one."""
    if isinstance(found.step, Step):
        return found.step
    raise SystemExit(f"the step was not measured: {found.step.reason}")


def measured(found: tfdiag.Report) -> dict[str, float]:
    """Read the same quantities from a report."""
    step = known_step(found)
    parts = {name: value_of(part) for name, part in step.segments.items()}
    items = {item.name: item.per_step.value for item in step.host_items}
    compute = parts["device_compute"] + parts["host_to_device"] + parts["device_to_host"]
    return {
        "step": step.mean_s,
        "input_wait": parts["input_wait"],
        "compute": compute,
        "callback": sum(value for name, value in items.items() if "Burns" in name),
        "validation": sum(value for name, value in items.items() if "validation" in name),
        "rest": parts["host"] + parts["launch"] + parts["unexplained"],
        "unexplained": parts["unexplained"],
        "sum": sum(parts.values()),
    }


def compare(known: Truth, seen: dict[str, float]) -> dict[str, float]:
    """Give the error of each quantity as a share of the step."""
    return {
        name: (seen[name] - getattr(known, name)) / known.step
        for name in ("step", "input_wait", "compute", "callback", "validation", "rest")
    }


def one(plan: Plan, budget: float) -> dict[str, Any]:
    """Diagnose one job, and hold the report against the marks."""
    job = build(plan)
    dispatch = dispatch_of(job)
    found = tfdiag.diagnose(job.model, job.dataset, fit_kwargs=job.fit_kwargs, budget=budget, verify=False)
    live, step = found.measurements.live, known_step(found)
    calls = live.first_call_index + len(live.start_s) if isinstance(live, Live) else 0
    known = truth(
        job,
        warmup=step.warmup_steps,
        steps=calls,
        dispatch=dispatch,
    )
    seen = measured(found)
    return {
        "plan": asdict(plan),
        "verdict": found.verdict.code,
        "truth": {**asdict(known), "rest": known.rest},
        "measured": seen,
        "segments": {
            name: part.value if isinstance(part, Quantity) else None for name, part in step.segments.items()
        },
        "error": compare(known, seen),
        "took_s": found.measurements.overhead.total_s,
    }


def show(row: dict[str, Any]) -> None:
    """Print truth and measurement of a job, in milliseconds."""
    cells = [
        f"{name} {row['truth'][name] * 1e3:.2f}/{row['measured'][name] * 1e3:.2f} ({row['error'][name]:+.1%})"
        for name in row["error"]
    ]
    mark = "ok  " if right(row) else "OFF "
    unexplained = row["measured"]["unexplained"] / row["measured"]["step"]
    print(f"{mark}{row['plan']['name']:<34} {row['verdict']:<14}", *cells, sep="  ", end="")
    print(f"  unexplained {unexplained:.1%}", flush=True)


def right(row: dict[str, Any]) -> bool:
    """Tell whether every segment is near enough to its known value."""
    return all(abs(error) <= WITHIN for error in row["error"].values())


def main() -> None:
    """Run all jobs, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()

    print("truth/measured in ms (error as a share of the step)")
    rows = []
    for plan in plans():
        if chosen.only in plan.name:
            rows.append(one(plan, chosen.budget))
            show(rows[-1])
    goals = [
        Goal(
            "share of the jobs with every segment within 5 % of the step",
            sum(map(right, rows)) / len(rows),
            11 / 12,
            above=True,
        ),
        Goal(
            "largest difference of the segments' sum to the mean step",
            max(abs(row["measured"]["sum"] / row["measured"]["step"] - 1) for row in rows),
            0.01,
        ),
        Goal(
            "largest share that is unexplained",
            max(abs(row["measured"]["unexplained"]) / row["measured"]["step"] for row in rows),
            0.05,
        ),
    ]
    report("breakdown", goals, rows)


if __name__ == "__main__":
    main()

"""Find the planted cause beside the input (Python, callbacks, compilation, metrics, precision) on top.

    python -m benchmarks.step_causes [--budget SECONDS] [--only PART] [--keep]

A job is right when its planted cause is the most costly finding, a healthy one when nothing is found but that
it computes. Where the cost of the cause is known, or measured as the difference to the same job without it,
the finding's cost is held against it: as seconds where it is known, as a share of the step where it is
measured, for the machine may be faster then than in the diagnosis. Each job has a process of its own, and
is run again where the machine is slower behind it than it was at its best (`quiet.py`). With --keep the rows
of the last run stand for the jobs that are not run.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import pkgutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras

import benchmarks.step_jobs
import tfdiag
from benchmarks.input_causes import Watch
from benchmarks.quiet import MACHINE
from benchmarks.stats import Goal, kept, standard_error, well_known, with_earlier
from benchmarks.step_jobs.form import StepJob
from tests.simgpu.build import build
from tests.simgpu.harness import Simgpu
from tfdiag.model.report import Step

COST_WITHIN = 0.10
TWIN_S = 1.5
TIMEOUT_S = 240.0
MARK = "row: "
HARMLESS = {"compute-bound"}
"""What is said of a job that has nothing to mend."""


def jobs() -> Iterator[StepJob]:
    """Give all jobs, of all files."""
    for info in pkgutil.iter_modules(benchmarks.step_jobs.__path__):
        module = importlib.import_module(f"benchmarks.step_jobs.{info.name}")
        for value in vars(module).values():
            if isinstance(value, StepJob):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from (each for each in value if isinstance(each, StepJob))


def one(job: StepJob, budget: float | None) -> dict[str, Any]:
    """Diagnose a job, and hold the report against what is known."""
    row: dict[str, Any] = {"name": job.name, "expected": job.expected, "right": False}
    if not job.planted():
        return {**row, "left_out": True}
    begin = time.perf_counter()
    try:
        model, dataset, options = job.make()
        MACHINE.wait()
        found = tfdiag.diagnose(
            model, dataset, **{"budget": budget or job.budget_s, "verify": False, **options}
        )
    except Exception as error:  # noqa: BLE001  # whatever it is, this job is wrong and the others go on
        return {**row, "error": f"{type(error).__name__}: {error}"[:500]}
    row["took_s"] = time.perf_counter() - begin
    all_found = [finding for finding in found.findings if finding.check not in HARMLESS]
    row["findings"] = {finding.check: finding.cost.value for finding in all_found}
    row["verdict"] = found.verdict.code
    row["undecided"] = dict(found.not_run).get(job.expected, "")
    findings = [finding for finding in all_found if finding.check not in job.beside]
    row["right"] = (
        findings[0].check == job.expected if findings and job.expected else not (findings or job.expected)
    )
    mine = next((finding for finding in findings if finding.check == job.expected), None)
    if mine is None or not isinstance(found.step, Step):
        return row
    if job.twin is not None:
        row["cost"], row["known_to"] = _share_over(job, job.twin)
        row["reported"], row["cost_in"] = mine.cost.value, "share"
    elif job.cost_s:
        row["cost"], row["reported"], row["cost_in"] = job.cost_s, mine.cost.value * found.step.mean_s, "s"
    if "cost" in row:
        row["cost_error"] = row["reported"] / row["cost"] - 1
    return row


def _share_over(job: StepJob, twin: Callable[[], Any]) -> tuple[float, float]:
    """Measure what part of the step the cause is, and its error: with it and without it, by turns.

    Rounds go on until the share is known well enough to hold a diagnosis against it, for some time at most.
    """
    made = {"with": job.make(), "without": twin()}

    def took(*order: str) -> list[float]:
        return [_plain_step(*made[which]) for which in order]

    took("with", "without")  # a warm-up
    shares: list[float] = []
    while not well_known(shares):
        first, second, third, fourth = took("with", "without", "without", "with")
        shares.append(1 - (second + third) / (first + fourth))
    return statistics.median(shares), standard_error(shares)


def _plain_step(model: Any, dataset: Any, options: dict[str, Any]) -> float:
    watch = Watch(TWIN_S)
    kwargs = {"verbose": 0, "epochs": 100_000, **options.get("fit_kwargs", {})}
    model.fit(dataset, **{**kwargs, "callbacks": [*kwargs.get("callbacks", ()), watch]})
    gc.collect()  # its iterator, while it is young
    return watch.step_s()


def in_a_process(job: StepJob, budget: float | None) -> dict[str, Any]:
    """Run a job where neither others nor what it starts are left over."""
    command = [sys.executable, "-m", "benchmarks.step_causes", "--job", job.name]
    if budget is not None:
        command += ["--budget", str(budget)]
    with tempfile.TemporaryDirectory() as folder:
        environment = None
        if job.machine is not None:
            simgpu = Simgpu(build(), Path(folder))
            environment = simgpu.environment(Path(folder), preset=job.machine.preset, knobs=job.machine.knobs)
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, env=environment
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        error = f"its process ended with {done.returncode}"
        return {"name": job.name, "expected": job.expected, "right": False, "error": error}
    row: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    return row


def show(row: dict[str, Any]) -> None:
    """Print what was planted and what was found."""
    print(f"{'ok  ' if row['right'] else 'OFF '}{row['name']}: {row['expected'] or 'healthy'}")
    if "error" in row:
        print(f"      raised {row['error']}", flush=True)
        return
    found = ", ".join(f"{check}:{cost:.2f}" for check, cost in row["findings"].items()) or "nothing"
    cost = ""
    if "cost" in row:
        unit, factor = ("ms", 1e3) if row["cost_in"] == "s" else ("%", 1e2)
        known, seen = row["cost"] * factor, row["reported"] * factor
        error = f" ± {row['known_to'] * factor:.2g}" if "known_to" in row else ""
        cost = (
            f"; cost known {known:.3g}{error} {unit}, reported {seen:.3g} {unit} ({row['cost_error']:+.0%})"
        )
    undecided = f"; {row['expected']}: {row['undecided']}" if row["undecided"] else ""
    print(f"      {row['verdict']}; found {found}{cost}{undecided}; {row['took_s']:.1f} s", flush=True)


def goals_of(rows: list[dict[str, Any]]) -> list[Goal]:
    """Sum up."""
    planted = [row for row in rows if row["expected"]]
    healthy = [row for row in rows if not row["expected"]]
    near = [abs(row["cost_error"]) <= COST_WITHIN for row in planted if "cost_error" in row]
    goals = []
    if planted:
        share = sum(row["right"] for row in planted) / len(planted)
        goals += [
            Goal("jobs with a planted cause", len(planted), 25, above=True),
            Goal("share of the planted causes on top", share, 0.95, above=True),
        ]
    if healthy:
        goals += [
            Goal("healthy jobs that look suspicious", len(healthy), 8, above=True),
            Goal("healthy jobs with a finding", sum(not row["right"] for row in healthy), 0),
        ]
    if near:
        name = "share of the known costs that are reported within 10 %"
        goals.append(Goal(name, sum(near) / len(near), 0.9, above=True))
    return goals


def main() -> None:
    """Run all jobs, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=None, help="instead of each job's own")
    parser.add_argument("--only", default="", help="parts of names, or checks, with | between them")
    parser.add_argument("--keep", action="store_true", help="the last run's rows for all other jobs")
    parser.add_argument("--job", default="", help="only this one, here, and its row as JSON")
    chosen = parser.parse_args()
    if chosen.job:
        keras.utils.set_random_seed(0)
        (job,) = (job for job in jobs() if job.name == chosen.job)
        print(MARK + json.dumps(one(job, chosen.budget)), flush=True)
        return
    rows = []
    for job in jobs():
        if any(part in job.name or part == job.expected for part in chosen.only.split("|")):
            row = MACHINE.timed(functools.partial(in_a_process, job, chosen.budget))
            if row.get("left_out"):
                print(f"left out, for it is no cause on this machine: {job.name}", flush=True)
                continue
            rows.append(row)
            show(row)
    if MACHINE.repeated:
        print(f"jobs run again, for the machine did not keep its speed: {MACHINE.repeated}", flush=True)
    if chosen.keep:
        rows = with_earlier("step_causes", rows, "name")
    sys.exit(not kept("step_causes", goals_of(rows), rows))


if __name__ == "__main__":
    main()

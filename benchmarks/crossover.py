"""Where does a simulated GPU begin to beat the CPU, and is that where `compare_devices` and `diagnose` say?

    python -m benchmarks.crossover [--budget SECONDS] [--only PART_OF_A_NAME]

Knobs of the simulated GPU put the crossing at different places. The truth of a function is its calls on the
CPU, timed by hand, against the GPU's log: from the call to the end of its kernel. That of a training step is
both devices timed by hand, step by step. Each scenario is a process of its own.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.stats import Goal, report
from tests.simgpu import test_comparison, test_step_devices
from tests.simgpu.build import build
from tests.simgpu.harness import Simgpu

WITHIN = 1.5
ROWS = [4 * 2**step for step in range(15)]
BATCHES = [8 * 2**step for step in range(12)]
FUNCTIONS = {f"a matrix product, launches of {us} µs": {"launch_us": us} for us in (100, 400, 1600, 6400)}
STEPS = {f"a training step, launches of {us} µs": {"launch_us": us} for us in (30, 60, 120, 240)}
STEP = (32, 256, 256, 2)
"""Rows, width, units and layers of the job."""


def compared(probe: Any, width: int, grid: list[int], budget: float) -> Any:
    """Compare a function: in the process that has the simulated GPU."""
    from tests.simgpu.test_comparison import compared

    return compared(probe, width, grid, budget)


def diagnosed(probe: Any, job: list[int], grid: list[int], budget: float) -> Any:
    """Diagnose a job: in the process that has the simulated GPU."""
    from tests.simgpu.test_step_devices import diagnosed

    return diagnosed(probe, *job, grid, budget)


def function(simgpu: Simgpu, name: str, knobs: dict[str, float], budget: float) -> dict[str, Any]:
    """Hold `compare_devices` against the log."""
    knobs = {**knobs, "compute": 0, "copy_us": 300}
    run = simgpu(compared, test_comparison.WIDTH, ROWS, budget, preset="slow bus", knobs=knobs, timeout=300)
    rows = run.result["found"]["crossings"][0]["rows"]
    return row(name, rows, test_comparison.true_crossing(run, ROWS), run.result["found"]["total_s"])


def step(simgpu: Simgpu, name: str, knobs: dict[str, float], budget: float) -> dict[str, Any]:
    """Hold the finding of a diagnosis against steps timed by hand."""
    knobs = {**knobs, "compute": 0}
    run = simgpu(
        diagnosed, list(STEP), BATCHES, 3 * budget,
        preset="slow launch", knobs=knobs, env={"TMPDIR": str(own_folder(simgpu))}, timeout=300,
    )  # fmt: skip
    said = run.result
    finding = said["finding"]
    evidence = {each["name"]: each["quantity"] for each in finding["evidence"]} if finding else {}
    rows = evidence.get("batch from which it is faster than the CPU", {"missing": said["text"]})
    return row(name, rows, test_step_devices.true_crossing(said["truth"], BATCHES), said["total"])


def own_folder(simgpu: Simgpu) -> Path:
    """Give temporary files a folder where those of other processes don't show."""
    folder = simgpu.folder / "temporary"
    folder.mkdir(exist_ok=True)
    return folder


def row(name: str, found: dict[str, Any], true: float, took_s: float) -> dict[str, Any]:
    """Give what a scenario came to."""
    value = found.get("value")
    return {
        "scenario": name,
        "true": true,
        "found": value,
        "low": found.get("low"),
        "high": found.get("high"),
        "off": None if value is None else math.exp(abs(math.log(value / true))),
        "missing": found.get("missing"),
        "took_s": took_s,
    }


def show(found: dict[str, Any]) -> None:
    """Print a line of the table."""
    if found["found"] is None:
        print(f"{found['scenario']:<44} {found['true']:10,.0f}  {'not found':>10}", flush=True)
        return
    ends = "".join(f"{'open' if end is None else f'{end:,.0f}':>9}" for end in (found["low"], found["high"]))
    line = f"{found['scenario']:<44} {found['true']:10,.0f}  {found['found']:10,.0f} {ends}"
    print(f"{line}  {found['off']:5.2f}x", flush=True)


def main() -> None:
    """Run all scenarios, or some."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--budget", type=float, default=8.0, help="of compare_devices; three times that of a diagnosis"
    )
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()

    rows = []
    print(f"{'':<44} {'true rows':>10}  {'found':>10}  {'from':>8} {'to':>8}  {'off by':>6}")
    with tempfile.TemporaryDirectory() as folder:
        simgpu = Simgpu(build(), Path(folder))
        for scenarios, run in ((FUNCTIONS, function), (STEPS, step)):
            for name, knobs in scenarios.items():
                if chosen.only in name:
                    rows.append(run(simgpu, name, knobs, chosen.budget))
                    show(rows[-1])
    off = [found["off"] or math.inf for found in rows]
    inside = [
        (found["low"] or 0) <= found["true"] <= (found["high"] or math.inf)
        for found in rows
        if found["found"] is not None
    ]
    goals = [
        Goal("places of the crossing", len(rows), 8, above=True),
        Goal("largest factor by which a crossing was missed", max(off), WITHIN),
        Goal("median factor", statistics.median(off), 1.2),
        Goal("share of crossings within their interval", sum(inside) / max(1, len(inside)), 0.5, above=True),
    ]
    report("crossover", goals, rows)


if __name__ == "__main__":
    main()

"""Hold the step on a simulated GPU against the GPU's own log: each segment within 5 % of the step.

    python -m benchmarks.device [--budget SECONDS] [--seconds SECONDS] [--only PART_OF_A_NAME] [--untraced]

Each scenario is a job on a machine, in a process of its own. It trains undisturbed before and after its
diagnosis, and the log of these runs is the truth: while a kernel runs the time is `device_compute`; a copy
counts where no kernel runs; the idle rest within a call of the train function is `launch` and `input_wait`,
the idle rest between calls, and all of validation, is the host's. Fills and copies within a device count as
kernels, copies between devices as collectives. Of several devices the mean is taken.

With `--untraced` the diagnoses do without a trace: what they estimate of copies and computing then is shown,
and nothing is kept.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.device_jobs import SCENARIOS, Scenario
from benchmarks.stats import Goal, report
from tests.simgpu.build import build
from tests.simgpu.harness import Simgpu
from tests.simgpu.truth import Truth

WITHIN = 0.05
WITHIN_UNTRACED = 0.15
WARM = 5
"""Calls of a run that don't count, at least; and a quarter of them."""
BUSY = ("device_compute", "collective", "host_to_device", "device_to_host")
COMPARED = ("device_compute", "host_to_device", "device_to_host", "launch + input_wait")
WORRYING = ("warning", "critical")
GROUPS = {
    "transfer-bound": ("host_to_device", "device_to_host"),
    "communication-bound": ("collective",),
    "host-bound": ("host",),
    "launch-bound": ("launch + input_wait",),
    "input-bound": ("launch + input_wait",),
}
"""What the truth can tell of the verdicts; `compute-bound` is what none of these is large enough for."""
LARGE = 0.25

Spans = tuple[np.ndarray, np.ndarray]


def diagnosed(probe: Any, name: str, seconds: float, budget: float, trace: bool) -> Any:
    """Run a scenario: in the process that has the simulated GPU."""
    from benchmarks.device_jobs import run

    return run(probe, name, seconds, budget, trace)


# The truth -------------------------------------------------------------------------------------


def inside(spans: Spans, at: np.ndarray) -> np.ndarray:
    """Say of each moment whether it lies in one of the spans, which may overlap."""
    begun = np.searchsorted(np.sort(spans[0]), at, "right")
    over = np.searchsorted(np.sort(spans[1]), at, "right")
    return begun > over


def marked(log: Truth, first: str, last: str, begin: str, end: str) -> Spans:
    """Give the spans between two kinds of marks, within a run."""
    inner = [mark for mark in log.marks if log.moment(first) <= mark[1] < log.moment(last)]
    begins = np.array([time for name, time in inner if name == begin], np.int64)
    ends = np.array([time for name, time in inner if name == end], np.int64)
    return begins[: len(ends)], ends


def window(log: Truth, first: str, last: str) -> tuple[int, int, int]:
    """Give begin and end of the steady part of a run, and its calls: whole epochs where there are several."""
    calls, _ = marked(log, first, last, "call", "done")
    warm = max(WARM, len(calls) // 4)
    epochs, _ = marked(log, first, last, "epoch", "epoch")
    heads = np.searchsorted(calls, epochs)
    heads = heads[(heads >= warm) & (heads < len(calls))]
    if len(heads) >= 2:
        begin, end = int(heads[0]), int(heads[-1])
    else:
        begin, end = warm, len(calls) - 1
    return int(calls[begin]), int(calls[end]), end - begin


def run_truth(log: Truth, first: str, last: str) -> tuple[dict[str, float], int]:
    """Give the nanoseconds of each segment in the steady part of a run, and its calls."""
    begin, end, count = window(log, first, last)
    calls = marked(log, first, last, "call", "done")
    tests = marked(log, first, last, "test", "tested")
    rows = log.where((log.t1 > begin) & (log.t0 < end))
    devices = sorted(set(rows.device[rows.kind == "kernel"].tolist()))
    total = dict.fromkeys((*BUSY, "idle in calls", "host"), 0.0)
    for device in devices:
        own = rows.where(rows.device == device)
        peer = (own.kind == "d2d") & (own.peer >= 0) & (own.peer != own.device)
        kernels = np.isin(own.kind, ("kernel", "memset")) | ((own.kind == "d2d") & ~peer)
        states = (
            ("host", tests),
            ("device_compute", (own.t0[kernels], own.t1[kernels])),
            ("collective", (own.t0[peer], own.t1[peer])),
            ("host_to_device", (own.t0[own.kind == "h2d"], own.t1[own.kind == "h2d"])),
            ("device_to_host", (own.t0[own.kind == "d2h"], own.t1[own.kind == "d2h"])),
            ("idle in calls", calls),
        )
        points = np.concatenate([np.array([begin, end]), *(part for _, spans in states for part in spans)])
        points = np.unique(np.clip(points, begin, end))
        at, lasts = points[:-1], np.diff(points)
        left = np.ones(len(at), bool)
        for name, spans in states:
            here = left & inside(spans, at)
            total[name] += float(lasts[here].sum()) / len(devices)
            left &= ~here
        total["host"] += float(lasts[left].sum()) / len(devices)
    return total, count


def truth_of(log: Truth, steps_per_call: int) -> dict[str, Any]:
    """Give the seconds of each segment per step, from both undisturbed runs."""
    runs = [run_truth(log, "before", "diagnosis"), run_truth(log, "after", "end")]
    steps = sum(count for _, count in runs) * steps_per_call
    total = {name: sum(run[name] for run, _ in runs) * 1e-9 / steps for name in runs[0][0]}
    each = [sum(run.values()) * 1e-9 / count / steps_per_call for run, count in runs]
    undisturbed = [log.between("before", "diagnosis"), log.between("after", "end")]
    rows = sum(len(part) for part in undisturbed)
    overruns = sum(int(part.overrun.sum()) for part in undisturbed)
    return {
        **total,
        "launch + input_wait": total["idle in calls"],
        "step": sum(total.values()),
        "step in each run": each,
        "steps": steps,
        "overrun": overruns / rows,
    }


# The comparison --------------------------------------------------------------------------------


def compare(said: dict[str, Any], truth: dict[str, Any]) -> dict[str, float | None]:
    """Give the error of each segment as a share of the step; None where the report does not know it."""
    values = {name: part.get("value") for name, part in said["segments"].items()}
    known = values["launch"] is not None and values["input_wait"] is not None
    values["launch + input_wait"] = values["launch"] + values["input_wait"] if known else None
    return {
        name: None if values[name] is None else (values[name] - truth[name]) / truth["step"]
        for name in COMPARED
    }


def one(
    simgpu: Simgpu, scenario: Scenario, seconds: float, budget: float, trace: bool = True
) -> dict[str, Any]:
    """Run a scenario and hold the report against the log."""
    found = simgpu(
        diagnosed, scenario.name, seconds, budget, trace,
        preset=scenario.preset, knobs=scenario.knobs, timeout=240,
    )  # fmt: skip
    said = found.result["report"]
    truth = truth_of(found.truth, found.result["steps_per_call"])
    return {
        "scenario": scenario.name,
        "wanted": scenario.verdict,
        "borne out": borne_out(scenario.verdict, truth),
        "others": found.result["others"],
        "healthy": scenario.healthy,
        "verdict": said["verdict"]["code"],
        "truth": truth,
        "step": said["step"]["mean_s"],
        "segments": {name: part.get("value") for name, part in said["step"]["segments"].items()},
        "error": compare(said["step"], truth),
        "findings": [[each["check"], each["severity"]] for each in said["findings"]],
        "text": found.result["text"],
        "trace": found.result["trace"],
    }


def borne_out(wanted: str, truth: dict[str, Any]) -> bool:
    """Tell whether the truth has the verdict that the scenario was made for."""
    shares = {code: sum(truth[name] for name in names) / truth["step"] for code, names in GROUPS.items()}
    largest = max(shares.values())
    return largest < LARGE if wanted == "compute-bound" else shares[wanted] == largest >= LARGE


def right(error: float | None) -> bool:
    """Tell whether a segment is near enough to the truth."""
    return error is not None and abs(error) <= WITHIN


def alarms(row: dict[str, Any]) -> list[str]:
    """Give what a healthy job was warned of."""
    return [check for check, severity in row["findings"] if row["healthy"] and severity in WORRYING]


def show(row: dict[str, Any]) -> None:
    """Print truth and report of a scenario, in shares of the true step."""
    truth, step = row["truth"], row["truth"]["step"]
    mark = "ok  " if all(map(right, row["error"].values())) else "OFF "
    verdict = "" if row["verdict"] == row["wanted"] else f"  WANTED {row['wanted']}"
    print(f"{mark}{row['scenario']}: {row['verdict']}{verdict}, {truth['steps']:,} steps", end="")
    print(f" of {step * 1e3:.2f} ms ({row['step'] / step - 1:+.1%}), overrun {truth['overrun']:.1%}", end="")
    runs = " and ".join(f"{seconds * 1e3:.2f}" for seconds in truth["step in each run"])
    cores = ", ".join(f"{cores:.2f}" for cores in row["others"])
    print(f"; before and after: {runs} ms; cores that others took: {cores}")
    if not row["borne out"]:
        print("      the truth has not the verdict that the scenario was made for")
    for name in COMPARED:
        error = row["error"][name]
        seen = "not known" if error is None else f"{error:+.1%}{'' if right(error) else '  <--'}"
        print(f"      {name:<20} {truth[name] / step:6.1%}  {seen}")
    others = {name: truth[name] / step for name in ("host", "collective")}
    parts = {name: (value or 0.0) / step for name, value in row["segments"].items()}
    told = ", ".join(f"{name} {parts[name]:.1%}" for name in ("launch", "input_wait", "host", "unexplained"))
    print(f"      truth: host {others['host']:.1%}, collective {others['collective']:.1%}; report: {told}")
    if alarms(row):
        print(f"      FALSE ALARM: {', '.join(alarms(row))}")
    print(end="", flush=True)


def show_untraced(rows: list[dict[str, Any]]) -> None:
    """Say how near estimates come: of all that was told, and of how much."""
    for name in ("host_to_device", "device_compute"):
        told = [row["error"][name] for row in rows if row["error"][name] is not None]
        near = sum(abs(error) <= WITHIN_UNTRACED for error in told)
        print(f"{name}: told in {len(told)} of {len(rows)}, {near} within {WITHIN_UNTRACED:.0%} of the step")


def main() -> None:
    """Run all scenarios, or some."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each undisturbed run")
    parser.add_argument("--only", default="")
    parser.add_argument("--text", action="store_true", help="print the reports")
    parser.add_argument("--untraced", action="store_true", help="do without a trace, and keep no results")
    chosen = parser.parse_args()

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        simgpu = Simgpu(build(), Path(folder))
        for scenario in SCENARIOS:
            if chosen.only in scenario.name:
                rows.append(one(simgpu, scenario, chosen.seconds, chosen.budget, not chosen.untraced))
                show(rows[-1])
                if chosen.text:
                    print(rows[-1]["text"], rows[-1]["trace"], sep="\n")
    if chosen.untraced:
        show_untraced(rows)
        return
    pairs = [error for row in rows for error in row["error"].values()]
    wrong = [row["scenario"] for row in rows if row["verdict"] != row["wanted"]]
    false = [f"{row['scenario']}: {check}" for row in rows for check in alarms(row)]
    for label, names in (("wrong verdicts", wrong), ("false alarms", false)):
        if names:
            print(f"{label}: {', '.join(names)}")
    goals = [
        Goal("scenarios on the simulated GPU", len(rows), 16, above=True),
        Goal(
            "share of (scenario, segment) pairs within 5 % of the step",
            sum(map(right, pairs)) / len(pairs), 0.9, above=True,
        ),
        Goal("share of the verdicts that are right", 1 - len(wrong) / len(rows), 1.0, above=True),
        Goal("warnings on jobs with nothing wrong", len(false), 0),
    ]  # fmt: skip
    for row in rows:
        del row["text"], row["trace"]
    report("device", goals, rows)


if __name__ == "__main__":
    main()

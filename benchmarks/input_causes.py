"""Find the planted cause of slow input on top, claim nothing about healthy input, and cost the bottleneck.

    python -m benchmarks.input_causes [--budget SECONDS] [--only PART] [--gains SECONDS] [--trials] [--keep]
                                      [--plain]

With --keep the rows of the last run stand for the jobs that are not run. With --plain nothing is diagnosed:
each job runs with and without its input, to see that what is planted is there. Jobs on slow storage need a
C compiler (`inputs/pauses.py`), and are left out without one.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdiag
from benchmarks.inputs import pauses
from benchmarks.inputs.suite import CHECKS, Case, Cost, Work, cases
from benchmarks.quiet import MACHINE
from benchmarks.stats import Goal, kept, with_earlier
from tests.traces_left import leaves_no_trace
from tfdiag.analyse.analysis import analyse
from tfdiag.checks import facts
from tfdiag.checks.registry import Undecided
from tfdiag.model.pipeline import PyInput
from tfdiag.model.quantity import Missing, Quantity, value_of

COST_WITHIN = 0.10
PLAIN_S = 4.0
REPLAY_S = 1.5
ALONE_S = 1.0
EPOCHS_LEAST = 6
"""Of short epochs, so that one that stalls at its end is not the typical one …"""
LONGER_MOST = 4.0
"""… and how much longer a run may take for them."""
SAMPLING = "sampling the stages of the input"
MUST_WAIT = 0.30
MAY_WAIT = 0.03


def reported_bottleneck(found: tfdiag.Report) -> tuple[str, float] | None:
    """Give the slowest stage's label and its seconds per batch."""
    measured = found.measurements.pipeline
    if not isinstance(measured, Missing) and isinstance(measured.py_input, PyInput):
        return "__getitem__", statistics.median(measured.py_input.item_s)
    try:
        slow = facts.bottleneck(analyse(found.measurements))
    except Undecided:
        return None
    return slow.stage.label or slow.stage.name, slow.stage.per_batch_s


def wait_share(found: tfdiag.Report) -> float | None:
    """Give the share of the step that waits for input."""
    if isinstance(found.step, Missing):
        return None
    waited = found.step.segments["input_wait"]
    return value_of(waited) / found.step.mean_s if isinstance(waited, Quantity) else None


def right_cause(case: Case, findings: list[str]) -> bool:
    """Hold the input findings, most costly first, against what was planted."""
    if case.plant is None:
        return not findings
    return bool(findings) and findings[0] in {case.plant, *case.accept}


class Truth:
    """What the bottleneck costs while the diagnosis samples it: a machine changes its speed within seconds.

    It is asked right before the stages are sampled and right after, which `progress` tells; where they are
    not, before the diagnosis and after.
    """

    def __init__(self, ask: Cost | None) -> None:
        """Ask for the first time."""
        self._ask = ask
        self._outside = [ask()] if ask else []
        self._around: list[float] = []

    def heard(self, said: str) -> None:
        """Ask again where stages are sampled: before, and when something else begins."""
        if self._ask and (said == SAMPLING or len(self._around) == 1):
            self._around.append(self._ask())

    def cost_s(self) -> float | None:
        """Give the seconds of a batch, None where nobody knows."""
        if self._ask is None:
            return None
        if len(self._around) < 2:
            self._around.append(self._ask())
        looks = self._around if len(self._around) > 1 else [*self._outside, *self._around]
        # What jobs count themselves is 0 before they have run.
        known = [look for look in looks if look > 0]
        return statistics.fmean(known) if known else None


After = Callable[[Case, Work, tfdiag.Report], None]
"""What else is done with a job that was diagnosed."""


def diagnosed(case: Case, budget: float, after: After | None, *, verify: bool) -> dict[str, Any]:
    """Build a job, diagnose it, and hold the report against what is known."""
    work = case.build()
    truth = Truth(work.cost)
    MACHINE.wait()
    begin = time.perf_counter()
    with leaves_no_trace(work.model, dataset=work.dataset):
        found = tfdiag.diagnose(
            work.model, work.dataset, fit_kwargs=work.kwargs, budget=budget, verify=verify,
            progress=truth.heard,
        )  # fmt: skip
    took = time.perf_counter() - begin
    of_input = [finding.check for finding in found.findings if finding.check in CHECKS]
    slowest = reported_bottleneck(found)
    cost = truth.cost_s()
    if after is not None:
        after(case, work, found)
    return {
        "verdict": found.verdict.code,
        "wait_share": wait_share(found),
        "findings": {finding.check: finding.cost.value for finding in found.findings},
        "top": of_input[0] if of_input else None,
        "right": right_cause(case, of_input),
        "stage": slowest[0] if slowest else None,
        "stage_right": bool(slowest) and any(part.lower() in slowest[0].lower() for part in case.where),
        "cost_s": cost,
        "reported_s": slowest[1] if slowest else None,
        "cost_error": slowest[1] / cost - 1 if slowest and cost else None,
        "took_s": took,
    }


def one(case: Case, budget: float, after: After | None = None, *, verify: bool = False) -> dict[str, Any]:
    """Diagnose a job; one that raises, or is not as it was, is wrong."""
    row: dict[str, Any] = {"name": case.name, "plant": case.plant, "right": False}
    begin = time.perf_counter()
    try:
        row |= diagnosed(case, budget, after, verify=verify)
    except Exception as error:  # noqa: BLE001  # whatever it is, this job is wrong and the others go on
        row["error"] = f"{type(error).__name__}: {error}"[:500]
    row["whole_s"] = time.perf_counter() - begin
    _forget()
    return row


def _forget() -> None:
    keras.backend.clear_session()
    gc.collect()


def show(row: dict[str, Any]) -> None:
    """Print what was planted and what was found."""
    mark = "ok  " if row["right"] else "OFF "
    print(f"{mark}{row['name']}: {row['plant'] or 'healthy'}")
    if "error" in row:
        print(f"      raised {row['error']}", flush=True)
        return
    found = ", ".join(f"{check}:{cost:.2f}" for check, cost in row["findings"].items()) or "nothing"
    share = "unknown" if row["wait_share"] is None else f"{row['wait_share']:.0%}"
    print(f"      {row['verdict']}, waits {share}, top {row['top']}; found {found}; {row['took_s']:.1f} s")
    if row["plant"] is not None:
        known = "unknown" if row["cost_s"] is None else f"{row['cost_s'] * 1e3:.2f} ms"
        seen = "nothing" if row["reported_s"] is None else f"{row['reported_s'] * 1e3:.2f} ms"
        error = "" if row["cost_error"] is None else f" ({row['cost_error']:+.1%})"
        stage = "" if row["stage_right"] else "  WRONG STAGE"
        print(f"      bottleneck {row['stage']}: known {known}, reported {seen}{error}{stage}")
    print(end="", flush=True)


def goals_of(rows: list[dict[str, Any]]) -> list[Goal]:
    """Sum up."""
    with_plant = [row for row in rows if row["plant"] is not None]
    without = [row for row in rows if row["plant"] is None]
    costed = [row for row in with_plant if row.get("cost_s")]
    near = [
        row["stage_right"] and row["cost_error"] is not None and abs(row["cost_error"]) <= COST_WITHIN
        for row in costed
    ]
    goals = []
    if with_plant:
        share = sum(row["right"] for row in with_plant) / len(with_plant)
        goals.append(Goal("share of the planted causes on top", share, 0.95, above=True))
    if without:
        goals.append(Goal("healthy jobs with a finding", sum(not row["right"] for row in without), 0))
    if near:
        name = "share of the known bottlenecks named, with a cost within 10 %"
        goals.append(Goal(name, sum(near) / len(near), 0.9, above=True))
    return goals


# Without a diagnosis -------------------------------------------------------------------------


class Watch(keras.callbacks.Callback):
    """Notes when steps and epochs begin, and ends the run after a time; short epochs are several."""

    async_safe = True

    def __init__(self, seconds: float) -> None:
        """Keep how long."""
        super().__init__()
        self.begins: list[float] = []
        self.epochs: list[int] = []
        self._seconds = seconds

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the first step of an epoch."""
        self.epochs.append(len(self.begins))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Note a step."""
        self.begins.append(time.perf_counter())
        took = self.begins[-1] - self.begins[0]
        short = 1 < len(self.epochs) <= EPOCHS_LEAST
        if took > self._seconds * (LONGER_MOST if short else 1.0):
            self.model.stop_training = True

    def step_s(self) -> float:
        """Give the mean of the steady steps; where there are whole epochs, that of the typical one.

        The end of an epoch may stall for as long as the epoch took, at random, whatever the pipeline:
        tf.data's tuning thread misses that it was told to end.
        """
        edges = [edge for edge in self.epochs[1:] if edge < len(self.begins)]
        if len(edges) > 1:
            edges = edges[len(edges) // 2 if len(edges) > 2 * EPOCHS_LEAST else len(edges) // 3 :]
        else:
            edges = [len(self.begins) // 2, len(self.begins) - 1]
        steps = np.diff(edges)
        return float(np.median(np.diff(np.asarray(self.begins)[edges])[steps > 0] / steps[steps > 0]))


def plain_step(work: Work, dataset: Any, seconds: float, **kwargs: Any) -> float:
    """Run `fit` for a time, and give the step."""
    watch = Watch(seconds)
    work.model.fit(dataset, **{**work.kwargs, **kwargs, "callbacks": [watch]})
    # Its iterator stands in circles. While it is young that ends at once; an old one waits for its tuning
    # thread, which sleeps for as long as the iterator is old.
    gc.collect()
    return watch.step_s()


def alone_s(dataset: Any, seconds: float) -> float:
    """Give what a batch of the input takes without a model, once it has begun."""
    batches = iter(dataset)
    count = itertools.count()
    next(batches)
    begin = time.perf_counter()
    for _ in batches:
        done = next(count) + 1
        took = time.perf_counter() - begin
        if took > seconds:
            break
    return took / done


def first_batch(dataset: Any) -> Any:
    """Take one batch of whatever the input is."""
    if isinstance(dataset, tf.data.Dataset):
        return next(iter(dataset))
    if isinstance(dataset, keras.utils.PyDataset):
        return dataset[0]
    return next(dataset)


def plainly(case: Case, seconds: float) -> None:
    """Run a job with and without its input, and print what the input costs."""
    begin = time.perf_counter()
    try:
        work = case.build()
        batch = tf.nest.map_structure(tf.constant, first_batch(work.dataset))
        step = plain_step(work, work.dataset, seconds)
        again = tf.data.Dataset.from_tensors(batch).repeat().prefetch(2)
        without = plain_step(work, again, REPLAY_S, epochs=1, steps_per_epoch=None)
        alone = alone_s(work.dataset, ALONE_S) if isinstance(work.dataset, tf.data.Dataset) else None
    except Exception as error:  # noqa: BLE001  # shown, and the others go on
        print(f"OFF {case.name}: raised {type(error).__name__}: {error}"[:500], flush=True)
        return
    wait = 1 - without / step
    fine = wait < MAY_WAIT if case.plant is None else wait >= MUST_WAIT
    cost = f", known {work.cost() * 1e3:.2f} ms" if work.cost else ""
    cost += "" if alone is None else f", input alone {alone * 1e3:.2f} ms"
    took = time.perf_counter() - begin
    print(
        f"{'ok  ' if fine else 'OFF '}{case.plant or 'healthy':<24} {case.name:<62}"
        f" step {step * 1e3:6.2f} ms, without input {without * 1e3:6.2f} ms, waits {wait:5.1%}{cost}"
        f"  [{took:.1f} s]",
        flush=True,
    )


def chosen_cases(only: str) -> Iterator[Case]:
    """Give the jobs whose name or planted id contains a text, and that can run here."""
    for case in cases():
        if any(part in case.name or part in (case.plant or "healthy") for part in only.split("|")):
            if case.needs_pauses and not pauses.available():
                print(f"left out without a C compiler: {case.name}")
            else:
                yield case


def main() -> None:
    """Run all jobs, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=9.0, help="keeps the whole run below 12 minutes")
    parser.add_argument("--only", default="", help="parts of names, or checks, with | between them")
    parser.add_argument("--gains", type=float, metavar="SECONDS", help="see input_gains, on the same reports")
    parser.add_argument(
        "--trials", action="store_true", help="see trials, on the same reports; needs --gains"
    )
    parser.add_argument("--keep", action="store_true", help="the last run's rows for all other jobs")
    parser.add_argument("--plain", action="store_true", help="run the jobs with and without their input")
    parser.add_argument("--seconds", type=float, default=PLAIN_S, help="of each plain run")
    chosen = parser.parse_args()
    pauses.preload()

    keras.utils.set_random_seed(0)
    if chosen.plain:
        for case in chosen_cases(chosen.only):
            plainly(case, chosen.seconds)
            _forget()
        return
    if chosen.trials and not chosen.gains:
        parser.error("--trials needs --gains")
    rows, gains, tried = [], [], []
    after: After | None = None
    if chosen.gains:
        from benchmarks import input_gains, trials  # which import from here

        def after(case: Case, work: Work, found: tfdiag.Report) -> None:
            pairs = input_gains.pairs_of(case, work, found, chosen.gains)
            gains.extend(pairs)
            if chosen.trials:
                tried.append(trials.row_of(case, found, pairs))
                trials.show(tried[-1])

    for case in chosen_cases(chosen.only):
        rows.append(one(case, chosen.budget, after, verify=chosen.trials))
        show(rows[-1])
    if chosen.keep:
        rows = with_earlier("input_causes", rows, "name")
        gains = with_earlier("input_gains", gains, "job")
        tried = with_earlier("trials", tried, "job")
    met = [kept("input_causes", goals_of(rows), rows)]
    if chosen.gains:
        met.append(input_gains.sum_up(gains))
    if chosen.trials:
        met.append(trials.sum_up(tried, rows))
    sys.exit(not all(met))


if __name__ == "__main__":
    main()

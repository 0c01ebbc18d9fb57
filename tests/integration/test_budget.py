"""`diagnose` returns within its budget, with what it has, and says what it did not get to."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfdiag
from tests.integration import jobs
from tests.integration.expectations import survives_json
from tests.traces_left import leaves_no_trace
from tfdiag.model.measurements import Live

BUDGET_S = 5.0
SLACK = 1.1
"""The promise of the issue: the budget and ten percent."""


def timed(model: Any, dataset: Any, *, budget: float, **kwargs: Any) -> tuple[tfdiag.Report, float]:
    """Diagnose, and say how long it took."""
    diagnose = tfdiag.diagnose  # imports it, which is not the job's time
    begin = time.perf_counter()
    report = diagnose(model, dataset, budget=budget, **kwargs)
    return report, time.perf_counter() - begin


def _kinds() -> dict[str, Any]:
    x, y = jobs.arrays(32 * 64)
    return {
        "fast": lambda: (jobs.batches(None), {}),
        "finite": lambda: (jobs.batches(20), {}),
        "slow": lambda: (jobs.slow(jobs.batches(None), 0.1), {}),
        "very slow": lambda: (jobs.slow(jobs.batches(None), 0.8), {}),
        "arrays": lambda: (x, {"y": y, "fit_kwargs": {"epochs": 1000}}),
        "PyDataset": lambda: (jobs.SlowBatches(None), {}),
        "generator": lambda: (jobs.CountedGenerator().generator, {}),
        "long validation": lambda: (
            jobs.batches(20),
            {"fit_kwargs": {"validation_data": jobs.slow(jobs.batches(1000)), "epochs": 9}},
        ),
    }


@pytest.mark.parametrize("name", _kinds())
def test_budget_is_kept(name: str) -> None:
    """Every kind of input is diagnosed within the budget and ten percent."""
    model = jobs.tiny_model()
    dataset, kwargs = _kinds()[name]()

    with leaves_no_trace(model):
        report, took = timed(model, dataset, budget=BUDGET_S, **kwargs)

    assert took <= BUDGET_S * SLACK
    assert report.measurements.overhead.total_s == pytest.approx(took, rel=0.1, abs=0.2)
    survives_json(report)


def test_step_that_takes_longer_than_the_budget() -> None:
    """A step that outlasts the budget: the diagnosis ends in time and says so."""
    gate = threading.Event()
    model = jobs.watched_model(lambda: gate.wait(20.0))
    dataset = jobs.batches(20)

    with leaves_no_trace(model, dataset=dataset):
        try:
            report, took = timed(model, dataset, budget=2.0)
        finally:
            gate.set()  # the step that was given up ends now, and must not be felt any more

    assert took <= 2.0 * SLACK
    assert report.verdict.code == "inconclusive"
    assert any("budget" in text for text in (*report.verdict.missing, *report.warnings))


def test_steps_that_each_take_most_of_the_budget() -> None:
    """Steps of which only one or two fit are reported with low confidence or none."""
    model = jobs.watched_model(lambda: time.sleep(1.5))
    dataset = jobs.batches(20)

    with leaves_no_trace(model, dataset=dataset):
        report, took = timed(model, dataset, budget=4.0)

    assert took <= 4.0 * SLACK
    assert report.verdict.code in {"inconclusive", "compute-bound", "launch-bound"}
    assert report.verdict.confidence < 0.9
    survives_json(report)


def test_a_first_step_that_takes_half_of_the_budget() -> None:
    """What tracing takes is not taken from the time in which steps are seen."""
    calls = itertools.count()
    model = jobs.watched_model(lambda: time.sleep(4.0 if next(calls) == 0 else 0.0))

    report, took = timed(model, jobs.batches(None), budget=8.0, verify=False)

    assert took <= 8.0 * SLACK
    assert isinstance(report.measurements.live, Live)
    assert len(report.measurements.live.start_s) > 50


def test_input_that_blocks() -> None:
    """An input that never gives its next batch does not hold the diagnosis."""
    gate = threading.Event()
    x, y = jobs.arrays()

    def blocking() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for index in itertools.count():
            if index == 10:
                gate.wait(20.0)
            yield x[: jobs.BATCH], y[: jobs.BATCH]

    model = jobs.tiny_model()
    with leaves_no_trace(model):
        try:
            report, took = timed(model, blocking(), budget=3.0)
        finally:
            gate.set()

    assert took <= 3.0 * SLACK
    assert any(
        "budget" in text
        for text in (*report.verdict.missing, *report.warnings, *report.measurements.job.notes)
    )


def test_budget_shorter_than_tracing() -> None:
    """A budget in which nothing can be traced gives an inconclusive report, not an error."""
    model, dataset = jobs.tiny_model(), jobs.batches(20)

    with leaves_no_trace(model, dataset=dataset):
        report, _ = timed(model, dataset, budget=0.05)

    assert report.verdict.code == "inconclusive"
    assert report.verdict.missing
    survives_json(report)


def test_asked_number_of_steps() -> None:
    """`steps` says how many steps of the live run are wanted."""
    model, dataset = jobs.tiny_model(), jobs.batches(None)

    report = tfdiag.diagnose(model, dataset, budget=30.0, steps=40, verify=False)

    live = report.measurements.live
    assert 40 <= len(live.duration_s) * live.steps_per_call <= 400
    assert report.measurements.overhead.total_s < 20.0

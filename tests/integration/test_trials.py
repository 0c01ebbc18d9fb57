"""Suggestions tried on real jobs: confirmed where the change helps, refuted where it does not, no trace left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfdiag
from tests.integration import jobs
from tests.traces_left import leaves_no_trace
from tfdiag import diagnosis
from tfdiag.analyse.analysis import Analysis, analyse
from tfdiag.collect.collect import collect
from tfdiag.collect.opening import opened
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Suggestion
from tfdiag.model.trials import Trials
from tfdiag.monitor.callback import DiagnosticsCallback
from tfdiag.trials import engine
from tfdiag.trials.engine import try_suggestions

BUDGET_S = 14.0


def waiting(seconds: float = 0.008) -> tf.data.Dataset:
    """Give batches of which each waits in a serial map, as for a slow disk: threads overlap it."""

    def wait(x: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return x

    def delayed(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.ensure_shape(tf.numpy_function(wait, [x], x.dtype), x.shape), y

    return jobs.batches(None).map(delayed)


def request_of(model: Any, dataset: Any, budget: float) -> Any:
    """Give what `diagnose` makes of its arguments."""
    return diagnosis._checked(model, dataset, None, None, {}, None, budget, None)


def tried(
    model: Any, dataset: Any, budget: float, suggest: Callable[[Analysis], list[Suggestion]]
) -> Trials:
    """Measure a job, and try suggestions of our own."""
    with opened(request_of(model, dataset, budget)) as session:
        analysis = analyse(collect(session, DiagnosticsCallback.recording))
        return try_suggestions(session, analysis, suggest(analysis), DiagnosticsCallback.recording)


def suggestion(name: str, *edits: Edit, gain: float = 2.0) -> Suggestion:
    """Give a suggestion that promises a gain."""
    return Suggestion(name, name.split("/")[0], "", "", Quantity(gain, "x", 0.8 * gain, 1.2 * gain), edits=edits)


def test_a_fix_is_tried_and_confirmed():
    """A serial map that waits is run in parallel: the gain was measured, with an interval, and nothing is left."""
    model, dataset = jobs.tiny_model(), waiting()
    with leaves_no_trace(model, dataset=dataset):
        report = tfdiag.diagnose(model, dataset, budget=BUDGET_S)
    (found,) = [one for one in report.suggestions if one.id.endswith("/parallel-map")]
    assert found.status == "confirmed", found
    assert isinstance(found.measured, Quantity)
    assert found.measured.low is not None
    assert found.measured.high is not None
    assert 1.4 < found.measured.value < 2.6
    assert found.measured.low > 1.0
    assert report.suggestions[0].status == "confirmed"
    trials = report.measurements.trials
    assert isinstance(trials.noise, Quantity)
    assert "confirmed" in str(report)
    assert report.measurements.overhead.phases_s["trials"] > 0
    assert report.measurements.overhead.total_s <= 1.1 * BUDGET_S
    assert tfdiag.Report.from_dict(report.to_dict()) == report


def test_what_gives_nothing_is_refuted_and_what_fails_is_said():
    """A second prefetch gains nothing; a change that gives other elements or can't be made is not tried."""
    dataset = waiting().prefetch(4)
    model = jobs.tiny_model()
    with leaves_no_trace(model, dataset=dataset):
        trials = tried(
            model,
            dataset,
            BUDGET_S,
            lambda _: [
                suggestion("a/prefetch", Edit("prefetch"), gain=3.0),
                suggestion("b/nowhere", Edit("parallel", 99)),
                suggestion("c/advice"),
            ],
        )
    status = {trial.suggestion: trial for trial in trials.trials}
    assert status["a/prefetch"].status == "refuted"
    assert len(status["a/prefetch"].before_s) == len(status["a/prefetch"].after_s) >= 3
    assert status["b/nowhere"].status == "untried"
    assert "99" in status["b/nowhere"].reason
    assert "c/advice" not in status


def test_verify_false_tries_nothing():
    """And says so in each suggestion."""
    report = tfdiag.diagnose(jobs.tiny_model(), waiting(), budget=6.0, verify=False)
    assert report.measurements.trials.missing == "not tried: verify=False"
    assert all(one.status == "untried" for one in report.suggestions)
    assert "trials" not in report.measurements.overhead.phases_s


def test_ctrl_c_ends_the_trials_and_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch):
    """What was measured before is in the report, and the job is as it was."""
    real, turns = engine.Lane.turn, []

    def interrupted(self: Any, seconds: float, until: float) -> Any:
        turns.append(seconds)
        if len(turns) == 12:
            raise KeyboardInterrupt
        return real(self, seconds, until)

    monkeypatch.setattr(engine.Lane, "turn", interrupted)
    model, dataset = jobs.tiny_model(), waiting()
    with leaves_no_trace(model, dataset=dataset):
        report = tfdiag.diagnose(model, dataset, budget=BUDGET_S)
    assert isinstance(report.measurements.trials.noise, Quantity)
    assert any("Ctrl-C" in text for text in report.warnings)
    assert report.verdict.code == "input-bound"


def test_an_input_that_can_be_read_once_is_not_tried():
    """Nothing more is taken from it than was used."""
    counted = jobs.CountedGenerator()
    report = tfdiag.diagnose(jobs.tiny_model(), counted.generator, budget=8.0)
    assert counted.taken == report.measurements.job.batches_used
    assert all(one.status == "untried" for one in report.suggestions)


@pytest.mark.parametrize("kind", ["PyDataset", "own loop"])
def test_other_jobs_run_by_turns_as_well(kind: str):
    """The job against itself: no gain is claimed."""
    model = jobs.tiny_model()
    if kind == "PyDataset":
        dataset: Any = jobs.SlowBatches(50)
        edit = Edit("workers", value=1)
    else:
        dataset, edit = waiting(), Edit("prefetch", value=1)
    request = request_of(model, dataset, 10.0)
    if kind == "own loop":
        request = replace(request, train_step=lambda batch: model.train_on_batch(*batch))
    with leaves_no_trace(model, dataset=dataset), opened(request) as session:
        analysis = analyse(collect(session, DiagnosticsCallback.recording))
        trials = try_suggestions(
            session, analysis, [suggestion("a/b", edit)], DiagnosticsCallback.recording
        )
    assert trials.missing == ""
    (trial,) = trials.trials
    assert trial.status in ("refuted", "untried", "confirmed" if kind == "own loop" else "refuted")

"""Suggestions tried on real jobs: confirmed where the change helps, refuted where it does not."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdiag
from tests.integration import jobs
from tests.pace import enough
from tests.traces_left import leaves_no_trace
from tfdiag import diagnosis
from tfdiag.analyse.analysis import Analysis, analyse
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.collect.collect import collect
from tfdiag.collect.opening import opened
from tfdiag.model.changes import Change
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Suggestion
from tfdiag.model.trials import Trial
from tfdiag.monitor.callback import DiagnosticsCallback
from tfdiag.trials import engine
from tfdiag.trials.engine import try_suggestions

BUDGET_S = 24.0
TRIALS_S = 15.0


def waiting(seconds: float = 0.008) -> tf.data.Dataset:
    """Give batches of which each waits in a serial map, as for a slow disk: threads overlap it."""

    def wait(x: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return x

    def delayed(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.ensure_shape(tf.numpy_function(wait, [x], x.dtype), x.shape), y

    return tf.data.Dataset.from_tensor_slices(jobs.arrays()).batch(jobs.BATCH).repeat().map(delayed)


def request_of(model: Any, dataset: Any, budget: float) -> Any:
    """Give what `diagnose` makes of its arguments."""
    return diagnosis._checked(model, dataset, None, None, {}, None, budget, None)


def measured(model: Any, dataset: Any, **options: Any) -> Analysis:
    """Measure a job in little time."""
    with opened(replace(request_of(model, dataset, enough(6.0)), **options)) as session:
        return analyse(collect(session, DiagnosticsCallback.recording))


def tried(
    model: Any, dataset: Any, analysis: Analysis, *suggestions: Suggestion, **options: Any
) -> dict[str, Trial]:
    """Try suggestions of our own; nothing of it is left."""
    with (
        leaves_no_trace(model, dataset=dataset),
        opened(replace(request_of(model, dataset, enough(TRIALS_S)), **options)) as session,
    ):
        found, _ = try_suggestions(session, analysis, suggestions, DiagnosticsCallback.recording)
    assert found.missing == ""
    assert isinstance(found.noise, Quantity)
    return {trial.suggestion: trial for trial in found.trials}


def suggestion(name: str, *edits: Edit, gain: float = 2.0, changes: tuple[Change, ...] = ()) -> Suggestion:
    """Give a suggestion that promises a gain."""
    promise = Quantity(gain, "x", 0.8 * gain, 1.2 * gain)
    return Suggestion(name, name.partition("/")[0], "", "", promise, edits=edits, changes=changes)


@pytest.fixture(scope="module")
def job() -> tuple[Any, Any, Analysis]:
    """Give a job that waits for its input, with what was measured of it."""
    model, dataset = jobs.tiny_model(), waiting()
    return model, dataset, measured(model, dataset)


def test_a_fix_is_tried_and_confirmed():
    """A serial map that waits is run in parallel: its gain is measured, and nothing is left behind."""
    model, dataset, budget = jobs.tiny_model(), waiting(), enough(BUDGET_S)
    with leaves_no_trace(model, dataset=dataset):
        report = tfdiag.diagnose(model, dataset, budget=budget, steps=100)
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
    assert report.measurements.overhead.total_s <= 1.1 * budget
    assert tfdiag.Report.from_dict(report.to_dict()) == report


def test_what_gives_nothing_is_refuted_and_what_fails_is_said(job: tuple[Any, Any, Analysis]):
    """A second prefetch gains nothing; a change that can't be made is not tried, and advice is not either."""
    found = tried(
        *job,
        suggestion("a/prefetch", Edit("prefetch"), gain=3.0),
        suggestion("b/nowhere", Edit("parallel", 99)),
        suggestion("c/advice"),
    )
    assert found["a/prefetch"].status == "refuted", found["a/prefetch"]
    assert "measured" in found["a/prefetch"].reason
    assert len(found["a/prefetch"].before_s) == len(found["a/prefetch"].after_s) >= 3
    assert found["b/nowhere"].status == "untried"
    assert "99" in found["b/nowhere"].reason
    assert "c/advice" not in found


def test_what_helps_alone_is_tried_together(job: tuple[Any, Any, Analysis]):
    """A parallel map and a larger batch each help alone; what one adds to the other is measured."""
    model, dataset, analysis = job
    assert isinstance(analysis.pipeline, PipelineModel)
    (stage,) = (stage.id for stage in analysis.pipeline.stages if stage.label.startswith("map"))
    singles = [
        suggestion("a/parallel", Edit("parallel", stage)),
        suggestion("b/rows", changes=(Change("batch_size", 2 * jobs.BATCH),)),
    ]
    with opened(request_of(model, dataset, enough(2 * TRIALS_S))) as session:
        found, added = try_suggestions(session, analysis, singles, DiagnosticsCallback.recording)
    trials = {trial.suggestion: trial for trial in found.trials}
    assert {trials[one.id].status for one in singles} == {"confirmed"}, trials
    (both,) = added
    assert both.edits == singles[0].edits
    assert both.changes == singles[1].changes
    assert trials[both.id].status == "confirmed", trials[both.id]
    on_top = trials[both.id].on_top
    assert isinstance(on_top, Quantity)
    assert 1.3 < on_top.value < 2.8


def test_a_metric_that_can_not_be_copied_is_said(job: tuple[Any, Any, Analysis]):
    """Whatever the caller's own classes raise while a copy is made ends that trial, and nothing else."""
    _, dataset, analysis = job

    class Odd(keras.metrics.MeanAbsoluteError):
        """A metric that does not tell how it is made."""

        def get_config(self) -> Any:
            """Refuse."""
            raise ZeroDivisionError("no config")

    model = jobs.tiny_model(metrics=["mse", Odd(name="odd")])
    found = tried(
        model,
        dataset,
        analysis,
        suggestion("a/metrics", changes=(Change("without_metrics", target="mse"),)),
    )
    assert found["a/metrics"].status == "untried"
    assert "no config" in found["a/metrics"].reason


def test_changes_of_the_model_are_taken_back(job: tuple[Any, Any, Analysis]):
    """Steps in a call, a larger batch, no metrics, a policy: each runs, and nothing of it is left."""
    found = tried(
        *job,
        suggestion("a/callback", changes=(Change("without_callback", target="Mine"),)),
        suggestion("a/steps", changes=(Change("steps_per_execution", 4), Change("without_metrics"))),
        suggestion("a/rows", changes=(Change("batch_size", 16), Change("policy", "mixed_bfloat16"))),
    )
    assert "callbacks" in found["a/callback"].reason
    assert found["a/steps"].before_s, found
    assert found["a/rows"].before_s, found
    rows = found["a/rows"].measured
    assert isinstance(rows, Quantity)
    assert rows.value == pytest.approx(2.0, rel=0.3)  # a batch waits as long, however many rows it has


def test_verify_false_tries_nothing():
    """And says so in each suggestion."""
    report = tfdiag.diagnose(jobs.tiny_model(), waiting(), budget=enough(5.0), verify=False)
    assert report.measurements.trials.missing == "not tried: verify=False"
    assert all(one.status == "untried" for one in report.suggestions)
    assert "trials" not in report.measurements.overhead.phases_s


def test_ctrl_c_ends_the_trials_and_keeps_what_was_found(
    job: tuple[Any, Any, Analysis], monkeypatch: pytest.MonkeyPatch
):
    """What was found before is kept, and the job is as it was."""
    real, turns = engine.Lane.turn, []

    def interrupted(self: Any, seconds: float, until: float) -> Any:
        turns.append(seconds)
        if len(turns) == 12:
            raise KeyboardInterrupt
        return real(self, seconds, until)

    monkeypatch.setattr(engine.Lane, "turn", interrupted)
    model, dataset, analysis = job
    with (
        leaves_no_trace(model, dataset=dataset),
        opened(request_of(model, dataset, enough(TRIALS_S))) as session,
    ):
        found, _ = try_suggestions(
            session, analysis, [suggestion("a/prefetch", Edit("prefetch"))], DiagnosticsCallback.recording
        )
    assert isinstance(found.noise, Quantity)
    assert any("Ctrl-C" in text for text in found.notes)


def test_an_input_that_can_be_read_once_is_not_tried():
    """Nothing more is taken from it than was used."""
    counted = jobs.CountedGenerator()
    report = tfdiag.diagnose(jobs.tiny_model(), counted.generator, budget=enough(5.0))
    assert counted.taken == report.measurements.job.batches_used
    assert all(one.status == "untried" for one in report.suggestions)


def test_the_step_of_an_input_that_is_gone_is_tried_on_the_batch_that_was_kept():
    """What changes the step alone needs no more of the input, and takes no more of it."""
    taken, (x, y) = itertools.count(), jobs.arrays(jobs.BATCH)
    generator = ((x, y) for _ in taken)
    model = jobs.tiny_model(run_eagerly=True)
    report = tfdiag.diagnose(model, generator, budget=enough(BUDGET_S), steps=100)
    assert next(taken) == report.measurements.job.batches_used
    (graph,) = [one for one in report.suggestions if one.check == "eager-step"]
    assert graph.status == "confirmed", graph
    assert isinstance(graph.measured, Quantity)
    assert graph.measured.value > 2


def test_a_py_dataset_runs_by_turns():
    """With the workers that it has it is no faster than it is."""
    model, dataset = jobs.tiny_model(), jobs.SlowBatches(50)
    (trial,) = tried(
        model, dataset, measured(model, dataset), suggestion("a/b", Edit("workers", value=1))
    ).values()
    assert trial.status == "refuted", trial


def test_a_loop_of_the_callers_own_runs_by_turns():
    """Its input can be changed, its step can't."""
    model, dataset = jobs.tiny_model(), waiting()

    def step(batch: Any) -> None:
        model.train_on_batch(*batch)

    found = tried(
        model,
        dataset,
        measured(model, dataset, train_step=step),
        suggestion("a/parallel", Edit("parallel", 3)),
        suggestion("a/steps", changes=(Change("steps_per_execution", 4),)),
        train_step=step,
    )
    assert found["a/parallel"].status == "confirmed", found
    assert "only the caller" in found["a/steps"].reason

"""The callback in a real fit: what it reports, and that the training is the same with it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tf_keras

from tests.integration import jobs
from tests.traces_left import leaves_no_trace
from tfdiag import DiagnosticsCallback, Report, TfdiagError
from tfdiag.collect.recorder import Recorder
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Missing, Quantity

STEPS = 20


def legacy_model(**compile_args: Any) -> Any:
    """Give a model of the older Keras."""
    layers = [tf_keras.Input((4,)), tf_keras.layers.Dense(8), tf_keras.layers.Dense(1)]
    model = tf_keras.Sequential(layers)
    model.compile(**{"optimizer": "adam", "loss": "mse", "metrics": ["mae"], **compile_args})
    return model


FLAVOURS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "keras": (keras, jobs.tiny_model),
    "tf_keras": (tf_keras, legacy_model),
}
both = pytest.mark.parametrize("flavour", FLAVOURS)


def fit(model: Any, *callbacks: Any, **kwargs: Any) -> Any:
    """Train for some steps."""
    arguments = {"x": jobs.batches(STEPS), "callbacks": list(callbacks), "verbose": 0, **kwargs}
    return model.fit(**arguments)


def steps_in(report: Report) -> int:
    """Count the steps that a report has seen."""
    assert isinstance(report.measurements.live, Live)
    return len(report.measurements.live.start_s) * report.measurements.live.steps_per_call


def test_a_report_before_training() -> None:
    """Asked too early, it says how it is used."""
    with pytest.raises(TfdiagError, match=r"pass the callback to model\.fit"):
        DiagnosticsCallback().report()


@both
def test_a_report_after_training(flavour: str) -> None:
    """After fit the report has all steps, and knows the job from the inside."""
    callback = DiagnosticsCallback()
    fit(FLAVOURS[flavour][1](), callback, epochs=3)
    report = callback.report()
    assert steps_in(report) == 3 * STEPS
    job = report.measurements.job
    assert (job.loop, job.epochs, job.input) == (flavour, 3, "the caller's own fit")
    assert job.steps_per_epoch == Quantity(float(STEPS), "steps", source="fit")
    live = report.measurements.live
    assert isinstance(live, Live)
    assert live.traced == (0,)
    assert sum(np.isnan(live.wait_s)) <= 3  # the last call of each epoch
    assert [event.kind for event in live.events].count("epoch_end") == 3
    assert isinstance(report.measurements.replay, Missing)
    assert isinstance(report.measurements.input_alone, Missing)
    assert "only watches" in report.measurements.replay.reason
    assert report.measurements.pipeline.stages
    assert isinstance(report.measurements.overhead.per_step_s, Quantity)


@both
def test_a_report_during_training(flavour: str) -> None:
    """At any time it gives what was seen so far, and measuring goes on."""
    package, make = FLAVOURS[flavour]
    callback, seen = DiagnosticsCallback(), []

    class Asks(package.callbacks.Callback):  # type: ignore[misc, name-defined]
        """Asks in the middle of an epoch."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 11:
                seen.append(steps_in(callback.report()))

    fit(make(), callback, Asks())
    assert seen == [12]
    assert steps_in(callback.report()) == STEPS


def test_the_second_fit_is_measured_for_itself() -> None:
    """A callback that is used again reports on the training that it is in."""
    callback, model = DiagnosticsCallback(), jobs.tiny_model()
    fit(model, callback)
    fit(model, callback, x=jobs.batches(6))
    assert steps_in(callback.report()) == 6
    assert callback.report().measurements.live.traced == ()


def test_a_report_every_so_many_steps() -> None:
    """With `every` there is a report at looks that are so far apart, and one at the end."""
    reports: list[Report] = []
    fit(jobs.tiny_model(), DiagnosticsCallback(every=20, on_report=reports.append), x=jobs.batches(45))
    assert [steps_in(report) for report in reports] == [20, 40, 45]


def test_without_every_there_is_one_report() -> None:
    """The end of training is reported in any case."""
    reports: list[Report] = []
    fit(jobs.tiny_model(), DiagnosticsCallback(on_report=reports.append), x=jobs.batches(45))
    assert [steps_in(report) for report in reports] == [45]


def test_steps_of_calls_with_many_steps() -> None:
    """`every` counts steps, not calls."""
    reports: list[Report] = []
    callback = DiagnosticsCallback(every=60, on_report=reports.append)
    fit(jobs.tiny_model(steps_per_execution=5), callback, x=jobs.batches(100))
    assert [steps_in(report) for report in reports][-1] == 100
    assert len(reports) == 2
    assert reports[0].measurements.live.steps_per_call == 5


@pytest.mark.parametrize("every", [0, -3])
def test_an_every_that_makes_no_sense(every: int) -> None:
    """It is refused with its value when the callback is made."""
    with pytest.raises(TfdiagError, match=f"must be positive, got {every}"):
        DiagnosticsCallback(every=every)


def test_a_check_to_ignore() -> None:
    """Unknown ids are refused when the callback is made; known ones reach the report."""
    with pytest.raises(TfdiagError, match="slow-calback"):
        DiagnosticsCallback(ignore=["slow-calback"])
    callback = DiagnosticsCallback(ignore=["slow-callback"])
    fit(jobs.tiny_model(), callback)
    assert "slow-callback" not in {finding.check for finding in callback.report().findings}


def test_an_on_report_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on to its end, and the error is in the log."""

    def fail(_: Report) -> None:
        raise ValueError("nobody wants it")

    model = jobs.tiny_model()
    with caplog.at_level(logging.ERROR, logger="tfdiag"):
        history = fit(model, DiagnosticsCallback(every=10, on_report=fail), epochs=2)
    assert len(history.history["loss"]) == 2
    assert int(model.optimizer.iterations.numpy()) == 2 * STEPS
    assert "nobody wants it" in caplog.text
    assert "could not report" in caplog.text


def test_what_a_report_cannot_hold_does_not_end_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug of our own in the analysis costs the report, not the training."""
    monkeypatch.setattr("tfdiag.monitor.callback.analyse", lambda _: 1 / 0)
    model = jobs.tiny_model()
    fit(model, DiagnosticsCallback(every=10))
    assert int(model.optimizer.iterations.numpy()) == STEPS
    assert "ZeroDivisionError" in caplog.text


def test_the_log_on_disk(tmp_path: Path) -> None:
    """Each report is a line of JSON that gives the same report again; a second training appends."""
    folder, reports = tmp_path / "a" / "b", []
    callback = DiagnosticsCallback(log_dir=folder, every=20, on_report=reports.append)
    fit(jobs.tiny_model(), callback, x=jobs.batches(45))
    fit(jobs.tiny_model(), callback)
    (path,) = folder.iterdir()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(reports) == 5
    assert [Report.from_dict(json.loads(line)) for line in lines] == reports
    assert steps_in(Report.from_dict(json.loads(lines[2]))) == 45


def test_a_log_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that can't be made is a warning with its path, and training and reports go on."""
    (tmp_path / "file").write_text("in the way")
    reports: list[Report] = []
    callback = DiagnosticsCallback(log_dir=tmp_path / "file" / "logs", on_report=reports.append)
    with caplog.at_level(logging.WARNING, logger="tfdiag"):
        fit(jobs.tiny_model(), callback)
    assert len(reports) == 1
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert str(tmp_path / "file" / "logs") in record.getMessage()


def test_the_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """What goes to `logging` is one line of strict JSON with the verdict."""
    callback = DiagnosticsCallback()
    with caplog.at_level(logging.INFO, logger="tfdiag"):
        fit(jobs.tiny_model(), callback)
    (record,) = [record for record in caplog.records if record.name.startswith("tfdiag")]
    message = record.getMessage()
    assert "\n" not in message

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    kept = json.loads(message, parse_constant=refuse)
    assert callback.report().verdict.code in message
    assert isinstance(kept, dict)


@both
def test_training_is_the_same_with_it(flavour: str) -> None:
    """Weights, optimizer and losses of twins are bit for bit the same, with dropout and validation."""
    package, _ = FLAVOURS[flavour]
    ends = []
    for watched in (False, True):
        package.utils.set_random_seed(17)
        layers = package.layers
        model = package.Sequential(
            [package.Input((4,)), layers.Dense(8), layers.Dropout(0.5), layers.Dense(1)]
        )
        model.compile("adam", "mse", metrics=["mae"])
        dataset = jobs.batches(STEPS).shuffle(STEPS)
        callbacks = [DiagnosticsCallback(every=10)] if watched else []
        history = fit(model, *callbacks, x=dataset, epochs=2, validation_data=jobs.batches(3))
        ends.append(([np.array(w) for w in model.get_weights()], history.history))
    (weights, losses), (watched_weights, watched_losses) = ends
    assert losses == watched_losses
    assert all(map(np.array_equal, weights, watched_weights))


@both
def test_nothing_is_left_on_the_model(flavour: str) -> None:
    """A trained model that is trained for no epoch more is as it was, however often it is watched."""
    model = FLAVOURS[flavour][1]()
    fit(model, DiagnosticsCallback())
    assert "tfdiag" not in repr(model.train_function)
    with leaves_no_trace(model):
        DiagnosticsCallback().close()


def test_it_makes_keras_fetch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no batch hooks and says that it is safe, so that fit need not sync each step for it."""
    callback = DiagnosticsCallback()
    assert callback.async_safe is True
    for name in ("train", "test", "predict"):
        for moment in ("begin", "end"):
            hook = f"on_{name}_batch_{moment}"
            assert getattr(type(callback), hook) is getattr(keras.callbacks.Callback, hook)
        assert getattr(callback, f"_implements_{name}_batch_hooks")() is False
    # Keras 3.15 calls TensorFlow not thread-safe, and then asks nobody.
    monkeypatch.setattr("keras.src.backend.IS_THREAD_SAFE", True)
    given = keras.callbacks.CallbackList([callback])
    assert given._async_train and given._async_test


def test_a_loss_that_is_no_number_is_said() -> None:
    """A NaN at the end of an epoch is known to the report."""
    callback = DiagnosticsCallback()
    fit(jobs.tiny_model(), callback, x=jobs.batches(5).map(lambda x, y: (x, y * float("nan"))))
    assert callback.report().measurements.live.nan_loss


def test_validation_in_training() -> None:
    """The passes of validation are measured, complete and apart from training."""
    callback = DiagnosticsCallback()
    fit(jobs.tiny_model(), callback, epochs=2, validation_data=jobs.batches(6))
    live = callback.report().measurements.live
    assert [(run.calls, run.complete) for run in live.validations] == [(6, True), (6, True)]
    assert len(live.start_s) == 2 * STEPS


def test_it_outlives_an_evaluation_of_its_own() -> None:
    """`evaluate` and `predict` take the callback too, and it has nothing to say of them."""
    callback, model = DiagnosticsCallback(), jobs.tiny_model()
    model.evaluate(jobs.batches(2), callbacks=[callback], verbose=0)
    model.predict(jobs.batches(2), callbacks=[callback], verbose=0)
    with pytest.raises(TfdiagError, match="nothing was measured"):
        callback.report()


def test_it_fills_the_recorder_that_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    """As the instrument of a diagnosis it reports nothing by itself, and writes where it is told to."""
    recorder = Recorder(time.perf_counter)
    with caplog.at_level(logging.INFO, logger="tfdiag"):
        fit(jobs.tiny_model(), DiagnosticsCallback.recording(recorder))
    assert len(recorder.calls) == STEPS
    assert caplog.records == []


def test_rare_validation_is_spread_over_the_epochs_without() -> None:
    """`fit` knows how often it validates, and the report counts it so."""
    callback = DiagnosticsCallback()
    fit(jobs.tiny_model(), callback, epochs=4, validation_data=jobs.batches(6), validation_freq=2)
    assert callback.report().measurements.job.validation_freq == 2


def test_what_nothing_explains_is_unknown_and_not_zero() -> None:
    """Without a replay nobody knows what a call does besides, so the report shows no zero for it."""
    callback = DiagnosticsCallback()
    fit(jobs.tiny_model(), callback, epochs=2)
    assert isinstance(callback.report().step.segments["unexplained"], Missing)

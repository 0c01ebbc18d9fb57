"""What the caller hands to `fit` beside the data is part of the job, and of the report."""

from __future__ import annotations

import time
from typing import Any

import keras
import pytest

from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound, share
from tests.traces_left import leaves_no_trace
from tfdiag.model.quantity import Quantity

VALIDATION_S = 0.05
"""What a batch of validation waits: far more than what else it takes."""


def burn(seconds: float) -> None:
    """Keep the processor busy."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Burns(keras.callbacks.Callback):
    """A callback that takes its time after every batch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Take several times the step."""
        burn(0.015)


def host_items(report: Any) -> dict[str, float]:
    """Give the parts of the host segment, seconds a step."""
    return {item.name: item.per_step.value for item in report.step.host_items}


def test_slow_callback_is_found_and_named() -> None:
    """A callback that takes most of each step is the verdict, with its name and its time."""
    model, dataset, callback = jobs.tiny_model(), jobs.batches(None), Burns()

    with leaves_no_trace(model, callbacks=[callback], dataset=dataset):
        report = diagnose(model, dataset, fit_kwargs={"callbacks": [callback]})

    is_sound(report, batch_size=jobs.BATCH)
    assert report.verdict.code == "host-bound"
    assert share(report, "host") > 0.5
    found = [finding for finding in report.findings if finding.check == "slow-callback"]
    assert len(found) == 1
    assert "Burns" in found[0].where
    named = [seconds for name, seconds in host_items(report).items() if "Burns" in name]
    assert sum(named) >= 0.015


def test_ignored_check_is_silent_but_said() -> None:
    """A check that the caller silences yields nothing, and the report says so."""
    model, dataset, callback = jobs.tiny_model(), jobs.batches(None), Burns()

    report = diagnose(model, dataset, fit_kwargs={"callbacks": [callback]}, ignore=("slow-callback",))

    assert "slow-callback" not in {finding.check for finding in report.findings}
    assert "slow-callback" not in {suggestion.check for suggestion in report.suggestions}
    assert report.ignored == ("slow-callback",)


def test_validation_that_takes_the_day() -> None:
    """Validation that is longer than training is spread over the steps as host time."""
    model, dataset = jobs.tiny_model(), jobs.batches(10)
    validation = jobs.slow(jobs.batches(20), VALIDATION_S)
    kwargs = {"validation_data": validation, "epochs": 20}

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, fit_kwargs=kwargs, budget=8.0)

    is_sound(report, batch_size=jobs.BATCH)
    assert kwargs == {"validation_data": validation, "epochs": 20}
    assert report.verdict.code == "host-bound"
    assert "validation-dominates" in {finding.check for finding in report.findings}
    items = host_items(report)
    validation_s = sum(seconds for name, seconds in items.items() if "validation" in name)
    # 20 batches of validation for 10 steps of training
    assert validation_s == pytest.approx(2 * VALIDATION_S, rel=0.5)
    steps = report.measurements.job.validation_steps
    assert isinstance(steps, Quantity)
    assert steps.value == 20


def test_steps_per_epoch() -> None:
    """The caller's epoch is what an epoch is."""
    model, dataset = jobs.tiny_model(), jobs.batches(None)

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, fit_kwargs={"steps_per_epoch": 7, "epochs": 100})

    is_sound(report, batch_size=jobs.BATCH)
    steps = report.measurements.job.steps_per_epoch
    assert isinstance(steps, Quantity)
    assert steps.value == 7


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """A diagnosis is quiet: neither `fit` nor tfdiag writes to the caller's terminal."""
    model = jobs.tiny_model()
    capfd.readouterr()  # what TensorFlow says when it starts

    diagnose(model, jobs.batches(20))

    assert capfd.readouterr() == ("", "")


def test_callbacks_see_a_fit_like_their_own() -> None:
    """The caller's callbacks are called in the order and with the arguments that `fit` uses."""
    model = jobs.tiny_model()
    calls: list[str] = []

    class Records(keras.callbacks.Callback):
        """Writes down what it is told."""

        def on_train_begin(self, logs: Any = None) -> None:
            calls.append("train_begin")
            assert self.model is model

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            calls.append("epoch_begin")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            calls.append("batch_end")
            assert "loss" in logs

        def on_train_end(self, logs: Any = None) -> None:
            calls.append("train_end")

    diagnose(model, jobs.batches(20), fit_kwargs={"callbacks": [Records()]})

    assert calls[:3] == ["train_begin", "epoch_begin", "batch_end"]
    assert calls.count("batch_end") > 10

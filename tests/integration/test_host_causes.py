"""Real jobs with a cause in Python around the step, or in its compilation, and look-alikes without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdiag
from benchmarks.step_jobs import host
from tests.integration import jobs
from tests.integration.expectations import is_sound
from tests.pace import enough
from tests.traces_left import leaves_no_trace
from tfdiag.model.quantity import Quantity

CHECKS = {
    "slow-callback", "frequent-checkpoint", "summary-writing", "host-sync-per-step", "retracing",
    "xla-recompiling", "validation-dominates",
}  # fmt: skip


def found(report: tfdiag.Report) -> dict[str, Any]:
    """Give the findings of these checks; each names its cause once."""
    mine = [finding for finding in report.findings if finding.check in CHECKS]
    assert len({(finding.check, finding.where) for finding in mine}) == len(mine)
    return {finding.check: finding for finding in mine}


def test_saving_summaries_and_a_callback_in_a_list_are_three_findings(tmp_path: Path) -> None:
    """Each cause is named once, with its own time, and nothing is left behind."""
    model, data = host._model(), host._data()
    took: dict[str, list[float]] = {"listed": [], "writes": []}

    def timed(name: str, work: Callable[..., None]) -> Callable[..., None]:
        def hook(*args: Any) -> None:
            begin = time.perf_counter()
            work(*args)
            took[name].append(time.perf_counter() - begin)

        return hook

    listed = host._callback(on_batch_end=timed("listed", lambda *_: host._spin(0.012)))
    writer = tf.summary.create_file_writer(str(tmp_path / "summaries"))

    def write(_: Any, batch: int, *__: Any) -> None:
        with writer.as_default():
            tf.summary.write("planted", lambda: (host._spin(0.012), tf.constant(1.0))[1], step=batch)

    callbacks = [
        keras.callbacks.CallbackList([listed], model=model),
        keras.callbacks.ModelCheckpoint(
            str(tmp_path / "best.weights.h5"), save_weights_only=True, save_freq=2
        ),
        host._callback(on_train_batch_end=timed("writes", write)),
    ]
    with leaves_no_trace(model, dataset=data):
        report = tfdiag.diagnose(
            model, data, fit_kwargs={"callbacks": callbacks}, steps=60, budget=enough(12), verify=False
        )
    is_sound(report, batch_size=128)
    assert report.verdict.code == "host-bound"
    causes = found(report)
    assert set(causes) == {"slow-callback", "frequent-checkpoint", "summary-writing"}
    assert causes["frequent-checkpoint"].where == "ModelCheckpoint.on_train_batch_end"
    assert causes["slow-callback"].detail == "it stands in CallbackList"
    for check, name in (("slow-callback", "listed"), ("summary-writing", "writes")):
        known = float(np.mean(took[name][1:]))
        assert causes[check].cost.value * report.step.mean_s == pytest.approx(known, rel=0.2)
    written = {each.name: each.quantity for each in causes["frequent-checkpoint"].evidence}.get(
        "written each time"
    )
    assert written is None or written.value > 4 * model.count_params()
    assert [path.name for path in tmp_path.iterdir()] == ["summaries"]


def test_a_python_number_that_changes_is_named() -> None:
    """A rate that is passed as a Python float is traced in each step, which is said with its name."""
    _, data, planted = host.python_float()
    report = tfdiag.diagnose(None, data, **planted, steps=40, budget=enough(15), verify=False)
    assert report.verdict.code == "compile-bound"
    assert set(found(report)) == {"retracing"}
    assert "rate is a Python value that changes" in found(report)["retracing"].title


def test_xla_compiles_for_each_length() -> None:
    """Batches of ever new lengths are compiled ever again, and the time for one was measured."""
    model, data, planted = host.xla_of_many_shapes()
    # Without tuning its iterator is taken down at once.
    report = tfdiag.diagnose(
        model, jobs.no_autotune(data), **planted, steps=8, budget=enough(16), verify=False
    )
    compilation, live = report.measurements.compilation, report.measurements.live
    assert isinstance(compilation.xla_compile, Quantity)
    assert compilation.different > 3
    assert len(live.compiled) >= len(live.start_s) // 2
    assert live.traced == (0,)
    assert "retracing" not in found(report)


def test_one_more_trace_at_the_end_of_an_epoch_is_healthy() -> None:
    """The last batch is smaller, so the step is traced twice and never again."""
    _, data, planted = host.last_batch_is_smaller()
    report = tfdiag.diagnose(None, data, **planted, steps=160, budget=enough(15), verify=False)
    assert found(report) == {}
    traces = [each for each in report.measurements.compilation.traces if each.during == "step"]
    assert [(each.cause, each.argument) for each in traces] == [("first", ""), ("shape", "x")]


def test_cheap_hooks_and_short_validation_are_healthy(tmp_path: Path) -> None:
    """A callback on each batch, one that reads now and then, a checkpoint an epoch: nothing to say."""
    callbacks = [
        *host.cheap_callback()[2]["fit_kwargs"]["callbacks"],
        *host.rare_values()[2]["fit_kwargs"]["callbacks"],
        keras.callbacks.ModelCheckpoint(str(tmp_path / "best.weights.h5"), save_weights_only=True),
    ]
    report = tfdiag.diagnose(
        host._model(),
        host._data(200),
        fit_kwargs={"callbacks": callbacks, "validation_data": host._data(8)},
        steps=420,
        budget=enough(15),
        verify=False,
    )
    assert found(report) == {}


def test_validation_goes_over_its_data_again_and_again() -> None:
    """Steps that were counted in samples are told from the length of the data before it repeats."""
    model, data, planted = host.validation_steps_in_samples()
    report = tfdiag.diagnose(model, data, **planted, steps=160, budget=enough(15), verify=False)
    cause = found(report)["validation-dominates"]
    passes = next(each.quantity for each in cause.evidence if each.name == "passes over its data")
    assert isinstance(passes, Quantity)
    assert passes.value == 32


def test_a_callback_that_raises() -> None:
    """The error is the job's, and nothing stays replaced in TensorFlow."""

    class Raises(keras.callbacks.Callback):
        """Raises."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise ValueError("mine")

    # Without tuning its iterator is taken down at once.
    data = jobs.no_autotune(host._data())
    before = tf.summary.write
    with pytest.raises(tfdiag.TfdiagError, match="mine"):
        tfdiag.diagnose(
            host._model(), data, fit_kwargs={"callbacks": [Raises()]}, budget=enough(30), verify=False
        )
    assert tf.summary.write is before

"""Recurrent layers on the simulated GPU: off the fused kernel by an argument."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pace import enough

from .harness import Simgpu


def diagnosed(probe: Any, budget: float) -> Any:
    import keras
    import numpy as np
    import tensorflow as tf

    import tfdiag

    model = keras.Sequential(
        [
            keras.Input((6, 8)),
            keras.layers.LSTM(16, recurrent_dropout=0.1, name="encoder"),
            keras.layers.Dense(1, name="last"),
        ]
    )
    model.compile("sgd", "mse", jit_compile=False)
    x = np.random.default_rng(0).random((128, 6, 8), "float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, x[:, 0, :1])).batch(32, drop_remainder=True).repeat(300)
    report = tfdiag.diagnose(model, dataset, budget=budget, steps=150, verify=False)
    return {
        "findings": {finding.check: finding.cost.value for finding in report.findings},
        "where": {finding.check: finding.where for finding in report.findings},
        "model": report.to_dict()["measurements"]["model"],
        "not_run": dict(report.not_run),
    }


@pytest.fixture(scope="module")
def answer(simgpu: Simgpu) -> Any:
    """A job whose LSTM drops out inside the recurrence."""
    return simgpu(diagnosed, enough(25.0)).result


def test_an_lstm_off_the_fused_kernel_is_named_with_its_argument(answer: Any) -> None:
    """It takes most of this step, and its loop is not blamed a second time."""
    assert answer["where"].get("unfused-rnn") == "encoder: recurrent_dropout=0.1", answer["not_run"]
    assert answer["findings"]["unfused-rnn"] > 0.3
    assert "sequential-op-loop" not in answer["findings"]
    (layer,) = answer["model"]["recurrent"]
    assert layer["fused"] is False
    assert {loop["kind"] for loop in answer["model"]["loops"]} == {"recurrent"}

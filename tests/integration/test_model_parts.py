"""A diagnosis names the part of the model that costs the step its time, and leaves healthy ones alone."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.integration.expectations import diagnose, is_sound
from tests.traces_left import leaves_no_trace
from tfdiag.model.layers import MetricCost, ModelFacts
from tfdiag.model.quantity import Quantity

BUDGET_S = 12.0
LENGTH = 160


def standardized(row: Any) -> Any:
    """Scale a row by its own mean."""
    return row / (1.0 + tf.abs(tf.reduce_mean(row)))


class EachRow(keras.layers.Layer):
    """Goes over rows one by one."""

    def call(self, x: Any) -> Any:
        """Map."""
        return x if isinstance(x, keras.KerasTensor) else tf.map_fn(standardized, x)


def endless(x: Any) -> tf.data.Dataset:
    """Give batches of 64 of these rows, again and again."""
    y = np.ones((len(x), 1), "float32")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=True).cache().repeat()


def test_a_loop_over_rows_is_named_with_its_layer() -> None:
    """It is the first finding, its cost most of the step, and the model is left as it was."""
    model = keras.Sequential(
        [keras.Input((16,)), EachRow(name="each_row"), keras.layers.Dense(16), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", metrics=["mae"])
    dataset = endless(np.ones((256, 16), "float32")).take(3000)
    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=BUDGET_S)
    is_sound(report, batch_size=64)
    assert report.findings[0].check == "sequential-op-loop"
    assert "layer each_row" in report.findings[0].where
    assert 0.2 < report.findings[0].cost.value <= 1.0
    found = report.measurements.model
    assert isinstance(found, ModelFacts)
    assert {loop.kind for loop in found.loops} == {"map_fn"}
    assert all(isinstance(loop.iterations, Quantity) and loop.iterations.value == 64 for loop in found.loops)
    assert isinstance(found.metric_cost, MetricCost)
    assert "The model" in str(report)
    assert "costly-metrics" not in {finding.check for finding in report.findings}


def words(rows: int, own: int, **compiled: Any) -> tuple[Any, Any]:
    """Give a model of texts of so many words, all padded to the same length."""
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(rows, 16, name="words"),
            keras.layers.Conv1D(32, 5, activation="relu"),
            keras.layers.GlobalMaxPooling1D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    x = np.random.default_rng(0).integers(1, 100, (256, LENGTH)).astype("int32")
    x[:, own:] = 0
    return model, endless(x).take(3000)


def test_padding_and_a_table_that_is_updated_as_a_whole() -> None:
    """Both are found in one job, with what the batch really holds."""
    report = diagnose(*words(150_000, 30, optimizer="adam"), budget=BUDGET_S)
    is_sound(report, batch_size=64)
    checks = {finding.check: finding for finding in report.findings}
    assert checks["dense-embedding-update"].where == "words"
    found = report.measurements.model
    assert isinstance(found, ModelFacts)
    (table,) = found.embeddings
    assert isinstance(table.rows_used, Quantity)
    assert table.rows_used.value == 100
    (padding,) = found.padding
    assert (padding.side, padding.length, padding.row_length) == ("right", LENGTH, 30)
    assert padding.batches > 1
    assert [each.length for each in padding.calls] == [LENGTH, 30]
    # Which of the two takes more depends on the machine.
    assert "padding-waste" in checks or checks["dense-embedding-update"].cost.value > 0.8


def test_a_healthy_model_of_the_same_parts() -> None:
    """Little padding, an optimizer for single rows, no loop: nothing is found in the model."""
    report = diagnose(*words(150_000, LENGTH - 8, metrics=["mae"]), budget=BUDGET_S)
    found = report.measurements.model
    assert isinstance(found, ModelFacts)
    assert found.embeddings[0].whole_ops == 0
    assert found.padding[0].calls_missing == "there is little padding"
    blamed = {
        "sequential-op-loop",
        "dense-embedding-update",
        "padding-waste",
        "costly-metrics",
        "unfused-rnn",
    }
    assert blamed.isdisjoint({finding.check for finding in report.findings})
    assert blamed.isdisjoint(dict(report.not_run)), report.not_run

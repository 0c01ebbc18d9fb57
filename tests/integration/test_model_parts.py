"""A diagnosis names the part of the model that costs the step its time, and leaves healthy ones alone."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.integration.expectations import diagnose, is_sound
from tests.traces_left import leaves_no_trace
from tfdiag.model.layers import ModelFacts
from tfdiag.model.quantity import Quantity

LENGTH = 160


class EachRow(keras.layers.Layer):
    """Scales rows one by one."""

    def call(self, x: Any) -> Any:
        """Map."""
        if isinstance(x, keras.KerasTensor):
            return x
        return tf.map_fn(lambda row: row / (1.0 + tf.abs(tf.reduce_mean(row))), x)


def words(own: int, *middle: Any, **compiled: Any) -> tuple[Any, Any]:
    """Give a model of texts of so many words, all padded to the same length."""
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(60_000, 16, name="words"),
            keras.layers.Conv1D(16, 3, activation="relu"),
            keras.layers.GlobalMaxPooling1D(),
            *middle,
            keras.layers.Dense(1),
        ]
    )
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    x = np.random.default_rng(0).integers(1, 100, (256, LENGTH)).astype("int32")
    x[:, own:] = 0
    dataset = tf.data.Dataset.from_tensor_slices((x, np.ones((256, 1), "float32")))
    return model, dataset.batch(64, drop_remainder=True).cache().repeat().take(3000)


def test_causes_in_one_model_are_told_apart() -> None:
    """A loop over rows, a table that is updated as a whole, and padding, with what the batch really holds."""
    model, dataset = words(30, EachRow(name="each_row"), optimizer="adam")
    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=25.0)
    is_sound(report, batch_size=64)
    found = report.measurements.model
    assert isinstance(found, ModelFacts)
    (table,) = found.embeddings
    assert isinstance(table.rows_used, Quantity)
    assert table.rows_used.value == 100
    (padding,) = found.padding
    assert (padding.side, padding.length, padding.row_length) == ("right", LENGTH, 30)
    assert padding.batches > 1
    assert [each.length for each in padding.calls] == [LENGTH, 30], padding.calls_missing
    assert {loop.kind for loop in found.loops} == {"map_fn"}
    assert {loop.part for loop in found.loops} == {"forward", "backward"}
    where = {finding.check: finding.where for finding in report.findings}
    assert where["dense-embedding-update"] == "words"
    assert "layer each_row" in where["sequential-op-loop"]
    assert "words" in where["padding-waste"]
    assert "The model" in str(report)


def test_a_healthy_model_of_the_same_parts() -> None:
    """Little padding, an optimizer for single rows, no loop: nothing is found in the model."""
    report = diagnose(*words(LENGTH - 8, metrics=["mae"]), budget=12.0, steps=60)
    found = report.measurements.model
    assert isinstance(found, ModelFacts)
    assert found.embeddings[0].whole_ops == 0
    assert found.padding[0].calls_missing == "there is little padding"
    blamed = {
        "sequential-op-loop", "dense-embedding-update", "padding-waste", "costly-metrics", "unfused-rnn",
    }  # fmt: skip
    assert blamed.isdisjoint({finding.check for finding in report.findings}), str(report)

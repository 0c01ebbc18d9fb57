"""Which part of the model costs the step its time?

Jobs with one planted cause, most in two dresses, and look-alikes that are healthy: large enough that
neither their dispatch nor what a step costs whatever it holds is much of it.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.step_jobs.form import StepJob

__all__ = ["JOBS"]

Made = tuple[Any, Any, dict[str, Any]]

_RNG = np.random.default_rng(7)


def _dataset(x: Any, y: Any, batch: int) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True)
    return dataset.cache().repeat().take(4000).prefetch(4)


def _vectors(features: int, batch: int, rows: int = 2048) -> tf.data.Dataset:
    x = _RNG.standard_normal((rows, features)).astype("float32")
    return _dataset(x, (x.sum(axis=1, keepdims=True) > 0).astype("float32"), batch)


def _compiled(model: Any, optimizer: Any = "adam", **options: Any) -> Any:
    model.compile(optimizer, options.pop("loss", "binary_crossentropy"), **options)
    return model


def _dense(features: int, *middle: Any, width: int = 256) -> Any:
    layers = [keras.layers.Dense(width, "relu"), keras.layers.Dense(width, "relu")]
    return keras.Sequential([keras.Input((features,)), *middle, *layers, keras.layers.Dense(1, "sigmoid")])


# Loops ---------------------------------------------------------------------------------------------


def _standardized(row: Any) -> Any:
    return (row - tf.reduce_mean(row, axis=-1, keepdims=True)) / (
        tf.math.reduce_std(row, axis=-1, keepdims=True) + 1e-3
    )


class RowByRow(keras.layers.Layer):
    """Standardizes each row, one after the other or all at once."""

    def __init__(self, how: str, **kwargs: Any) -> None:
        """Keep how."""
        super().__init__(**kwargs)
        self.how = how

    def call(self, x: Any) -> Any:
        """Standardize."""
        if isinstance(x, keras.KerasTensor) or self.how == "all":
            return x if isinstance(x, keras.KerasTensor) else _standardized(x)
        if self.how == "map_fn":
            return tf.map_fn(_standardized, x)
        count = tf.shape(x)[0]

        def more(at: Any, _: Any) -> Any:
            return at < count

        def one(at: Any, rows: Any) -> Any:
            return at + 1, rows.write(at, _standardized(x[at]))

        rows = tf.TensorArray(tf.float32, size=count)
        result = tf.while_loop(more, one, [0, rows])[1].stack()
        return tf.ensure_shape(result, x.shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Say that the shape stays."""
        return input_shape


def _row_by_row(
    how: str, *, batch: int = 128, features: int = 64, width: int = 256, optimizer: str = "adam"
) -> Made:
    model = _dense(features, RowByRow(how, name="rows"), width=width)
    return _compiled(model, optimizer), _vectors(features, batch), {}


class BigRounds(keras.layers.Layer):
    """Goes round a few times with a large product in each."""

    def build(self, input_shape: Any) -> None:
        """Make the weight."""
        self.kernel = self.add_weight(shape=(input_shape[-1], input_shape[-1]), name="kernel")

    def call(self, x: Any) -> Any:
        """Multiply again and again."""
        return tf.while_loop(
            lambda at, _: at < 6, lambda at, h: (at + 1, tf.tanh(tf.matmul(h, self.kernel))), [0, x]
        )[1]

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Say that the shape stays."""
        return input_shape


def _big_rounds() -> Made:
    return _compiled(_dense(768, BigRounds(name="rounds"))), _vectors(768, 512), {}


# Metrics -------------------------------------------------------------------------------------------


class Ranked(keras.metrics.Metric):
    """A metric of one's own: how many pairs of a batch are in the right order."""

    def __init__(self, **kwargs: Any) -> None:
        """Make the counter."""
        super().__init__(**kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Compare all pairs."""
        better = tf.cast(y_true[:, None] > y_true[None, :], tf.float32)
        above = tf.cast(y_pred[:, None] > y_pred[None, :], tf.float32)
        self.total.assign_add(tf.reduce_mean(better * above))

    def result(self) -> Any:
        """Give the sum."""
        return self.total + 0.0


def _measured(*metrics: Any, batch: int = 512, width: int = 256) -> Made:
    return _compiled(_dense(64, width=width), metrics=list(metrics)), _vectors(64, batch), {}


# Tables --------------------------------------------------------------------------------------------


def _tables(rows: int, optimizer: Any, *, towers: int = 1, width: int = 256, batch: int = 128) -> Made:
    ids = [keras.Input((8,), dtype="int32", name=f"ids_{at}") for at in range(towers)]
    looked_up = [
        keras.layers.Flatten()(keras.layers.Embedding(rows, 16, name=f"table_{at}")(each))
        for at, each in enumerate(ids)
    ]
    joined = looked_up[0] if towers == 1 else keras.layers.Concatenate()(looked_up)
    hidden = keras.layers.Dense(width, "relu")(keras.layers.Dense(width, "relu")(joined))
    model = keras.Model(ids, keras.layers.Dense(1, "sigmoid")(hidden))
    x = {f"ids_{at}": _RNG.integers(0, rows, (2048, 8)).astype("int32") for at in range(towers)}
    data = x if towers > 1 else x["ids_0"]
    return _compiled(model, optimizer), _dataset(data, np.ones((2048, 1), "float32"), batch), {}


# Padding -------------------------------------------------------------------------------------------


def _padded_ids(length: int, mean: float, *, left: bool = False, rows: int = 2048) -> Any:
    lengths = np.clip(_RNG.exponential(mean, rows).astype(int), 4, length)
    x = np.zeros((rows, length), "int32")
    for row, own in zip(x, lengths, strict=True):
        row[slice(length - own, length) if left else slice(0, own)] = _RNG.integers(1, 2000, own)
    return x


def _text(
    kind: str, length: int, mean: float, *, left: bool = False, any_length: bool = False, batch: int = 64
) -> Made:
    ids = keras.Input((None if any_length else length,), dtype="int32")
    hidden = keras.layers.Embedding(2000, 32, mask_zero=kind == "gru", name="words")(ids)
    if kind == "gru":
        hidden = keras.layers.GRU(32)(hidden)
    else:
        for _ in range(2):
            hidden = keras.layers.Conv1D(64, 5, padding="same", activation="relu")(hidden)
        hidden = keras.layers.GlobalMaxPooling1D()(hidden)
    model = keras.Model(ids, keras.layers.Dense(1, "sigmoid")(hidden))
    dataset = _dataset(_padded_ids(length, mean, left=left), np.ones((2048, 1), "float32"), batch)
    return _compiled(model), dataset, {}


def _cut_text(kind: str, length: int, *, any_length: bool = False) -> Made:
    """Give the twin of padded text: rows of their mean length without padding."""
    return _text(kind, length, 1e6, any_length=any_length)


def _mean_length(length: int, mean: float) -> int:
    return round(float(np.clip(np.random.default_rng(0).exponential(mean, 100_000), 4, length).mean()))


# Recurrent layers ----------------------------------------------------------------------------------


def _series(batch: int, **options: Any) -> Made:
    model = keras.Sequential(
        [keras.Input((40, 8)), keras.layers.LSTM(64, **options), keras.layers.Dense(1, "sigmoid")]
    )
    x = _RNG.standard_normal((2048, 40, 8)).astype("float32")
    return _compiled(model), _dataset(x, np.ones((2048, 1), "float32"), batch), {}


def _auc() -> Any:
    """Give an AUC whose thresholds are not evenly spread: it then compares each with each prediction."""
    return keras.metrics.AUC(thresholds=[(at / 3000) ** 1.5 for at in range(1, 2999)], name="auc")


def _cheap_loop() -> Made:
    return _row_by_row("map_fn", batch=256, features=1024, width=4096)


def _left_padded() -> Made:
    return _text("gru", 120, 25.0, left=True, any_length=True)


_ONE_LENGTH = "text padded to 256, convolutions, one length only"

JOBS: tuple[StepJob, ...] = (
    StepJob("map_fn over the rows of a batch", lambda: _row_by_row("map_fn"), "sequential-op-loop",
            twin=lambda: _row_by_row("all")),
    StepJob("while loop over the rows of a batch", lambda: _row_by_row("while"), "sequential-op-loop",
            twin=lambda: _row_by_row("all")),
    StepJob("AUC with many thresholds", lambda: _measured("accuracy", _auc()), "costly-metrics",
            twin=lambda: _measured("accuracy")),
    StepJob("metric of one's own over all pairs", lambda: _measured(Ranked(name="ranked"), batch=2048),
            "costly-metrics", twin=lambda: _measured(batch=2048)),
    StepJob("Adam on a table of 400,000 rows", lambda: _tables(400_000, "adam"), "dense-embedding-update",
            twin=lambda: _tables(400_000, "sgd")),
    StepJob("RMSprop on two tables", lambda: _tables(200_000, "rmsprop", towers=2), "dense-embedding-update",
            twin=lambda: _tables(200_000, "sgd", towers=2)),
    StepJob(_ONE_LENGTH, lambda: _text("conv", 256, 40.0), "padding-waste",
            twin=lambda: _cut_text("conv", _mean_length(256, 40.0))),
    StepJob("text padded on the left with a mask, GRU", _left_padded, "padding-waste",
            twin=lambda: _cut_text("gru", _mean_length(120, 25.0), any_length=True)),
    StepJob("map_fn that costs nothing", _cheap_loop, ""),
    StepJob("loop with large products", _big_rounds, ""),
    StepJob("accuracy and a mean", lambda: _measured("accuracy", "mae", batch=1024, width=768), ""),
    StepJob("small table with Adam", lambda: _tables(2_000, "adam", width=768, batch=1024), ""),
    StepJob("large table with SGD", lambda: _tables(400_000, "sgd", width=768, batch=1024), ""),
    StepJob("text with little padding", lambda: _text("conv", 64, 400.0, batch=512), ""),
    StepJob("LSTM with recurrent dropout on a CPU", lambda: _series(512, recurrent_dropout=0.2), ""),
)  # fmt: skip

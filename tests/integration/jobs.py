"""Small jobs of known make-up, each as a user would write it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

FEATURES = 4
BATCH = 8
SLEEP_S = 0.02
"""What a batch of a slow input takes: several times the step of `tiny_model`."""


def arrays(rows: int = 20 * BATCH, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Give inputs and targets."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, FEATURES)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def tiny_model(*, dropout: float = 0.0, **compile_args: Any) -> Any:
    """Give a model whose step is mostly fixed cost."""
    layers = [keras.Input((FEATURES,)), keras.layers.Dense(8, activation="relu")]
    if dropout:
        layers.append(keras.layers.Dropout(dropout))
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    return compiled(model, **compile_args)


def compiled(model: Any, **compile_args: Any) -> Any:
    """Compile a model with an optimizer that has slots and a metric that has state."""
    model.compile(**{"optimizer": "adam", "loss": "mse", "metrics": ["mae"], **compile_args})
    return model


def batches(count: int | None = 20, *, rows: int = 20 * BATCH) -> tf.data.Dataset:
    """Give a fast dataset of batches, endless for `count=None`."""
    dataset = tf.data.Dataset.from_tensor_slices(arrays(rows)).batch(BATCH, drop_remainder=True)
    return dataset.repeat() if count is None else dataset.repeat().take(count)


def slow(dataset: tf.data.Dataset, seconds: float = SLEEP_S) -> tf.data.Dataset:
    """Make every batch take its time, in a stage that the runtime leaves serial."""

    def wait(x: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return x

    def delayed(x: tf.Tensor, *rest: tf.Tensor) -> tuple[tf.Tensor, ...]:
        late = tf.numpy_function(wait, [x], x.dtype)
        late.set_shape(x.shape)
        return late, *rest

    return dataset.map(delayed)


def no_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keep the runtime from adding a prefetch by itself."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def on_each_batch(dataset: tf.data.Dataset, act: Callable[[int], None]) -> tf.data.Dataset:
    """Call `act(k)` when batch k is produced, k counted from 0 anew in every iteration."""

    def tell(k: np.ndarray) -> np.ndarray:
        act(int(k))
        return k

    def watched(k: tf.Tensor, batch: Any) -> Any:
        seen = tf.numpy_function(tell, [k], tf.int64)
        with tf.control_dependencies([seen]):
            return tf.nest.map_structure(tf.identity, batch)

    return no_autotune(dataset.enumerate().map(watched))


class TellsEachStep(keras.layers.Layer):
    """A layer that calls back into Python in every training step."""

    def __init__(self, act: Callable[[], object], **kwargs: Any) -> None:
        """Keep what is called."""
        super().__init__(**kwargs)
        self._act = act

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Give the inputs on, after the call."""
        if not training or isinstance(inputs, keras.KerasTensor):
            return inputs

        def tell() -> np.int64:
            self._act()
            return np.int64(0)

        told = tf.numpy_function(tell, [], tf.int64)
        with tf.control_dependencies([told]):
            return tf.identity(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Say that the shape stays."""
        return input_shape


def watched_model(act: Callable[[], object], **compile_args: Any) -> Any:
    """Give a model that calls `act()` in every training step."""
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(8)(TellsEachStep(act)(inputs))
    return compiled(keras.Model(inputs, keras.layers.Dense(1)(hidden)), **compile_args)


class OwnStep(keras.Model):
    """A subclassed model with its own train step and a tracker of its own."""

    def __init__(self) -> None:
        """Make one layer and one tracker."""
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, x: Any) -> Any:
        """Apply the layer."""
        return self.dense(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Take a gradient step by hand."""
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x) - y))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.seen.update_state(loss)
        return {"seen": self.seen.result()}


class SlowBatches(keras.utils.PyDataset):
    """A PyDataset whose items take their time."""

    def __init__(self, length: int | None = 20, **kwargs: Any) -> None:
        """Make the arrays that batches are cut from."""
        super().__init__(**kwargs)
        self._length = length
        self._x, self._y = arrays()

    @property
    def num_batches(self) -> int | None:
        """Say how many batches an epoch has."""
        return self._length

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Give a batch, late."""
        time.sleep(SLEEP_S)
        start = index * BATCH % len(self._x)
        return self._x[start : start + BATCH], self._y[start : start + BATCH]


class CountedGenerator:
    """Hands out a Python generator of slow batches and counts what was taken from it."""

    def __init__(self, length: int | None = None) -> None:
        """Count from zero."""
        self.taken = 0
        self.generator = self._batches(length)

    def _batches(self, length: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        x, y = arrays()
        for index in itertools.count() if length is None else range(length):
            time.sleep(SLEEP_S)
            self.taken += 1
            start = index * BATCH % len(x)
            yield x[start : start + BATCH], y[start : start + BATCH]

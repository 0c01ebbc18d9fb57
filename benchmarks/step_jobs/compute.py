"""Jobs whose computation itself is the matter: too small a step, too small a batch, a type that is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.step_jobs.form import StepJob

layers = keras.layers
Made = tuple[Any, Any, dict[str, Any]]


def in_memory(*parts: np.ndarray) -> Any:
    """Give one batch for ever, so that nothing waits."""
    return tf.data.Dataset.from_tensors(parts).repeat()


def arrays(rows: int, *shape: int, outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Give random inputs and targets."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((rows, *shape)).astype("float32")
    return x, generator.standard_normal((rows, outputs)).astype("float32")


def made(model: Any, data: Any, **compile_args: Any) -> Made:
    """Compile a model and hand it over."""
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compile_args})
    return model, data, {}


def dense_net(units: int, depth: int, features: int, *, policy: str | None = None, outputs: int = 1) -> Any:
    """Give some dense layers of one size."""
    hidden = [layers.Dense(units, activation="relu", dtype=policy) for _ in range(depth)]
    return keras.Sequential([keras.Input((features,)), *hidden, layers.Dense(outputs, dtype="float32")])


def conv_net(filters: int, depth: int, side: int, *, policy: str | None = None) -> Any:
    """Give some convolutions of one size."""
    hidden = [
        layers.Conv2D(filters, 3, padding="same", activation="relu", dtype=policy) for _ in range(depth)
    ]
    end = [layers.GlobalAveragePooling2D(), layers.Dense(1, dtype="float32")]
    return keras.Sequential([keras.Input((side, side, 3)), *hidden, *end])


class Regression(keras.Model):
    """A line through points, in a class of its own."""

    def __init__(self) -> None:
        """Make the line."""
        super().__init__()
        self.line = layers.Dense(1)

    def call(self, x: Any) -> Any:
        """Apply it."""
        return self.line(x)


def tiny_dense() -> Made:
    """Give a step that is over before it has begun."""
    return made(dense_net(8, 1, 4), in_memory(*arrays(8, 4)))


def tiny_regression() -> Made:
    """Give the same in another dress: a class, more rows, one layer."""
    return made(Regression(), in_memory(*arrays(32, 16)))


def wide_dense_few_rows() -> Made:
    """Give layers whose weights take longer to be read than to be multiplied with four rows."""
    return made(dense_net(1536, 3, 1536), in_memory(*arrays(4, 1536)))


def deep_one_row() -> Made:
    """Give a large embedding of features that Adam updates as a whole for a single row."""
    return made(dense_net(1024, 2, 4096), in_memory(*arrays(1, 4096)), optimizer="adam")


def half_dense() -> Made:
    """Give dense layers in float16."""
    return made(dense_net(512, 3, 512, policy="mixed_float16"), in_memory(*arrays(64, 512)))


def half_convolutions() -> Made:
    """Give convolutions in float16."""
    return made(conv_net(16, 3, 16, policy="mixed_float16"), in_memory(*arrays(8, 16, 16, 3)))


def large_convolutions() -> Made:
    """Give a step that is nothing but arithmetic."""
    return made(conv_net(48, 4, 32), in_memory(*arrays(32, 32, 32, 3)))


def few_large_rows() -> Made:
    """Give a small batch of images that are work enough."""
    return made(conv_net(24, 3, 128), in_memory(*arrays(2, 128, 128, 3)))


def half_in_a_corner() -> Made:
    """Give a small layer in float16 in a step of float32."""
    inputs = keras.Input((768,))
    x = inputs
    for _ in range(3):
        x = layers.Dense(768, activation="relu")(x)
    x = layers.Dense(4, dtype="mixed_float16")(x)
    outputs = layers.Dense(1, dtype="float32")(x)
    return made(keras.Model(inputs, outputs), in_memory(*arrays(256, 768)))


def many_rows() -> Made:
    """Give dense layers with rows enough for their weights."""
    return made(dense_net(512, 3, 512), in_memory(*arrays(512, 512)))


def _job(name: str, make: Callable[[], Made], expected: str = "", budget_s: float = 20.0) -> StepJob:
    return StepJob(name, make, expected, budget_s=budget_s)


JOBS = (
    _job("tiny steps: one dense layer of 8 units", tiny_dense, "tiny-steps"),
    _job("tiny steps: a regression in a class", tiny_regression, "tiny-steps"),
    _job("small batch: wide layers, 4 rows", wide_dense_few_rows, "small-batch"),
    _job("small batch: Adam over 5 million weights, 1 row", deep_one_row, "small-batch"),
    _job("healthy: nothing but convolutions", large_convolutions),
    _job("healthy: 2 rows of large images", few_large_rows),
    _job("healthy: a small layer in float16", half_in_a_corner),
    _job("healthy: 512 rows for layers of 512 units", many_rows),
)
"""All of them run without a GPU."""


def _slow_in_half() -> bool:
    """Say whether the processor multiplies in float16 at half its speed or less: newer ones don't."""
    taken = {}
    for dtype in ("float32", "float16"):
        factor = tf.cast(tf.random.normal((512, 512)), dtype)
        product = tf.function(tf.matmul)
        times = []
        for _ in range(6):
            begin = time.perf_counter()
            product(factor, factor).numpy()
            times.append(time.perf_counter() - begin)
        taken[dtype] = min(times)
    return taken["float16"] >= 2 * taken["float32"]


ON_SLOW_HALF = tuple(
    StepJob(f"float16 on the CPU: {name}", make, "low-precision-on-cpu", planted=_slow_in_half)
    for name, make in (("dense layers", half_dense), ("convolutions", half_convolutions))
)

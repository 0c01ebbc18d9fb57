"""Several sources at once, one of them slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.inputs.parts import (
    AUTOTUNE,
    ENDLESS,
    FEATURES,
    Meter,
    batches,
    burn,
    measured,
    model,
    row,
    spin,
    through_numpy,
)
from benchmarks.inputs.suite import Work, planted


@planted("sequential-map", "zip of a slow and a fast source", "map(compute")
def zip_of_slow_and_fast() -> Work:
    """Join rows that are computed one by one with rows from memory."""

    def compute(index: tf.Tensor) -> tf.Tensor:
        return burn(index, 0.004) * 0.0 + tf.random.uniform((FEATURES,))

    slow = tf.data.Dataset.range(ENDLESS).map(compute)
    fast = tf.data.Dataset.from_tensors(tf.zeros((FEATURES,))).repeat().map(lambda x: x + 1.0)
    labels = tf.data.Dataset.from_tensors(tf.zeros((1,))).repeat()
    dataset = tf.data.Dataset.zip(((slow, fast), labels)).batch(4).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=measured(slow, 4))


@planted("python-function-in-map", "nested interleave around Python", "map(", "interleave", "Interleave")
def nested_interleave() -> Work:
    """Read in two levels of interleave what then goes through Python."""

    def work(value: np.ndarray) -> np.ndarray:
        spin(0.004)
        return value

    def inner(start: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(start, start + 100)

    def outer(start: tf.Tensor) -> tf.data.Dataset:
        starts = tf.data.Dataset.range(start, start + 400, 100)
        return starts.interleave(inner, cycle_length=2, num_parallel_calls=AUTOTUNE)

    starts = tf.data.Dataset.range(0, ENDLESS, 400)

    def mapped(value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return row(through_numpy(work, value))

    numbers = starts.interleave(outer, cycle_length=2, num_parallel_calls=AUTOTUNE)
    dataset = numbers.map(mapped, AUTOTUNE).batch(4)
    cost = measured(tf.data.Dataset.range(ENDLESS).map(mapped), 4)
    return Work(model(), dataset.prefetch(AUTOTUNE), cost=cost)


@planted("python-generator", "samples from a generator and from memory", "generator", "Generator")
def sampled() -> Work:
    """Mix batches of which each second one comes slowly out of Python."""
    meter = Meter()
    x, y = np.zeros((32, FEATURES), "float32"), np.zeros((32, 1), "float32")

    def slow() -> Iterator[Any]:
        while True:
            meter.sleep(0.03)
            yield x, y

    spec = (tf.TensorSpec(x.shape, tf.float32), tf.TensorSpec(y.shape, tf.float32))
    generated = tf.data.Dataset.from_generator(slow, output_signature=spec)
    turns = tf.data.Dataset.range(2).repeat()
    dataset = tf.data.Dataset.choose_from_datasets([generated, batches()], turns).prefetch(AUTOTUNE)
    per_call = meter.per_batch()
    return Work(model(), dataset, cost=lambda: per_call() / 2)

"""Python in the input: generators, functions in maps, PyDatasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.inputs.parts import (
    AUTOTUNE,
    ENDLESS,
    FEATURES,
    Meter,
    batch_arrays,
    batches,
    known,
    measured,
    model,
    row,
    spin,
    through_numpy,
)
from benchmarks.inputs.suite import Work, planted

ROW = (tf.TensorSpec((FEATURES,), tf.float32), tf.TensorSpec((1,), tf.float32))
ROWS = (tf.TensorSpec((32, FEATURES), tf.float32), tf.TensorSpec((32, 1), tf.float32))
GENERATOR = ("generator", "Generator")
PY_DATASET = ("PyDataset", "Sequence", "__getitem__", "enerator")


@planted("python-generator", "from_generator of rows", *GENERATOR)
def generated_rows() -> Work:
    """Wait for each row in Python."""
    meter = Meter()

    def rows() -> Iterator[Any]:
        x = np.zeros((FEATURES,), "float32")
        while True:
            meter.sleep(0.005)
            yield x, x[:1]

    dataset = tf.data.Dataset.from_generator(rows, output_signature=ROW).batch(4).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=meter.per_batch(4))


@planted("python-generator", "from_generator of batches, computing", *GENERATOR)
def generated_batches() -> Work:
    """Compute each batch in Python, and refine it in TensorFlow."""
    meter = Meter()

    def several() -> Iterator[Any]:
        batch = batch_arrays()
        while True:
            meter.spin(0.012)
            yield batch

    dataset = tf.data.Dataset.from_generator(several, output_signature=ROWS)
    dataset = dataset.map(lambda x, y: (x * 2.0 + 1.0, y), AUTOTUNE).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=meter.per_batch())


@planted("python-generator", "generator given to fit", *GENERATOR)
def plain_generator() -> Work:
    """Hand `fit` a generator that takes its time."""
    meter = Meter()

    def several() -> Iterator[Any]:
        batch = batch_arrays()
        while True:
            meter.sleep(0.015)
            yield batch

    return Work(model(), several(), cost=meter.per_batch())


@planted("python-generator", "from_generator that parses lines", *GENERATOR)
def generated_lines() -> Work:
    """Parse text in a Python loop."""
    line = ",".join(f"{value:.4f}" for value in np.linspace(0, 1, FEATURES))

    def rows() -> Iterator[Any]:
        while True:
            x = np.array([[float(cell) for cell in line.split(",")] for _ in range(100)], "float32").mean(0)
            yield x, x[:1]

    dataset = tf.data.Dataset.from_generator(rows, output_signature=ROW).batch(64)
    return Work(model(), dataset)


@planted("python-function-in-map", "py_function by row under AUTOTUNE", "map(")
def py_function_rows() -> Work:
    """Compute each row in Python: more threads don't help."""

    def work(value: tf.Tensor) -> tf.Tensor:
        spin(0.004)
        return tf.cast(value, tf.float32)

    def mapped(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return row(tf.ensure_shape(tf.py_function(work, [index], tf.float32), ()))

    numbers = tf.data.Dataset.range(ENDLESS)
    dataset = numbers.map(mapped, AUTOTUNE).batch(4).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=measured(numbers.map(mapped), 4))


@planted("python-function-in-map", "numpy_function by batch under AUTOTUNE", "map(")
def numpy_function_batches() -> Work:
    """Compute each batch in a Python loop."""

    def work(x: np.ndarray) -> np.ndarray:
        spin(0.015)
        return x

    def mapped(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return through_numpy(work, x), y

    dataset = batches().map(mapped, AUTOTUNE).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=measured(batches().map(mapped)))


@planted("python-function-in-map", "tokens counted in Python, four calls", "map(")
def python_tokens() -> Work:
    """Hash the words of a text in Python."""
    text = " ".join(f"word{number % 97}" for number in range(9000))

    def count(given: bytes) -> np.ndarray:
        found = np.zeros((FEATURES,), "float32")
        for word in given.decode().split():
            found[len(word) * 7 % FEATURES] += 1
        return found

    def mapped(given: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = tf.ensure_shape(tf.numpy_function(count, [given], tf.float32), (FEATURES,))
        return x, x[:1]

    dataset = tf.data.Dataset.from_tensors(text).repeat().map(mapped, num_parallel_calls=4).batch(8)
    return Work(model(), dataset)


class Items(keras.utils.PyDataset):
    """A PyDataset that takes its time for each batch."""

    def __init__(self, sleep_s: float = 0.0, spin_s: float = 0.0, **kwargs: Any) -> None:
        """Keep what each batch takes."""
        super().__init__(**kwargs)
        self.meter = Meter()
        self._sleep_s = sleep_s
        self._spin_s = spin_s
        self._batch = batch_arrays()

    @property
    def num_batches(self) -> None:
        """Be endless."""
        return None

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Give the batch, late."""
        if self._sleep_s:
            self.meter.sleep(self._sleep_s)
        if self._spin_s:
            self.meter.spin(self._spin_s)
        return self._batch


class Finite(Items):
    """The same with an end."""

    @property
    def num_batches(self) -> int:
        """Give the batches of an epoch."""
        return 200


@planted("python-dataset-workers", "PyDataset, one worker, waiting", *PY_DATASET)
def one_worker_waits() -> Work:
    """Wait for each batch."""
    items = Items(sleep_s=0.015)
    return Work(model(), items, cost=items.meter.per_batch())


@planted("python-dataset-workers", "PyDataset, one worker, computing, with an end", *PY_DATASET)
def one_worker_computes() -> Work:
    """Compute each batch of a finite epoch."""
    items = Finite(spin_s=0.012)
    return Work(model(), items, {"epochs": 10_000}, cost=items.meter.per_batch())


@planted("python-dataset-workers", "PyDataset, four threads and the GIL", *PY_DATASET)
def threads_and_the_gil() -> Work:
    """Compute in threads, which the GIL makes take turns."""
    items = Items(spin_s=0.012, workers=4, use_multiprocessing=False, max_queue_size=8)
    return Work(model(), items, cost=known(0.012))

"""What the jobs are made of: models with a known step, and work with a known cost."""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.inputs.suite import Cost
from benchmarks.jobs import matmul_chain, turns_for

FEATURES = 16
ENDLESS = 1 << 40
"""Elements of a range that no run sees the end of, and that no memory holds."""

AUTOTUNE = tf.data.AUTOTUNE


# The model -----------------------------------------------------------------------------------


class Steady(keras.Model):
    """A model of any input, whose step computes for a known time on one core."""

    def __init__(self, turns: int) -> None:
        """Keep the length of the chain."""
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self._turns = turns

    def call(self, x: Any) -> Any:
        """Apply the layer to what each row comes to."""
        flat = [tf.reshape(part, (tf.shape(part)[0], -1)) for part in tf.nest.flatten(x)]
        means = [tf.reduce_mean(tf.cast(part, tf.float32), axis=1, keepdims=True) for part in flat]
        return self.dense(tf.add_n(means))

    def train_step(self, data: Any) -> dict[str, Any]:
        """Compute, and train."""
        x, y = data
        with tf.control_dependencies([matmul_chain(y, self._turns)]):
            y = tf.identity(y)
        logs: dict[str, Any] = super().train_step((x, y))
        return logs


class Hungry(Steady):
    """A model whose step keeps all cores busy."""

    def __init__(self, products: int) -> None:
        """Keep the number of large products."""
        super().__init__(1)
        self._products = products

    def train_step(self, data: Any) -> dict[str, Any]:
        """Multiply large matrices, and train."""
        x, y = data
        seed = tf.random.uniform((512, 512)) / 512.0  # not constant, or it would be computed beforehand
        value = seed
        for _ in range(self._products):
            value = tf.matmul(value, seed)
        return super().train_step((x, tf.cast(y, tf.float32) + 1e-20 * value[0, 0]))


@functools.cache
def turns_per_ms() -> float:
    """Find once how many turns of the chain take a millisecond, on a core that nobody else uses."""
    with tf.init_scope():  # also where a dataset's function is being traced
        return max(turns_for(4.0) for _ in range(5)) / 4.0


def model(step_ms: float = 3.0) -> Any:
    """Give a compiled model whose step computes for a time."""
    return _compiled(Steady(max(1, round(turns_per_ms() * step_ms))))


def hungry_model(products: int = 6) -> Any:
    """Give a compiled model whose step takes all cores."""
    return _compiled(Hungry(products))


def _compiled(made: Any) -> Any:
    made.compile("sgd", "mse", jit_compile=False)
    made(np.zeros((1, FEATURES), "float32"))
    return made


# Work in TensorFlow --------------------------------------------------------------------------


def chain(x: tf.Tensor, milliseconds: float) -> tf.Tensor:
    """Compute for about a time, without state: the runtime may do it in parallel, or keep the result."""
    turns = max(1, round(turns_per_ms() * milliseconds))
    return tf.cast(matmul_chain(tf.cast(x, tf.float32), turns), tf.float32)


def burn(x: tf.Tensor, seconds: float) -> tf.Tensor:
    """Compute until a time is over. It reads the clock, so it has state: a serial map stays serial."""
    x = tf.cast(x, tf.float32)
    seed = tf.eye(64) * 0.5 + tf.reduce_sum(x) * 0.0
    end = tf.timestamp() + seconds
    (value,) = tf.while_loop(
        lambda _: tf.timestamp() < end,
        lambda value: (tf.matmul(value, seed),),
        (seed,),
        parallel_iterations=1,
    )
    return tf.reduce_sum(value)


def row(value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Give an example made from a number."""
    value = tf.reshape(tf.cast(value, tf.float32), (1,))
    return tf.tile(value, (FEATURES,)), value


def alone(dataset: tf.data.Dataset, count: int = 40) -> float:
    """Measure what an element of a dataset takes in a thread that does nothing else, in the median."""
    times = []
    iterator = iter(tuned(dataset.prefetch(1), autotune=False, prefetch=False))
    for _ in range(3):
        next(iterator)
    for _ in range(count):
        begin = time.perf_counter()
        next(iterator)
        times.append(time.perf_counter() - begin)
    middle = sorted(times)[count // 10 : -count // 10]
    return statistics.fmean(middle)


def tuned(dataset: tf.data.Dataset, *, autotune: bool = True, prefetch: bool = True) -> tf.data.Dataset:
    """Set what the runtime does by itself."""
    options = tf.data.Options()
    options.autotune.enabled = autotune
    options.experimental_optimization.inject_prefetch = prefetch
    return dataset.with_options(options)


# Work in Python ------------------------------------------------------------------------------

_TOOK: dict[int, list[float]] = {}
"""What calls really took. Not in the meters: a diagnosis puts back what the job's objects hold."""

_NUMBERS = itertools.count()


class Meter:
    """Knows what calls of a function really took."""

    def __init__(self) -> None:
        """Start empty."""
        self._number = next(_NUMBERS)
        _TOOK[self._number] = []

    def sleep(self, seconds: float) -> None:
        """Wait without holding the GIL."""
        begin = time.perf_counter()
        time.sleep(seconds)
        _TOOK[self._number].append(time.perf_counter() - begin)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the one thread of its stage, and note what it took, GIL and all."""
        begin = time.perf_counter()
        function()
        _TOOK[self._number].append(time.perf_counter() - begin)

    def spin(self, seconds: float) -> None:
        """Compute in pure Python, in the one thread of its stage."""
        self.call(lambda: spin(seconds))

    def per_batch(self, calls: int = 1) -> Cost:
        """Give what a batch costs, once the calls were made."""

        def cost() -> float:
            took = _TOOK[self._number]
            return calls * statistics.fmean(took) if took else 0.0

        return cost


def spin(seconds: float) -> None:
    """Compute in pure Python for a processor time, holding the GIL."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))


def known(seconds: float) -> Cost:
    """Give a cost that is certain by construction."""
    return lambda: seconds


def measured(dataset: tf.data.Dataset, times: int = 1) -> Cost:
    """Give a cost that is measured alone whenever it is asked for."""
    return lambda: alone(dataset) * times


def through_numpy(function: Callable[[Any], Any], x: tf.Tensor) -> tf.Tensor:
    """Call a function of one array that gives an array of the same form."""
    result = tf.numpy_function(function, [x], x.dtype)
    result.set_shape(x.shape)
    return result


def batch_arrays(size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Give one batch."""
    x = np.random.default_rng(0).standard_normal((size, FEATURES)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def batches(size: int = 32) -> tf.data.Dataset:
    """Give the same batch for ever."""
    return tf.data.Dataset.from_tensors(batch_arrays(size)).repeat()

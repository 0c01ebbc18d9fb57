"""Maps that are left serial, input that nothing runs ahead of, and tuning that is off."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.inputs import files
from benchmarks.inputs.parts import (
    AUTOTUNE,
    ENDLESS,
    Meter,
    batches,
    burn,
    chain,
    known,
    measured,
    model,
    row,
    through_numpy,
    tuned,
)
from benchmarks.inputs.suite import Work, planted


@planted("sequential-map", "serial map with a random op, by row", "map(")
def random_augmentation() -> Work:
    """Augment row by row with a random op, which keeps the runtime from making the map parallel."""

    def augment(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        noise = tf.random.uniform(())
        return row(noise + 0.0 * burn(index, 0.004))

    dataset = tf.data.Dataset.range(ENDLESS).map(augment).batch(4).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=known(0.004 * 4))


@planted("sequential-map", "serial numpy_function that waits, by batch", "map(")
def waiting_lookup() -> Work:
    """Ask a slow service for each batch, one after the other."""
    meter = Meter()

    def ask(x: np.ndarray) -> np.ndarray:
        meter.sleep(0.014)
        return x

    dataset = batches().map(lambda x, y: (through_numpy(ask, x), y))
    return Work(model(), dataset, cost=meter.per_batch())


@planted("sequential-map", "serial numpy_function without the GIL", "map(")
def big_numpy_calls() -> Work:
    """Raise a large array to a power in NumPy, which lets go of the GIL."""
    meter = Meter()
    table = np.random.default_rng(0).random(3 << 20)
    result = np.empty_like(table)

    def power(x: np.ndarray) -> np.ndarray:
        meter.call(lambda: np.power(table, 1.7, out=result))
        return x

    dataset = batches().map(lambda x, y: (through_numpy(power, x), y)).prefetch(2)
    return Work(model(2), dataset, cost=meter.per_batch())


@planted("missing-prefetch", "sequences are padded between the steps", "padded_batch", "PaddedBatch")
def padded_between_steps() -> Work:
    """Pad and copy sequences for each batch while nothing else happens."""
    sequences = [tf.data.Dataset.from_tensors(np.zeros((size,), "float32")) for size in (150_000, 250_000)]
    both = sequences[0].concatenate(sequences[1]).cache().repeat()
    labels = tf.data.Dataset.from_tensors(np.zeros((1,), "float32")).repeat()
    dataset = tf.data.Dataset.zip((both, labels)).padded_batch(64)
    return Work(model(4), tuned(dataset, prefetch=False))


def _records(name: str) -> tf.data.Dataset:
    path = files.tfrecord(files.place(name) / "records", [files.noise(1 << 19, n) for n in range(32)])
    return tf.data.TFRecordDataset(path).repeat()


@planted("missing-prefetch", "records are read between the steps", "TFRecord")
def records_between_steps() -> Work:
    """Read large records and batch them while nothing else happens."""
    records = _records("between").batch(32).map(files.raw_rows)
    return Work(model(7), tuned(records, autotune=False, prefetch=False))


@planted("missing-prefetch", "two sources zipped between the steps", "TFRecord", "zip(")
def zipped_between_steps() -> Work:
    """Read two files side by side, with nothing running ahead."""
    left, right = _records("left").batch(16), _records("right").batch(16)
    both = tf.data.Dataset.zip((left, right)).map(
        lambda one, other: files.raw_rows(tf.concat([one, other], 0))
    )
    return Work(model(7), tuned(both, autotune=False, prefetch=False))


@planted("autotune-off", "stateless map with autotune off", "map(", accept=("sequential-map",))
def no_autotune() -> Work:
    """Keep the runtime from making a map parallel that could be."""
    rows = tf.data.Dataset.range(ENDLESS).map(lambda index: row(chain(index, 4.0)))
    dataset = tuned(rows.batch(4).prefetch(2), autotune=False)
    return Work(model(2), dataset, cost=measured(rows, 4))


@planted("autotune-off", "num_parallel_calls=1, computing", "map(")
def one_call_at_a_time() -> Work:
    """Fix the parallelism of a heavy map at one."""
    rows = tf.data.Dataset.range(ENDLESS).map(lambda index: row(chain(index, 4.0)), num_parallel_calls=1)
    return Work(model(2), rows.batch(4).prefetch(2), cost=measured(rows, 4))


@planted("autotune-off", "num_parallel_calls=1, waiting", "map(")
def one_wait_at_a_time() -> Work:
    """Fix the parallelism of a map that only waits at one."""
    meter = Meter()

    def ask(x: np.ndarray) -> np.ndarray:
        meter.sleep(0.015)
        return x

    dataset = batches().map(lambda x, y: (through_numpy(ask, x), y), num_parallel_calls=1)
    return Work(model(), dataset, cost=meter.per_batch())

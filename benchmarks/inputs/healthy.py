"""Input that looks slow and keeps up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.inputs import files
from benchmarks.inputs.parts import (
    AUTOTUNE,
    ENDLESS,
    FEATURES,
    batch_arrays,
    batches,
    burn,
    chain,
    model,
    row,
    spin,
    through_numpy,
    tuned,
)
from benchmarks.inputs.python_code import ROWS, Items
from benchmarks.inputs.suite import Work, healthy

STEP_MS = 10.0


@healthy("serial map that keeps up")
def serial_map() -> Work:
    """Have a serial map with state that is done long before the step."""
    dataset = batches().map(lambda x, y: (x + 0.0 * burn(x, 0.002), y)).prefetch(4)
    return Work(model(STEP_MS), dataset)


@healthy("from_generator that keeps up")
def generator() -> Work:
    """Have a generator that is done long before the step."""

    def several() -> Iterator[Any]:
        batch = batch_arrays()
        while True:
            spin(0.001)
            yield batch

    return Work(model(STEP_MS), tf.data.Dataset.from_generator(several, output_signature=ROWS).prefetch(4))


@healthy("py_function that keeps up")
def py_function() -> Work:
    """Call Python in a parallel map, for a short time."""

    def work(x: np.ndarray) -> np.ndarray:
        spin(0.001)
        return x

    dataset = batches().map(lambda x, y: (through_numpy(work, x), y), AUTOTUNE).prefetch(4)
    return Work(model(STEP_MS), dataset)


@healthy("PyDataset with one worker that keeps up")
def py_dataset() -> Work:
    """Sleep a little in one worker."""
    return Work(model(STEP_MS), Items(sleep_s=0.002))


@healthy("no prefetch, batches from memory")
def no_prefetch() -> Work:
    """Have nothing run ahead where there is nothing to do."""
    return Work(model(STEP_MS), tuned(batches(), autotune=False, prefetch=False))


@healthy("small table in slices")
def small_table() -> Work:
    """Cut a small table to rows."""
    x, y = batch_arrays(4000)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(500).repeat().batch(32)
    return Work(model(STEP_MS), dataset)


@healthy("GZIP that keeps up")
def gzip() -> Work:
    """Inflate small records."""
    path = files.tfrecord(files.place("healthy-gzip") / "examples", files.examples(2000), "GZIP")
    records = tf.data.TFRecordDataset(path, compression_type="GZIP").repeat()
    dataset = records.batch(32).map(lambda batch: files.parse(batch, many=True)).prefetch(2)
    return Work(model(STEP_MS), dataset)


@healthy("one TFRecord file that is read fast")
def one_file() -> Work:
    """Read one file, one example at a time."""
    path = files.tfrecord(files.place("healthy-file") / "examples", files.examples(2000))
    records = tf.data.TFRecordDataset(path).repeat()
    dataset = records.map(lambda record: files.parse(record, many=False)).batch(32)
    return Work(model(STEP_MS), dataset)


@healthy("flat_map over files that is fast enough")
def flat_map() -> Work:
    """Read files one after the other."""
    place = files.place("healthy-flat-map")
    names = [files.tfrecord(place / f"{number}", files.examples(200)) for number in range(8)]
    records = tf.data.Dataset.from_tensor_slices(names).repeat().flat_map(tf.data.TFRecordDataset)
    dataset = records.batch(32).map(lambda batch: files.parse(batch, many=True)).prefetch(2)
    return Work(model(STEP_MS), dataset)


@healthy("cache in the middle, augmentation after it")
def cache_in_the_middle() -> Work:
    """Keep what is expensive, and augment what comes from there."""
    rows = tf.data.Dataset.range(320).map(lambda index: row(chain(index, 1.0)), AUTOTUNE).cache().repeat()
    dataset = rows.map(lambda x, y: (x + tf.random.uniform((FEATURES,)), y), AUTOTUNE).batch(32)
    return Work(model(STEP_MS), dataset.prefetch(AUTOTUNE))


@healthy("first epoch slow, then from the cache")
def filled_cache() -> Work:
    """Wait in the first epoch only, which fills the cache."""
    rows = tf.data.Dataset.range(640).map(lambda index: row(chain(index, 1.0)), AUTOTUNE).cache()
    return Work(model(STEP_MS), rows.batch(32).repeat(), {"epochs": 10_000, "steps_per_epoch": 20})


@healthy("large shuffle of small numbers")
def large_shuffle() -> Work:
    """Fill a large buffer with next to nothing."""
    dataset = tf.data.Dataset.range(200_000).shuffle(50_000).map(row, AUTOTUNE).repeat().batch(32)
    return Work(model(STEP_MS), dataset.prefetch(AUTOTUNE))


@healthy("filter that drops most, cheaply")
def cheap_filter() -> Work:
    """Drop three of four numbers before anything is done with them."""
    numbers = tf.data.Dataset.range(ENDLESS).filter(lambda index: index % 4 == 0)
    return Work(model(STEP_MS), numbers.map(row, AUTOTUNE).batch(16).prefetch(AUTOTUNE))


@healthy("autotune off, prefetch written, keeps up")
def no_autotune() -> Work:
    """Turn tuning off where one thread and a prefetch are enough."""
    dataset = batches().map(lambda x, y: (x + 0.0 * chain(x[0, 0], 2.0), y)).prefetch(2)
    return Work(model(STEP_MS), tuned(dataset, autotune=False))


@healthy("num_parallel_calls=1 that keeps up")
def one_call() -> Work:
    """Fix the parallelism at one where that is enough."""
    dataset = batches().map(lambda x, y: (x + 0.0 * chain(x[0, 0], 2.0), y), num_parallel_calls=1)
    return Work(model(STEP_MS), dataset)

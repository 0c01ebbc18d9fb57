"""Sources that are read one after the other, and sources that are compressed."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.inputs import files
from benchmarks.inputs.parts import (
    AUTOTUNE,
    Meter,
    burn,
    known,
    measured,
    model,
    row,
    through_numpy,
)
from benchmarks.inputs.pauses import slow_folder
from benchmarks.inputs.suite import Work, planted

BATCH = 16


def _shards(folder: str, count: int, records: int, size: int, pause_s: float = 0.0) -> list[str]:
    """Write a number of TFRecord files, on slow storage where there is a pause."""
    place = files.place(folder)
    place = slow_folder(place, pause_s) if pause_s else place
    contents = [[files.noise(size, number * 1000 + n) for n in range(records)] for number in range(count)]
    return [files.tfrecord(place / f"{number}", content) for number, content in enumerate(contents)]


@planted(
    "sequential-source",
    "flat_map over files with the latency of a network",
    "flat_map(",
    "FlatMap",
    "TFRecord",
    accept=("slow-storage",),
    needs_pauses=True,
)
def flat_map_of_remote_files() -> Work:
    """Read 16 files one after the other, each read of which waits."""
    names = _shards("flat-map", 16, 16, 1 << 14, 0.015)
    source = tf.data.Dataset.from_tensor_slices(names).repeat().flat_map(tf.data.TFRecordDataset)
    dataset = source.map(files.raw_row, AUTOTUNE).batch(BATCH).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=measured(source.batch(BATCH)))


@planted(
    "sequential-source",
    "interleave of one file at a time, each with a lookup",
    "interleave(",
    "Interleave",
    "map(",
    accept=("sequential-map",),
)
def interleave_of_one() -> Work:
    """Wait for a remote reader's chunks, in one of eight sources at a time."""
    meter = Meter()

    def fetch(index: np.ndarray) -> np.ndarray:
        meter.sleep(0.005)
        return index

    def source(shard: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(64).map(lambda index: through_numpy(fetch, index + shard))

    shards = tf.data.Dataset.range(8).repeat()
    dataset = shards.interleave(source, cycle_length=1).map(row, AUTOTUNE).batch(4).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=meter.per_batch(4))


@planted(
    "sequential-source", "serial interleave of readers that compute", "interleave(", "Interleave", "map("
)
def serial_interleave() -> Work:
    """Decode in the readers, four files open, one thread at work."""

    def source(name: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(name)
        return records.map(lambda record: row(burn(tf.strings.length(record), 0.004)))

    names = _shards("serial-interleave", 8, 64, 256)
    shards = tf.data.Dataset.from_tensor_slices(names).repeat()
    dataset = shards.interleave(source, cycle_length=4, num_parallel_calls=None).batch(4).prefetch(AUTOTUNE)
    return Work(model(2), dataset, cost=known(0.004 * 4))


@planted("sequential-source", "thousands of small TFRecord files in a row", "TFRecord", "flat_map", "FlatMap")
def small_files_in_a_row() -> Work:
    """Open a file for each few records, 4000 of them."""
    names = _shards("small-files", 4000, 1, 256)
    source = tf.data.TFRecordDataset(names).repeat()
    dataset = source.batch(256).map(files.raw_rows, AUTOTUNE).prefetch(AUTOTUNE)
    return Work(model(2), dataset, cost=measured(source.batch(256)))


def _compressed(name: str, compression: str, make: object, size: int, batch: int) -> Work:
    assert callable(make)
    path = files.tfrecord(files.place(name) / "records", [make(size, n) for n in range(64)], compression)
    source = tf.data.TFRecordDataset(path, compression_type=compression).repeat()
    dataset = source.map(files.raw_row, AUTOTUNE).batch(batch).prefetch(AUTOTUNE)
    # Each record is handed on, as in the job, and then dropped: nothing copies them into a batch. (A shard
    # would not do: TFRecordDataset skips records without making strings of them or checking their sums.)
    handed_on = source.map(tf.strings.length).batch(batch)
    return Work(model(2), dataset, cost=measured(handed_on))


@planted("compressed-source", "GZIP records that hardly shrink", "TFRecord")
def gzip_of_noise() -> Work:
    """Inflate a few MB for each batch."""
    return _compressed("gzip", "GZIP", files.noise, 1 << 18, 16)


@planted("compressed-source", "ZLIB records that shrink a lot", "TFRecord")
def zlib_of_patterns() -> Work:
    """Inflate what was mostly repetition."""
    return _compressed("zlib", "ZLIB", files.patterns, 1 << 19, 16)


@planted("compressed-source", "GZIP binary table", "FixedLength")
def gzip_table() -> Work:
    """Inflate records of fixed length."""
    width = 1 << 15
    path = files.place("gzip-table") / "table.gz"
    with tf.io.gfile.GFile(str(path), "wb") as file:
        file.write(_gzipped(files.noise(width * 256)))
    source = tf.data.FixedLengthRecordDataset(str(path), width, compression_type="GZIP").repeat()
    dataset = source.batch(128).map(files.raw_rows, AUTOTUNE).prefetch(AUTOTUNE)
    return Work(model(2), dataset, cost=measured(source.batch(128)))


def _gzipped(content: bytes) -> bytes:
    import gzip

    return gzip.compress(content)

"""Readers that wait for storage, with the processor idle."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.inputs import files
from benchmarks.inputs.parts import AUTOTUNE, FEATURES, measured, model
from benchmarks.inputs.pauses import slow_folder
from benchmarks.inputs.suite import Work, planted

READ = 1 << 18
"""Bytes that TensorFlow's record readers ask for at once."""


@planted("slow-storage", "one TFRecord file on a slow disk", "TFRecord", needs_pauses=True)
def slow_records() -> Work:
    """Wait 15 ms for each 256 KiB, which is a batch."""
    folder = slow_folder(files.place("slow-records"), 0.015)
    path = files.tfrecord(folder / "records", [files.noise(READ // 16, n) for n in range(512)])
    source = tf.data.TFRecordDataset(path).repeat()
    dataset = source.map(files.raw_row, AUTOTUNE).batch(16).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=measured(source.batch(16)))


@planted("slow-storage", "one file of fixed records on a slow disk", "FixedLength", needs_pauses=True)
def slow_fixed_records() -> Work:
    """Wait for each read of a binary file."""
    width = 4096
    path = slow_folder(files.place("slow-fixed"), 0.02) / "table.bin"
    path.write_bytes(files.noise(width * 4096))
    source = tf.data.FixedLengthRecordDataset(str(path), width, buffer_size=READ).repeat()
    dataset = source.batch(64).map(files.raw_rows, AUTOTUNE).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=measured(source.batch(64)))


@planted("slow-storage", "small files on a slow disk, read in parallel", "map(", needs_pauses=True)
def slow_small_files() -> Work:
    """Open and read a file for each example, each with the latency of a network."""
    folder = slow_folder(files.place("slow-small"), 0.003)
    names = []
    for number in range(400):
        path = folder / f"{number}.bin"
        path.write_bytes(files.noise(2048, number))
        names.append(str(path))

    def read(name: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return files.raw_row(tf.io.read_file(name))

    dataset = tf.data.Dataset.from_tensor_slices(names).repeat().map(read, AUTOTUNE).batch(16)
    return Work(model(), dataset)


@planted(
    "slow-storage",
    "text through a parallel interleave, slow disk",
    "nterleave",
    "Text",
    needs_pauses=True,
)
def slow_text() -> Work:
    """Wait for lines although two files are read at once."""
    folder = slow_folder(files.place("slow-text"), 0.025)
    line = ",".join(f"{value:.6f}" for value in np.linspace(0, 1, 100))
    names = []
    for number in range(2):
        path = folder / f"{number}.csv"
        path.write_text(f"{line}\n" * 8000)
        names.append(str(path))
    lines = tf.data.Dataset.from_tensor_slices(names).interleave(
        lambda name: tf.data.TextLineDataset(name).repeat(),
        cycle_length=2,
        block_length=16,
        num_parallel_calls=AUTOTUNE,
    )
    dataset = lines.batch(512).map(_lengths, AUTOTUNE).prefetch(AUTOTUNE)
    return Work(model(), dataset)


def _lengths(lines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    x = tf.cast(tf.strings.length(lines), tf.float32)[:, None]
    return tf.tile(x, (1, FEATURES)), x

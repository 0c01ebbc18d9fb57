"""Work element by element that one call could do for a batch."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.inputs import files
from benchmarks.inputs.parts import AUTOTUNE, FEATURES, model
from benchmarks.inputs.suite import Work, planted


def _table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((rows, FEATURES)).astype("float32")
    return x, x[:, :1]


@planted("per-element-work", "rows normalised one by one, batch 1024", "map(")
def normalise_rows() -> Work:
    """Call a tiny function for each row."""
    one = tuple(part[0] for part in _table(1))
    rows = tf.data.Dataset.from_tensors(one).repeat()
    dataset = rows.map(lambda x, y: ((x - 0.5) / 2.0, y)).batch(1024).prefetch(AUTOTUNE)
    return Work(model(2), dataset)


@planted("per-element-work", "table in slices, scaled under AUTOTUNE, batch 1024", "map(", "slices")
def sliced_table() -> Work:
    """Cut a table to rows, call a tiny function for each, and put them together again."""
    rows = tf.data.Dataset.from_tensor_slices(_table(100_000)).shuffle(1000).repeat()
    dataset = rows.map(lambda x, y: (tf.clip_by_value(x * 0.5, -1.0, 1.0), y), AUTOTUNE).batch(1024)
    return Work(model(2), dataset.prefetch(AUTOTUNE))


@planted("per-element-work", "decode_csv line by line, batch 1024", "map(")
def csv_lines() -> Work:
    """Decode each line by itself."""
    path = files.csv(files.place("csv-lines") / "table.csv", 20_000)

    def decode(line: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        cells = tf.io.decode_csv(line, [0.0] * (FEATURES + 1))
        return tf.stack(cells[:-1]), tf.stack(cells[-1:])

    dataset = tf.data.TextLineDataset(path).repeat().map(decode, AUTOTUNE).batch(1024).prefetch(AUTOTUNE)
    return Work(model(2), dataset)


@planted("per-element-work", "parse_single_example, batch 1024", "map(")
def single_examples() -> Work:
    """Parse each example by itself."""
    path = files.tfrecord(files.place("examples") / "examples", files.examples(4096))
    records = tf.data.TFRecordDataset(path).repeat()
    dataset = records.map(lambda record: files.parse(record, many=False), AUTOTUNE).batch(1024)
    return Work(model(2), dataset.prefetch(AUTOTUNE))

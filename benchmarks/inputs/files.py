"""Small data files in a folder that is gone when the process ends."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.inputs.parts import FEATURES


@functools.cache
def folder() -> Path:
    """Make the folder of this process."""
    made = Path(tempfile.mkdtemp(prefix="tfdiag-inputs-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def place(name: str, within: Path | None = None) -> Path:
    """Make a folder for the files of one job."""
    made = (within or folder()) / name
    made.mkdir(parents=True, exist_ok=True)
    return made


def tfrecord(path: Path, records: list[bytes], compression: str = "") -> str:
    """Write a TFRecord file."""
    with tf.io.TFRecordWriter(str(path), options=compression or None) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def noise(size: int, seed: int = 0) -> bytes:
    """Give bytes that no compression makes much smaller."""
    generator = np.random.default_rng(seed)
    return (generator.integers(0, 64, size, dtype=np.uint8)).tobytes()


def patterns(size: int, seed: int = 0) -> bytes:
    """Give bytes that compression makes a lot smaller."""
    words = np.random.default_rng(seed).integers(0, 255, (64, 16), dtype=np.uint8)
    order = np.random.default_rng(seed + 1).integers(0, 64, size // 16 + 1)
    return words[order].tobytes()[:size]


def examples(count: int) -> list[bytes]:
    """Give serialized `tf.train.Example`s with the usual features."""
    generator = np.random.default_rng(0)
    made = []
    for _ in range(count):
        values = generator.standard_normal(FEATURES)
        x = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        y = tf.train.Feature(float_list=tf.train.FloatList(value=[values.sum()]))
        features = tf.train.Features(feature={"x": x, "y": y})
        made.append(tf.train.Example(features=features).SerializeToString())
    return made


def parse(records: tf.Tensor, *, many: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Read one serialized example, or a batch of them."""
    form = {"x": tf.io.FixedLenFeature((FEATURES,), tf.float32), "y": tf.io.FixedLenFeature((1,), tf.float32)}
    read = tf.io.parse_example if many else tf.io.parse_single_example
    found = read(records, form)
    return found["x"], found["y"]


def csv(path: Path, rows: int, columns: int = FEATURES) -> str:
    """Write a CSV file of numbers."""
    table = np.random.default_rng(0).standard_normal((rows, columns + 1))
    np.savetxt(path, table, fmt="%.4f", delimiter=",")
    return str(path)


def jpegs(count: int, side: int) -> list[bytes]:
    """Give encoded pictures, each a smooth one with some noise."""
    generator = np.random.default_rng(0)
    rise = np.add.outer(np.arange(side), np.arange(side))[..., None] * 255 // (2 * side)
    made = []
    for _ in range(count):
        picture = np.clip(rise + generator.integers(0, 40, (side, side, 3)), 0, 255).astype("uint8")
        made.append(bytes(tf.io.encode_jpeg(picture).numpy()))
    return made


def raw_row(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Make an example of a record's first bytes."""
    start = tf.strings.substr(record, 0, FEATURES)
    x = tf.ensure_shape(tf.cast(tf.io.decode_raw(start, tf.uint8), tf.float32), (FEATURES,))
    return x, x[:1]


def raw_rows(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Make a batch of the first bytes of records."""
    x = tf.cast(tf.io.decode_raw(tf.strings.substr(records, 0, FEATURES), tf.uint8), tf.float32)
    return x, x[:, :1]

"""Input that is as it should be on a machine that is too small, and input slow for reasons of its own."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.inputs import files
from benchmarks.inputs.parts import AUTOTUNE, ENDLESS, burn, chain, hungry_model, known, model, row
from benchmarks.inputs.suite import Work, planted


@planted("input-cpu-contention", "parallel map and a model on all cores", "map(")
def map_against_model() -> Work:
    """Make random data on all cores while the model wants them too."""

    def make(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return row(tf.random.uniform(()) + 0.0 * chain(index, 0.7))

    dataset = tf.data.Dataset.range(ENDLESS).map(make, AUTOTUNE).batch(16).prefetch(AUTOTUNE)
    return Work(hungry_model(), dataset)


@planted("input-cpu-contention", "pictures augmented against a model on all cores", "map(")
def pictures_against_model() -> Work:
    """Decode and augment pictures on all cores while the model wants them too."""
    encoded = tf.constant(files.jpegs(64, 224))

    def decode(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        picture = tf.io.decode_jpeg(encoded[index % 64], channels=3)
        picture = tf.image.random_flip_left_right(tf.image.random_crop(picture, (192, 192, 3)))
        picture = tf.image.resize(tf.image.random_hue(picture, 0.1), (64, 64))
        return picture, tf.reduce_mean(picture)[None]

    dataset = tf.data.Dataset.range(ENDLESS).map(decode, AUTOTUNE).batch(16).prefetch(AUTOTUNE)
    return Work(hungry_model(), dataset)


@planted("unknown-input", "scan that computes", "scan(", "Scan")
def slow_scan() -> Work:
    """Carry a state from element to element, expensively."""

    def step(state: tf.Tensor, index: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        state = 0.9 * state + 0.0 * burn(index, 0.004)
        return state, row(state)

    dataset = tf.data.Dataset.range(ENDLESS).scan(tf.constant(1.0), step).batch(4).prefetch(AUTOTUNE)
    return Work(model(), dataset, cost=known(0.004 * 4))


@planted("unknown-input", "group_by_window with a slow reduction", "group_by_window(", "GroupByWindow")
def slow_windows() -> Work:
    """Reduce windows with a function that computes."""

    def reduce(key: tf.Tensor, window: tf.data.Dataset) -> tf.data.Dataset:
        return window.batch(16).map(lambda x, y: (x + 0.0 * burn(x, 0.016), y))

    rows = tf.data.Dataset.from_tensors(row(tf.constant(1.0))).repeat()
    dataset = rows.group_by_window(lambda x, y: tf.constant(0, tf.int64), reduce, window_size=16)
    return Work(model(), dataset.prefetch(AUTOTUNE), cost=known(0.016))


@planted("unknown-input", "batches of huge copies", "batch(")
def huge_copies() -> Work:
    """Copy 128 MB for each batch, of which the model needs little."""
    picture = (tf.zeros((1 << 20,)), tf.zeros((1,)))
    dataset = tf.data.Dataset.from_tensors(picture).repeat().batch(32, drop_remainder=True)
    dataset = dataset.map(lambda x, y: (x[:, :16], y)).prefetch(AUTOTUNE)
    return Work(model(2), dataset)

"""Work that is thrown away, and buffers that delay the start."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.inputs import files
from benchmarks.inputs.parts import AUTOTUNE, ENDLESS, chain, model, row
from benchmarks.inputs.suite import Work, planted


def _augmented(milliseconds: float) -> object:
    """Give a map's function that computes, and is random, so that nobody may keep its results."""

    def augment(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return row(tf.random.uniform(()) + 0.0 * chain(index, milliseconds))

    return augment


@planted("discarded-work", "shard after an expensive map", "map(")
def shard_after_map() -> Work:
    """Compute eight elements and keep one."""
    dataset = tf.data.Dataset.range(ENDLESS).map(_augmented(0.5), AUTOTUNE).shard(8, 3).batch(4)
    return Work(model(2), dataset.prefetch(AUTOTUNE))


@planted("discarded-work", "filter after decoding pictures", "map(")
def filter_after_decode() -> Work:
    """Decode pictures and keep the tenth of them, by what was known before."""
    encoded = tf.constant(files.jpegs(64, 96))

    def decode(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        picture = tf.io.decode_jpeg(encoded[index % 64], channels=3)
        picture = tf.image.random_brightness(tf.cast(picture, tf.float32), 0.1)
        return picture, tf.cast(tf.reshape(index % 64, (1,)), tf.float32), index

    dataset = tf.data.Dataset.range(ENDLESS).map(decode, AUTOTUNE)
    dataset = dataset.filter(lambda picture, label, index: index % 10 == 0)
    dataset = dataset.map(lambda picture, label, index: (picture, label)).batch(8).prefetch(AUTOTUNE)
    return Work(model(2), dataset)


@planted("discarded-work", "skip after an expensive map in short epochs", "map(", "skip")
def skip_after_map() -> Work:
    """Compute 600 elements of each epoch only to skip them."""
    dataset = tf.data.Dataset.range(1000).map(_augmented(0.5), AUTOTUNE).skip(600).batch(8)
    return Work(model(3), dataset.prefetch(AUTOTUNE), {"epochs": 10_000})


@planted("shuffle-buffer", "shuffle of an epoch after a heavy map", "shuffle(", "Shuffle")
def shuffle_after_map() -> Work:
    """Fill the buffer with all of a short epoch before its first step."""
    dataset = tf.data.Dataset.range(800).map(_augmented(0.6), AUTOTUNE).shuffle(800).batch(8)
    return Work(model(4), dataset.prefetch(AUTOTUNE), {"epochs": 10_000})


@planted("shuffle-buffer", "shuffle of decoded pictures", "shuffle(", "Shuffle")
def shuffle_of_pictures() -> Work:
    """Fill a buffer with large pictures before each epoch."""
    encoded = tf.data.Dataset.from_tensor_slices(files.jpegs(320, 352))

    def decode(picture: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        decoded = tf.image.random_flip_left_right(tf.io.decode_jpeg(picture, channels=3))
        return tf.ensure_shape(decoded, (352, 352, 3)), tf.cast(decoded[0, 0, :1], tf.float32)

    dataset = encoded.map(decode, AUTOTUNE).shuffle(320).batch(8).prefetch(AUTOTUNE)
    return Work(model(8), dataset, {"epochs": 10_000})

"""Work that a cache would save, and caches that save nothing."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.inputs import files
from benchmarks.inputs.parts import AUTOTUNE, FEATURES, chain, model, row
from benchmarks.inputs.suite import Work, planted

EPOCHS = {"epochs": 10_000}


def _features(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the same features for the same number, expensively."""
    return row(chain(index, 1.0))


def _picture(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    picture = tf.image.resize(tf.io.decode_jpeg(encoded, channels=3), (32, 32))
    return tf.ensure_shape(picture, (32, 32, 3)), tf.reduce_mean(picture)[None]


@planted("uncached-work", "features computed again each epoch", "map(")
def features_each_epoch() -> Work:
    """Compute in parallel what was computed in the epoch before."""
    dataset = tf.data.Dataset.range(800).map(_features, AUTOTUNE).batch(16).prefetch(AUTOTUNE)
    return Work(model(2), dataset, EPOCHS)


@planted("uncached-work", "pictures decoded again each epoch", "map(")
def pictures_each_epoch() -> Work:
    """Decode and resize the same pictures in each epoch."""
    place = files.place("pictures")
    names = []
    for number, picture in enumerate(files.jpegs(640, 224)):
        path = place / f"{number}.jpg"
        path.write_bytes(picture)
        names.append(str(path))
    dataset = tf.data.Dataset.from_tensor_slices(names).shuffle(640)
    dataset = dataset.map(lambda name: _picture(tf.io.read_file(name)), AUTOTUNE).batch(16).prefetch(AUTOTUNE)
    return Work(model(2), dataset, EPOCHS)


@planted("uncached-work", "text split again each epoch, repeated in the dataset", "map(")
def text_each_epoch() -> Work:
    """Split and hash batches of lines again and again, in one endless epoch."""
    lines = [" ".join(f"w{number % (17 + n)}" for number in range(1200)) for n in range(1024)]

    def hashed(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        words = tf.strings.split(batch)
        found = tf.strings.to_hash_bucket_fast(words, 100).to_tensor(shape=(None, 1200))
        x = tf.cast(found, tf.float32)
        return x[:, :FEATURES], tf.reduce_mean(x, axis=1, keepdims=True)

    dataset = tf.data.Dataset.from_tensor_slices(lines).batch(256).map(hashed, AUTOTUNE).repeat()
    return Work(model(1), dataset.prefetch(AUTOTUNE))


@planted("ineffective-cache", "cache before the expensive map", "map(")
def cache_before_map() -> Work:
    """Keep the numbers, and compute the features in each epoch."""
    dataset = tf.data.Dataset.range(800).cache().map(_features, AUTOTUNE).batch(16).prefetch(AUTOTUNE)
    return Work(model(2), dataset, EPOCHS)


@planted("ineffective-cache", "cache of the encoded pictures, not of the decoded", "map(")
def cache_before_decode() -> Work:
    """Keep the files, and decode them in each epoch."""
    dataset = tf.data.Dataset.from_tensor_slices(files.jpegs(640, 224)).cache()
    dataset = dataset.map(_picture, AUTOTUNE).batch(16).prefetch(AUTOTUNE)
    return Work(model(2), dataset, EPOCHS)


@planted("ineffective-cache", "cache that take() never lets be completed", "map(", "cache")
def cache_never_complete() -> Work:
    """Take a part of what would be cached, so that nothing is kept."""
    dataset = tf.data.Dataset.range(1000).map(_features, AUTOTUNE).cache().take(480).batch(16)
    return Work(model(2), dataset.repeat().prefetch(AUTOTUNE))

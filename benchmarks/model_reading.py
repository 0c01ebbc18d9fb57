"""Read the runtime's model of a running pipeline, and not, in steps of about 5 ms.

    python -m benchmarks.model_reading [--quads N]

One process and one job: TFRecord files, read and decoded by a pipeline of twelve stages of which five work
in parallel. Blocks of steps follow each other as A B B A. In both the callback is ours, with the same
recorder; in A the recorder takes the model for gone, as it does where tf.data keeps none. With steps of 5 ms
either one looks every 90 steps; each block counts three such looks.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdiag
from benchmarks.blocks import Blocks
from benchmarks.jobs import matmul_chain, turns_for
from benchmarks.stats import Goal, bootstrap, report
from tfdiag.collect.recorder import Recorder

LIMIT = 1.01
STEP_MS = 4.0
"""Of computation; dispatching it, and what the input takes from the cores, makes it about five."""
STAGES_LEAST = 10
STEPS = 331
SKIPPED = 60
WARMUP_BLOCKS = 2
FILES = 8
ROWS = 256
SIDE = 24
BATCH = 16


class Unread(Recorder):
    """A recorder that never reads the runtime's model."""

    def __init__(self) -> None:
        """Take the model for gone from the start."""
        super().__init__(time.perf_counter)
        self._reader.gone = True


class Steady(keras.Model):
    """A model that computes for a given time."""

    def __init__(self, turns: int) -> None:
        """Keep the length of the computation."""
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self._turns = turns

    def call(self, x: Any) -> Any:
        """Compute, and apply the layer."""
        x = tf.reduce_mean(x, axis=(1, 2))
        return self.dense(x + 0.0 * matmul_chain(x, self._turns))


def write_files(folder: Path) -> list[str]:
    """Write images and labels."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(FILES):
        path = str(folder / f"part-{number}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for row in range(ROWS):
                image = tf.io.encode_png(random.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).numpy()
                features = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                    "label": tf.train.Feature(float_list=tf.train.FloatList(value=[float(row % 2)])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
        paths.append(path)
    return paths


def pipeline(paths: list[str]) -> tf.data.Dataset:
    """Read, decode, mix and batch images, as it is usually done."""
    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([1], tf.float32)}

    def decode(row: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.ensure_shape(tf.io.decode_png(row["image"], 3), (SIDE, SIDE, 3)), row["label"]

    def flip(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.image.random_flip_left_right(image), label

    def scale(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(images, tf.float32) / 255.0, labels

    tuned = tf.data.AUTOTUNE
    return (
        tf.data.Dataset.from_tensor_slices(paths)
        .shuffle(FILES)
        .repeat()
        .interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tuned)
        .map(lambda row: tf.io.parse_single_example(row, spec), num_parallel_calls=tuned)
        .map(decode, num_parallel_calls=tuned)
        .filter(lambda _, label: label[0] >= 0.0)
        .shuffle(512)
        .map(flip, num_parallel_calls=tuned)
        .batch(BATCH, drop_remainder=True)
        .map(scale, num_parallel_calls=tuned)
        .prefetch(tuned)
    )


def main() -> None:
    """Measure the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quads", type=int, default=40)
    chosen = parser.parse_args()

    model = Steady(turns_for(STEP_MS))
    model.compile("sgd", "mse")
    recorders: list[Recorder] = []

    def reading() -> Any:
        recorders[:] = [Recorder(time.perf_counter)]
        return tfdiag.DiagnosticsCallback.recording(recorders[0])

    def blind() -> Any:
        return tfdiag.DiagnosticsCallback.recording(Unread())

    with tempfile.TemporaryDirectory() as folder:
        blocks = Blocks(model, pipeline(write_files(Path(folder))), STEPS, SKIPPED)
        found = blocks.compare(blind, reading, quads=chosen.quads, warmup=WARMUP_BLOCKS)
    read = recorders[0].stages
    stages = [] if read is None else [stage.name for stage in read.stages]
    value, low, high = bootstrap(found.ratios)
    step = found.step_s
    print(f"step without reading the model: {step * 1e3:.3f} ms; stages: {', '.join(stages)}")
    print(f"reading the model adds {step * (value - 1) * 1e6:.2f} microseconds a step")
    goals = [
        Goal(
            "step of about 5 ms with the pipeline's model read over one without", value, LIMIT,
            low=low, high=high,
        ),
        Goal("stages in the model that was read", len(stages), STAGES_LEAST, above=True),
    ]  # fmt: skip
    report("model_reading", goals, {"ratios": found.ratios, "step_s": step, "stages": stages})


if __name__ == "__main__":
    main()

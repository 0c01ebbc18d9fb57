"""A small network that trains on pictures, fed by an augmentation that is far too slow.

The report goes to the terminal, to tfdiag-report.html and to tfdiag-report.json.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's greetings
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # and its note about rounding

import keras
import numpy as np
import tensorflow as tf

import tfdiag

rng = np.random.default_rng(seed=7)
images = rng.integers(0, 256, size=(2048, 96, 96, 3), dtype=np.uint8)
labels = rng.integers(0, 10, size=2048)


def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Vary a picture at random: its random operations keep tf.data from running it in parallel."""
    image = tf.image.random_jpeg_quality(image, 60, 95)
    image = tf.image.convert_image_dtype(image, tf.float32)
    image = tf.image.random_saturation(image, 0.5, 1.5)
    return tf.image.random_hue(image, 0.1), label


dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2048).map(augment).batch(32)

model = keras.Sequential(
    [
        keras.Input((96, 96, 3)),
        keras.layers.Conv2D(8, 3, strides=4, activation="relu"),
        keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(10),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])

report = tfdiag.diagnose(model, dataset)
print(report)
report.save("tfdiag-report.html")
report.save("tfdiag-report.json")

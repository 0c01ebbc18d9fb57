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
images = rng.integers(0, 256, size=(8192, 32, 32, 3), dtype=np.uint8)
labels = rng.integers(0, 10, size=8192)


def smear(image: np.ndarray) -> np.ndarray:
    """Smear a picture downwards, one row and one colour at a time, and add noise."""
    picture = image.astype(np.float32) / 255
    for row in range(1, 32):
        for colour in range(3):
            above, here = picture[row - 1 : row + 1, :, colour]
            picture[row, :, colour] = 0.7 * here + 0.3 * above
    return picture + rng.normal(scale=0.05, size=picture.shape).astype(np.float32)


def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Call the Python function on one picture."""
    smeared = tf.numpy_function(smear, [image], tf.float32)
    return tf.ensure_shape(smeared, image.shape), label


dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2048).map(augment).batch(64)

model = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
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

"""Training as usual, with an instrument that watches each step and writes a log."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's greetings
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # and its note about rounding

import keras
import numpy as np
import tensorflow as tf

import tfdiag

rng = np.random.default_rng(seed=7)
features = rng.normal(size=(16_384, 64)).astype(np.float32)
targets = features.sum(axis=1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((features, targets)).shuffle(16_384).batch(32)

model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dense(1),
    ]
)
model.compile("adam", "mse")

watcher = tfdiag.DiagnosticsCallback(log_dir="tfdiag-logs")
model.fit(dataset, epochs=3, callbacks=[watcher], verbose=0)
print(watcher.report())

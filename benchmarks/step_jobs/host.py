"""Causes in Python around the step and in its compilation, and look-alikes that cost nothing.

Where a cause has a known length, it is made by a loop that spins for as long: a sleep gives the core to the
step's own threads, and takes as long as the system likes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.step_jobs.form import StepJob

__all__ = ["JOBS"]

_MS = 1e-3
_WIDTH = 256
_ROWS = 128
_BUSY_ROWS = 512


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _model(width: int = _WIDTH, units: int = 256, layers: int = 3, **options: Any) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Dense(units, "relu") for _ in range(layers)]
    model = keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
    model.compile("adam", "mse", **{"jit_compile": False, **options})
    return model


def _busy_model() -> Any:
    """Give a model that computes for so long that nothing else counts, on as many rows as belong to it."""
    return _model(units=512, layers=4)


def _data(batches: int = 100_000, rows: int = _ROWS, width: int = _WIDTH) -> Any:
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, width)).astype("float32")
    return tf.data.Dataset.from_tensors((x, np.zeros((rows, 1), "float32"))).repeat(batches)


def _callback(**hooks: Any) -> Any:
    """Give a callback with these hooks; each gets the callback and what Keras passes."""
    import keras

    def method(function: Any) -> Any:
        return lambda self, *args, **kwargs: function(self, *args)

    members = {name: method(function) for name, function in hooks.items()}
    return type("Planted", (keras.callbacks.Callback,), members)()


def _with(*callbacks: Any, **kwargs: Any) -> dict[str, Any]:
    return {"fit_kwargs": {"callbacks": list(callbacks), **kwargs}}


def _folder() -> str:
    return tempfile.mkdtemp(prefix="planted-")


# Callbacks --------------------------------------------------------------------------------------


def each_batch() -> tuple[Any, Any, dict[str, Any]]:
    """Compute for three milliseconds after each batch."""
    return _model(), _data(), _with(_callback(on_train_batch_end=lambda *_: _spin(3 * _MS)))


def in_a_list() -> tuple[Any, Any, dict[str, Any]]:
    """The same under the hook's old name, in a list of callbacks that stands in the list."""
    import keras

    model = _model()
    inner = keras.callbacks.CallbackList([_callback(on_batch_end=lambda *_: _spin(3 * _MS))], model=model)
    return model, _data(), _with(inner)


def each_epoch() -> tuple[Any, Any, dict[str, Any]]:
    """Compute for 200 ms after each epoch of 40 steps."""
    return _model(), _data(40), _with(_callback(on_epoch_end=lambda *_: _spin(200 * _MS)))


def predicts_each_epoch() -> tuple[Any, Any, dict[str, Any]]:
    """Predict the same rows after each epoch of 20 steps."""
    import numpy as np

    rows = np.zeros((4096, _WIDTH), "float32")
    hook = _callback(on_epoch_end=lambda self, *_: self.model.predict(rows, verbose=0, batch_size=64))
    return _model(), _data(20), _with(hook)


# Checkpoints ------------------------------------------------------------------------------------


def checkpoint_each_batch() -> tuple[Any, Any, dict[str, Any]]:
    """Save after each batch, because `save_freq` counts batches."""
    import keras

    path = str(Path(_folder()) / "best.weights.h5")
    return (
        _model(),
        _data(),
        _with(keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=1)),
    )


def own_checkpoint() -> tuple[Any, Any, dict[str, Any]]:
    """Save in a callback of one's own, every five batches."""
    path = str(Path(_folder()) / "mine.weights.h5")

    def save(self: Any, batch: int, *_: Any) -> None:
        if batch % 5 == 0:
            self.model.save_weights(path)

    return _model(), _data(), _with(_callback(on_train_batch_end=save))


def backup_of_short_epochs() -> tuple[Any, Any, dict[str, Any]]:
    """Back up after each epoch of ten steps."""
    import keras

    model = _model()
    return model, _data(10), _with(keras.callbacks.BackupAndRestore(_folder()))


# Summaries --------------------------------------------------------------------------------------


def summaries_each_batch() -> tuple[Any, Any, dict[str, Any]]:
    """Write a summary after each batch that takes three milliseconds to make."""
    import tensorflow as tf

    writer = tf.summary.create_file_writer(_folder())

    def made() -> Any:
        _spin(3 * _MS)
        return tf.constant(1.0)

    def write(_: Any, batch: int, *__: Any) -> None:
        with writer.as_default():
            tf.summary.write("planted", made, step=batch)

    return _model(), _data(), _with(_callback(on_train_batch_end=write))


def summaries_each_epoch() -> tuple[Any, Any, dict[str, Any]]:
    """Write all weights after each epoch of ten steps."""
    import tensorflow as tf

    writer = tf.summary.create_file_writer(_folder())

    def write(self: Any, epoch: int, *_: Any) -> None:
        with writer.as_default():
            for weight in self.model.weights * 20:
                # What a summary is made of is computed inside of it, as histograms are.
                tf.summary.write(
                    weight.path, lambda kept=weight: tf.sort(tf.reshape(kept.value, [-1])), step=epoch
                )
            writer.flush()

    return _model(), _data(10), _with(_callback(on_epoch_end=write))


# Waits for values -------------------------------------------------------------------------------


def reads_all_keys() -> tuple[Any, Any, dict[str, Any]]:
    """Fetch all keys of a lookup table after each batch: text is copied for Python one by one."""
    import tensorflow as tf

    keys = tf.strings.as_string(tf.range(200_000))
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(keys, tf.range(200_000, dtype=tf.int64))
    read = _callback(on_train_batch_end=lambda *_: table.export()[0].numpy())
    return _model(), _data(), _with(read)


def own_step_reads() -> tuple[Any, Any, dict[str, Any]]:
    """Read the words that the step returns, in a loop of one's own."""
    import tensorflow as tf

    weight = tf.Variable(tf.ones((_WIDTH, 1)))
    words = tf.constant(["a word"] * 200_000)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        weight.assign_sub(1e-3 * tape.gradient(loss, weight))
        return tf.identity(words)

    kept: list[int] = []

    def train_step(batch: Any) -> None:
        kept[:] = [len(step(*batch).numpy())]

    return None, _data(), {"train_step": train_step}


# Validation -------------------------------------------------------------------------------------


def long_validation() -> tuple[Any, Any, dict[str, Any]]:
    """Validate on as much as is trained on."""
    return _model(), _data(100), _with(validation_data=_data(100))


def validation_steps_in_samples() -> tuple[Any, Any, dict[str, Any]]:
    """Validate for as many steps as there are rows, over data that repeats."""
    return _model(), _data(150), _with(validation_data=_data(4, rows=32).repeat(), validation_steps=4 * 32)


# Traces and compilation -------------------------------------------------------------------------


def _own(function: Any, units: int = 1) -> Any:
    import tensorflow as tf

    weight = tf.Variable(tf.ones((_WIDTH, units)))

    def step(x: Any, y: Any, rate: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        weight.assign_sub(rate * tape.gradient(loss, weight))
        return loss

    return function(step)


def python_float() -> tuple[Any, Any, dict[str, Any]]:
    """Pass a rate that decays as a Python number."""
    import tensorflow as tf

    step, rate = _own(tf.function), [1e-3]

    def train_step(batch: Any) -> None:
        rate[0] *= 0.999
        step(*batch, rate[0])

    return None, _data(), {"train_step": train_step}


def lengths(longest: int = 400, *, few: bool = False, width: int = 16) -> Any:
    """Give batches of sequences of another length each time."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    choice = [128, 256] if few else list(range(8, longest))

    def batches() -> Any:
        for _ in range(100_000):
            length = int(rng.choice(choice))
            yield np.ones((16, length, width), "float32"), np.ones((16, 1), "float32")

    spec = (tf.TensorSpec((16, None, width)), tf.TensorSpec((16, 1)))
    return tf.data.Dataset.from_generator(batches, output_signature=spec)


def own_step_of_many_shapes() -> tuple[Any, Any, dict[str, Any]]:
    """Call a `tf.function` with batches of another length each time."""
    import tensorflow as tf

    weight = tf.Variable(tf.ones((16, 1)))

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.reduce_mean(x, 1) @ weight - y) ** 2)
        weight.assign_sub(1e-3 * tape.gradient(loss, weight))
        return loss

    return None, lengths(2000), {"train_step": lambda batch: step(*batch)}


def made_anew() -> tuple[Any, Any, dict[str, Any]]:
    """Make the `tf.function` in each step."""
    import tensorflow as tf

    plain = _own(lambda function: function)
    rate = tf.constant(1e-3)
    return None, _data(), {"train_step": lambda batch: tf.function(plain)(*batch, rate)}


def _sequences(width: int = 16, units: int = 32, **options: Any) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    hidden = keras.layers.Dense(units, "relu")
    layers = [keras.Input((None, width)), hidden, keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    return model


def xla_of_many_shapes() -> tuple[Any, Any, dict[str, Any]]:
    """Compile a step with XLA whose batches have another length each time."""
    return _sequences(jit_compile=True), lengths(), {}


# Healthy ----------------------------------------------------------------------------------------


def cheap_callback() -> tuple[Any, Any, dict[str, Any]]:
    """Count batches."""
    counted: list[int] = []
    return (
        _busy_model(),
        _data(rows=_BUSY_ROWS),
        _with(_callback(on_train_batch_end=lambda _, batch, *__: counted.append(batch))),
    )


def rare_values() -> tuple[Any, Any, dict[str, Any]]:
    """Read the weights every two hundred batches."""

    def read(self: Any, batch: int, *_: Any) -> None:
        if batch % 200 == 0:
            [w.value.numpy() for w in self.model.weights]

    return _busy_model(), _data(rows=_BUSY_ROWS), _with(_callback(on_train_batch_end=read))


def short_validation() -> tuple[Any, Any, dict[str, Any]]:
    """Validate on a tenth."""
    return _busy_model(), _data(200, _BUSY_ROWS), _with(validation_data=_data(10, _BUSY_ROWS))


def checkpoint_of_long_epochs() -> tuple[Any, Any, dict[str, Any]]:
    """Save after each epoch of 400 steps."""
    import keras

    path = str(Path(_folder()) / "best.weights.h5")
    saver = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    return _busy_model(), _data(400, _BUSY_ROWS), _with(saver)


def last_batch_is_smaller() -> tuple[Any, Any, dict[str, Any]]:
    """Call a `tf.function` with a smaller batch at the end of each epoch: one more trace.

    Nothing is tuned: taking down the iterator of an epoch waits for the tuning thread, now and then for half
    a second, which a job with epochs of a second does lose.
    """
    import numpy as np
    import tensorflow as tf

    step = _own(tf.function, units=2048)
    rows = 50 * _BUSY_ROWS + 7
    x, y = np.ones((rows, _WIDTH), "float32"), np.zeros((rows, 1), "float32")
    rate = tf.constant(1e-3)
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(_BUSY_ROWS).prefetch(2).with_options(options)
    return None, dataset, {"train_step": lambda batch: step(*batch, rate)}


def xla_of_few_shapes() -> tuple[Any, Any, dict[str, Any]]:
    """Compile a step with XLA whose batches have one of two lengths."""
    return _sequences(64, 1024, jit_compile=True), lengths(few=True, width=64), {}


def eager_by_argument() -> tuple[Any, Any, dict[str, Any]]:
    """Leave the switch on that helps to look into a step."""
    return _model(run_eagerly=True), _data(), {}


def eager_everywhere() -> tuple[Any, Any, dict[str, Any]]:
    """Run all functions eagerly, which is a switch of the whole process: the job needs one of its own."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    return _model(units=64, layers=6), _data(rows=32), {}


def short_epochs() -> tuple[Any, Any, dict[str, Any]]:
    """Call each four batches an epoch."""
    return _model(), _data(4), {"fit_kwargs": {"epochs": 100_000}}


def short_epochs_of_arrays() -> tuple[Any, Any, dict[str, Any]]:
    """Train on few rows, as `fit` takes them."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.standard_normal((4 * _ROWS, _WIDTH)).astype("float32")
    y = np.zeros((len(x), 1), "float32")
    return _model(), x, {"y": y, "batch_size": _ROWS, "fit_kwargs": {"epochs": 100_000}}


def _alone(batches: int = 100_000) -> tuple[Any, Any, dict[str, Any]]:
    """Give the job on which causes are planted, without one."""
    return _model(), _data(batches), {}


JOBS = (
    StepJob("eager-by-argument", eager_by_argument, "eager-step", twin=_alone),
    StepJob("eager-everywhere", eager_everywhere, "eager-step"),
    StepJob("short-epochs", short_epochs, "epoch-overhead"),
    StepJob("short-epochs-of-arrays", short_epochs_of_arrays, "epoch-overhead"),
    StepJob("callback-each-batch", each_batch, "slow-callback", 3 * _MS),
    StepJob("callback-in-a-list", in_a_list, "slow-callback", 3 * _MS),
    StepJob("callback-each-epoch", each_epoch, "slow-callback", 5 * _MS),
    StepJob("callback-predicts", predicts_each_epoch, "slow-callback", twin=lambda: _alone(20)),
    StepJob("checkpoint-each-batch", checkpoint_each_batch, "frequent-checkpoint", twin=_alone),
    StepJob("checkpoint-of-ones-own", own_checkpoint, "frequent-checkpoint", twin=_alone),
    StepJob("backup-of-short-epochs", backup_of_short_epochs, "frequent-checkpoint",
            twin=lambda: _alone(10)),
    StepJob("summaries-each-batch", summaries_each_batch, "summary-writing", twin=_alone),
    StepJob("summaries-each-epoch", summaries_each_epoch, "summary-writing", twin=lambda: _alone(10)),
    StepJob("values-of-a-table", reads_all_keys, "host-sync-per-step", beside=("slow-callback",)),
    StepJob("values-in-own-step", own_step_reads, "host-sync-per-step"),
    StepJob("validation-long", long_validation, "validation-dominates", twin=lambda: _alone(100)),
    StepJob("validation-steps-in-samples", validation_steps_in_samples, "validation-dominates"),
    StepJob("retrace-python-float", python_float, "retracing"),
    StepJob("retrace-shapes", own_step_of_many_shapes, "retracing"),
    StepJob("retrace-made-anew", made_anew, "retracing"),
    StepJob("xla-shapes", xla_of_many_shapes, "xla-recompiling"),
    StepJob("healthy-cheap-callback", cheap_callback, ""),
    StepJob("healthy-rare-values", rare_values, ""),
    StepJob("healthy-short-validation", short_validation, ""),
    StepJob("healthy-checkpoint", checkpoint_of_long_epochs, ""),
    StepJob("healthy-last-batch", last_batch_is_smaller, ""),
    StepJob("healthy-xla", xla_of_few_shapes, ""),
)  # fmt: skip

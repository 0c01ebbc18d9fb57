"""Causes in the environment: memory that grows, and other jobs on the same cores.

A container's quota can't be planted from inside of a job: `cpu-quota` has its unit tests only.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from typing import Any

from benchmarks.step_jobs.form import StepJob

__all__ = ["JOBS"]

_RIVAL = """
import os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
step = tf.function(lambda x: x @ x * 1e-3)
x = tf.random.normal((600, 600))
step(x)
print(os.getpid(), flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end and os.path.exists(f"/proc/{sys.argv[2]}"):
    x = step(x)
"""
_LAUNCH = "import subprocess, sys; subprocess.Popen([sys.executable, *sys.argv[1:]])"
"""A job that is not a child of this one: what a job starts by itself is a part of it."""
_RIVAL_S = 90.0


def _model(width: int = 256, units: int = 256, layers: int = 3) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Dense(units, "relu") for _ in range(layers)]
    model = keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    return model


def _busy_model() -> Any:
    """Give a model that computes for so long that nothing else counts, on 512 rows."""
    return _model(units=512, layers=4)


def _arrays(rows: int, width: int = 256) -> tuple[Any, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.standard_normal((rows, width)).astype("float32"), np.zeros((rows, 1), "float32")


def _data(rows: int = 128) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(_arrays(rows)).repeat(100_000)


# Memory that grows -----------------------------------------------------------------------------


def kept_by_a_callback() -> tuple[Any, Any, dict[str, Any]]:
    """Keep eight megabytes of each step in a list."""
    import keras
    import numpy as np

    class Keeps(keras.callbacks.Callback):
        async_safe = True

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen.append(np.ones(1 << 20))

    return _busy_model(), _data(512), {"fit_kwargs": {"callbacks": [Keeps()]}}


def kept_by_the_input() -> tuple[Any, Any, dict[str, Any]]:
    """Keep each batch in a Python function of the input: a cache of one's own that nobody empties."""
    import numpy as np
    import tensorflow as tf

    seen: list[Any] = []

    def remember(x: Any) -> Any:
        seen.append(np.repeat(x, 16, axis=0))
        return x

    def remembered(x: Any, y: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(remember, [x], x.dtype), x.shape), y

    return _busy_model(), _data(512).map(remembered), {}


def shuffle_that_is_filled() -> tuple[Any, Any, dict[str, Any]]:
    """Shuffle with a buffer of many batches: it fills before the first step."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(_arrays(20_000)).repeat().shuffle(50_000).batch(512)
    return _busy_model(), data.prefetch(2), {}


def bounded_buffer() -> tuple[Any, Any, dict[str, Any]]:
    """Keep the last hundred steps, as a moving average does: soon full, and full for good."""
    import collections

    import keras
    import numpy as np

    class KeepsSome(keras.callbacks.Callback):
        async_safe = True

        def __init__(self) -> None:
            super().__init__()
            self.seen: Any = collections.deque(maxlen=100)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen.append(np.ones(1 << 16))

    return _busy_model(), _data(512), {"fit_kwargs": {"callbacks": [KeepsSome()]}}


# Others on the same cores ----------------------------------------------------------------------


def _beside(jobs: int) -> None:
    """Start other jobs; they end by themselves, and with this process."""
    for _ in range(jobs):
        arguments = ["-c", _RIVAL, str(_RIVAL_S), str(os.getpid())]
        with subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, *arguments], stdout=subprocess.PIPE
        ) as launcher:
            assert launcher.stdout is not None
            atexit.register(_end, int(launcher.stdout.readline()))


def _end(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def another_job() -> tuple[Any, Any, dict[str, Any]]:
    """Train beside another TensorFlow job that has as many threads as there are cores."""
    _beside(1)
    return _model(512, 512, 4), _data_of(512), {}


def two_other_jobs() -> tuple[Any, Any, dict[str, Any]]:
    """Train beside two of them, with an input that computes as well."""
    import tensorflow as tf

    _beside(2)
    data = _data_of(512).map(lambda x, y: (tf.sin(x) + tf.cos(x), y), num_parallel_calls=tf.data.AUTOTUNE)
    return _model(512, 256, 2), data.prefetch(2), {}


def _data_of(width: int, rows: int = 256) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(_arrays(rows, width)).repeat(100_000)


def more_threads_than_cores() -> tuple[Any, Any, dict[str, Any]]:
    """Tell TensorFlow to use 64 threads a pool: only in a process where it has not computed yet."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(64)
    tf.config.threading.set_inter_op_parallelism_threads(64)
    return all_cores_for_one()


def all_cores_for_one() -> tuple[Any, Any, dict[str, Any]]:
    """Keep all cores busy with step and input of one job: many threads, each with work of its own."""
    import tensorflow as tf

    data = _data_of(512, rows=1024)
    data = data.map(lambda x, y: (tf.sin(x) + tf.cos(x), y), num_parallel_calls=tf.data.AUTOTUNE)
    return _model(512, 512, 4), data.prefetch(tf.data.AUTOTUNE), {}


JOBS = (
    StepJob("memory kept by a callback", kept_by_a_callback, "memory-growth", beside=("slow-callback",)),
    StepJob(
        "memory kept by the input", kept_by_the_input, "memory-growth", beside=("python-function-in-map",)
    ),
    StepJob("shuffle buffer that is filled", shuffle_that_is_filled, ""),
    StepJob("bounded buffer that is filled", bounded_buffer, ""),
    StepJob("all cores for one job", all_cores_for_one, ""),
    # Work that is spread over 64 threads costs the same however little it is, which a bigger batch shares.
    StepJob(
        "more threads than cores", more_threads_than_cores, "oversubscribed-threads", beside=("small-batch",)
    ),
    StepJob("another job on the same cores", another_job, "oversubscribed-threads"),
    StepJob("two other jobs on the same cores", two_other_jobs, "oversubscribed-threads"),
)

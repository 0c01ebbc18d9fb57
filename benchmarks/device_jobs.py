"""Jobs for the simulated GPU: what they consist of, and how one is run and diagnosed in its own process.

A scenario names its machine, its job and the verdict that its make-up calls for. The job trains undisturbed
before and after the diagnosis, with a mark in the simulated GPU's log at both ends of each call.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

UNTIMED = {"compute": 0}
"""Results are garbage, times are right: the host has no part in what a kernel takes."""
ENDLESS = 100_000


@dataclass(frozen=True)
class Scenario:
    """A job on a machine."""

    name: str
    verdict: str
    job: Callable[..., Job]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    preset: str = "default"
    knobs: Mapping[str, Any] = field(default_factory=dict)
    healthy: bool = False
    """Looks suspicious, and is not: nothing to warn of."""


@dataclass
class Job:
    """What is handed to `fit`, or to a loop of one's own, and to `diagnose`."""

    model: Any
    data: Any
    """A dataset, the arguments that arrays are handed over in, or a function that gives a new generator."""
    fit_kwargs: dict[str, Any] = field(default_factory=dict)
    train_step: Callable[[Any], Any] | None = None

    def arguments(self, name: str) -> dict[str, Any]:
        """Give the data as arguments; `name` is that of the first one."""
        if isinstance(self.data, dict):
            return dict(self.data)
        return {name: self.data() if isinstance(self.data, FunctionType) else self.data}


# Models ----------------------------------------------------------------------------------------


def dense(
    width: int, units: int, layers: int, *, base: Any = None, middle: Any = None, **compiled: Any
) -> Any:
    """Give a stack of dense layers, with another layer in the middle if there is one."""
    import keras

    keras.utils.set_random_seed(1)
    hidden: list[Any] = [keras.layers.Dense(units, "relu") for _ in range(layers)]
    if middle is not None:
        hidden.insert(layers // 2, middle)
    model = (base or keras.Sequential)([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False, **compiled)
    return model


def convolutions(side: int, filters: int, layers: int) -> Any:
    """Give a small image model."""
    import keras

    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Conv2D(filters, 3, padding="same", activation="relu") for _ in range(layers)]
    model = keras.Sequential(
        [keras.Input((side, side, 3)), *hidden, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    )
    model.compile("adam", "mse", jit_compile=False)
    return model


def batch(rows: int, width: int, *more: int) -> tuple[Any, Any]:
    """Give one batch of noise that no smaller type could hold."""
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.standard_normal((rows, width, *more)).astype("float32"), np.zeros((rows, 1), "float32")


def in_memory(arrays: tuple[Any, Any], count: int = ENDLESS) -> Any:
    """Give a dataset of one batch again and again."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(arrays).repeat(count)


def late(data: Any, seconds: float) -> Any:
    """Sleep for each batch, in one serial map."""
    import tensorflow as tf

    def sleep(value: Any) -> Any:
        time.sleep(seconds)
        return value

    return data.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(sleep, [x], x.dtype), x.shape), y))


# Jobs ------------------------------------------------------------------------------------------


def plain(
    rows: int = 256,
    width: int = 512,
    units: int = 512,
    layers: int = 4,
    sleep_s: float = 0.0,
    prefetch: int = 0,
    epoch: int = ENDLESS,
    validation: int = 0,
    to_device: bool = False,
    **compiled: Any,
) -> Job:
    """Train dense layers on batches of a dataset."""
    import tensorflow as tf

    arrays = batch(rows, width)
    data = in_memory(arrays, epoch)
    if sleep_s:
        data = late(data, sleep_s)
    if prefetch:
        data = data.prefetch(prefetch)
    if to_device:
        data = data.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2))
    kwargs = {"validation_data": in_memory(arrays, validation)} if validation else {}
    return Job(dense(width, units, layers, **compiled), data, kwargs)


def images(rows: int, side: int, filters: int, layers: int) -> Job:
    """Train convolutions."""
    return Job(convolutions(side, filters, layers), in_memory(batch(rows, side, side, 3)))


def cpu_op(rows: int, width: int, units: int, layers: int, size: int) -> Job:
    """Compute on the CPU in the middle of the step."""
    import keras
    import tensorflow as tf

    class OnTheHost(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            with tf.device("CPU:0"):
                square = tf.reshape(tf.tile(tf.reduce_sum(x)[None], [size * size]), (size, size))
                return x + 0.0 * tf.reduce_mean(tf.stop_gradient(tf.matmul(square, square)))

    return Job(dense(width, units, layers, middle=OnTheHost()), in_memory(batch(rows, width)))


def generator(rows: int, width: int, units: int, layers: int, sleep_s: float) -> Job:
    """Take batches from a Python generator that is slow."""
    import tensorflow as tf

    arrays = batch(rows, width)

    def slowly() -> Iterator[tuple[Any, Any]]:
        while True:
            time.sleep(sleep_s)
            yield arrays

    kinds = tuple(tf.TensorSpec(array.shape, array.dtype) for array in arrays)
    return Job(dense(width, units, layers), tf.data.Dataset.from_generator(slowly, output_signature=kinds))


def generator_once(rows: int, width: int, units: int, layers: int, sleep_s: float) -> Job:
    """Take batches from a Python generator that is slow, and that nobody can begin again."""
    arrays = batch(rows, width)

    def slowly() -> Iterator[tuple[Any, Any]]:
        while True:
            time.sleep(sleep_s)
            yield arrays

    return Job(dense(width, units, layers), slowly)


def pydataset(rows: int, width: int, units: int, layers: int, sleep_s: float) -> Job:
    """Take batches from a PyDataset that is slow."""
    import keras

    arrays = batch(rows, width)

    class Slow(keras.utils.PyDataset):
        @property
        def num_batches(self) -> int:
            return ENDLESS

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            time.sleep(sleep_s)
            return arrays

    return Job(dense(width, units, layers), Slow())


def with_callback(kind: str, **arguments: Any) -> Job:
    """Do something after each batch: read the loss, read weights, or sleep."""
    import keras

    class Reads(keras.callbacks.Callback):
        def on_train_batch_end(self, index: int, logs: Any = None) -> None:
            self.seen = float(logs["loss"])

    class ReadsWeights(keras.callbacks.Callback):
        async_safe = True

        def on_train_batch_end(self, index: int, logs: Any = None) -> None:
            self.seen = self.model.layers[1].kernel.numpy()

    class Sleeps(keras.callbacks.Callback):
        async_safe = True

        def on_train_batch_end(self, index: int, logs: Any = None) -> None:
            time.sleep(0.01)

    kinds = {"loss": Reads, "weights": ReadsWeights, "sleep": Sleeps}
    job = plain(**arguments)
    job.fit_kwargs["callbacks"] = [kinds[kind]()]
    return job


def custom_step(rows: int, width: int, units: int, layers: int) -> Job:
    """Train with a train step of one's own."""
    import keras
    import tensorflow as tf

    class Custom(keras.Sequential):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                error = tf.reduce_mean((self(x, training=True) - y) ** 2)
            gradients = tape.gradient(error, self.trainable_variables)
            gradients = [tf.clip_by_norm(gradient, 1.0) for gradient in gradients]
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"error": error}

    return Job(dense(width, units, layers, base=Custom), in_memory(batch(rows, width)))


def own_loop(rows: int, width: int, units: int, layers: int, sleep_s: float, reads: bool) -> Job:
    """Train in a loop of one's own, which reads the loss of each step or does not."""
    import tensorflow as tf

    model = dense(width, units, layers)
    model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            error = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(error, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return error

    def train(each: Any) -> None:
        error = step(*each)
        if reads:
            error.numpy()

    data = in_memory(batch(rows, width))
    return Job(model, late(data, sleep_s) if sleep_s else data, train_step=train)


def arrays(rows: int, width: int, units: int, layers: int) -> Job:
    """Hand arrays to fit."""
    import numpy as np

    x, y = batch(rows, width)
    data = {"x": np.tile(x, (40, 1)), "y": np.tile(y, (40, 1)), "batch_size": rows}
    return Job(dense(width, units, layers), data)


def mirrored(rows: int, width: int, units: int, layers: int) -> Job:
    """Train on two GPUs, which exchange gradients."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())
    with strategy.scope():
        model = dense(width, units, layers)
    return Job(model, in_memory(batch(rows, width)))


BUSY = {"gflops": 60, **UNTIMED}
SCENARIOS = (
    Scenario(
        "slow bus", "transfer-bound", plain, {"width": 4096, "units": 64, "layers": 2}, "slow bus", UNTIMED
    ),
    Scenario(
        "pageable copies", "transfer-bound", plain, {"width": 2048, "units": 64, "layers": 2},
        knobs={"pageable_gbps": 0.3, **UNTIMED},
    ),
    Scenario(
        "copy as long as the compute", "transfer-bound", plain, {"width": 1024},
        knobs={"pageable_gbps": 0.05, **BUSY},
    ),
    Scenario("tiny kernels", "launch-bound", plain, {"rows": 16, "width": 32, "units": 32, "layers": 24}),
    Scenario(
        "slow launch", "launch-bound", plain, {"rows": 16, "width": 64, "units": 64, "layers": 6},
        "slow launch", UNTIMED,
    ),
    Scenario(
        "eager", "launch-bound", plain, {"rows": 64, "width": 64, "units": 64, "run_eagerly": True},
        knobs=UNTIMED,
    ),
    Scenario(
        "CPU op in the step", "launch-bound", cpu_op,
        {"rows": 256, "width": 512, "units": 256, "layers": 4, "size": 512}, knobs=BUSY,
    ),
    Scenario("slow map", "input-bound", plain, {"units": 256, "layers": 2, "sleep_s": 0.02}, knobs=BUSY),
    Scenario(
        "slow generator", "input-bound", generator,
        {"rows": 256, "width": 512, "units": 256, "layers": 2, "sleep_s": 0.015}, knobs=BUSY,
    ),
    Scenario(
        "slow generator that is read once", "input-bound", generator_once,
        {"rows": 256, "width": 512, "units": 256, "layers": 2, "sleep_s": 0.015}, knobs=BUSY,
    ),
    Scenario(
        "slow PyDataset", "input-bound", pydataset,
        {"rows": 256, "width": 512, "units": 256, "layers": 2, "sleep_s": 0.015}, knobs=BUSY,
    ),
    Scenario(
        "input longer than the step", "input-bound", plain, {"sleep_s": 0.06, "prefetch": 2}, knobs=BUSY
    ),
    Scenario("compute", "compute-bound", plain, knobs=BUSY),
    Scenario("small GPU", "compute-bound", plain, {"units": 256, "layers": 3}, "small GPU", UNTIMED),
    Scenario(
        "convolutions", "compute-bound", images, {"rows": 32, "side": 32, "filters": 32, "layers": 3},
        knobs={"gflops": 60, "mem_gbps": 50, **UNTIMED},
    ),
    Scenario(
        "loss read after each step", "transfer-bound", with_callback,
        {"kind": "loss", "units": 128, "layers": 2}, knobs={"copy_us": 2000, **BUSY},
    ),
    Scenario(
        "weights read after each step", "transfer-bound", with_callback,
        {"kind": "weights", "units": 1024, "layers": 2, "width": 1024},
        "slow bus", {"gflops": 400, **UNTIMED},
    ),
    Scenario("slow callback", "host-bound", with_callback, {"kind": "sleep", "units": 256}, knobs=BUSY),
    Scenario(
        "two GPUs", "communication-bound", mirrored,
        {"rows": 128, "width": 1024, "units": 1024, "layers": 3}, "two GPUs",
        {"d2d_gbps": 0.5, "gflops": 500, **UNTIMED},
    ),
    Scenario(
        "four steps a call", "compute-bound", plain, {"units": 384, "steps_per_execution": 4}, knobs=BUSY
    ),
    Scenario(
        "custom train step", "compute-bound", custom_step,
        {"rows": 256, "width": 512, "units": 384, "layers": 4}, knobs=BUSY,
    ),
    Scenario(
        "validation", "host-bound", plain,
        {"units": 256, "layers": 2, "epoch": 25, "validation": 40}, knobs=BUSY,
    ),
    Scenario(
        "short epochs of a slow input", "input-bound", plain,
        {"units": 256, "layers": 2, "sleep_s": 0.02, "epoch": 12}, knobs=BUSY,
    ),
    Scenario(
        "loop of one's own", "input-bound", own_loop,
        {"rows": 256, "width": 512, "units": 256, "layers": 2, "sleep_s": 0.02, "reads": True}, knobs=BUSY,
    ),
    Scenario(
        "loop that runs ahead", "compute-bound", own_loop,
        {"rows": 256, "width": 512, "units": 512, "layers": 4, "sleep_s": 0.0, "reads": False}, knobs=BUSY,
    ),
    Scenario(
        "arrays", "compute-bound", arrays, {"rows": 256, "width": 512, "units": 512, "layers": 4}, knobs=BUSY
    ),
    # Nothing is wrong with these, whatever they look like.
    Scenario(
        "hidden copy", "compute-bound", plain, {"width": 1024, "units": 1024, "to_device": True},
        knobs={"gflops": 200, "launch_us": 100, "pageable_gbps": 0.2, "h2d_gbps": 0.2, **UNTIMED},
        healthy=True,
    ),
    Scenario(
        "small copies that are enough", "compute-bound", plain, {"width": 1024}, knobs=BUSY, healthy=True
    ),
    Scenario(
        "many kernels on a busy device", "compute-bound", plain,
        {"units": 256, "width": 256, "layers": 30}, knobs=BUSY, healthy=True,
    ),
    Scenario("short pause between epochs", "compute-bound", plain, {"epoch": 25}, knobs=BUSY, healthy=True),
    Scenario(
        "slow input that is hidden", "compute-bound", plain, {"sleep_s": 0.012, "prefetch": 4},
        knobs=BUSY, healthy=True,
    ),
)  # fmt: skip


# In the process with the simulated GPU ---------------------------------------------------------


class Load:
    """The cores that other processes take: what disturbs both the truth and the diagnosis."""

    def __init__(self) -> None:
        """Begin now."""
        self._last = self._read()

    def _read(self) -> tuple[float, float]:
        import psutil

        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        return time.monotonic(), busy - time.process_time()

    def of_others(self) -> float:
        """Give how many they took since the last time."""
        before, self._last = self._last, self._read()
        return max(0.0, (self._last[1] - before[1]) / (self._last[0] - before[0]))


def train(probe: Any, job: Job, seconds: float) -> None:
    """Train undisturbed for a while, with a mark at both ends of each call."""
    end = time.monotonic() + seconds
    if job.train_step is not None:
        batches = iter(job.data)
        while time.monotonic() < end:
            probe.mark("call")
            job.train_step(next(batches))
            probe.mark("done")
        return
    import keras

    class Marks(keras.callbacks.Callback):
        async_safe = True

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            probe.mark("epoch")

        def on_test_begin(self, logs: Any = None) -> None:
            probe.mark("test")

        def on_test_end(self, logs: Any = None) -> None:
            probe.mark("tested")

    model = job.model
    model.make_train_function()
    function = model.train_function

    def marked(iterator: Any) -> Any:
        probe.mark("call")
        result = function(iterator)
        probe.mark("done")
        if time.monotonic() > end:
            model.stop_training = True
        return result

    model.train_function = marked
    given = dict(job.fit_kwargs)
    callbacks = [*given.pop("callbacks", ()), Marks()]
    try:
        model.fit(**job.arguments("x"), **given, epochs=ENDLESS, callbacks=callbacks, verbose=0)
    finally:
        model.train_function = function
    # A fit that is told to stop leaves its iterator in a circle, and taking that down may wait for as long as
    # it is old: now, and not in the middle of another run.
    gc.collect()


def run(probe: Any, name: str, seconds: float, budget: float, trace: bool = True) -> dict[str, Any]:
    """Train, diagnose and train again; give what the report says."""
    import tfdiag

    scenario = next(each for each in SCENARIOS if each.name == name)
    job = scenario.job(**scenario.arguments)
    train(probe, job, 1.0)  # traces and compiles
    load = Load()
    probe.mark("before")
    train(probe, job, seconds)
    probe.mark("diagnosis")
    others = [load.of_others()]
    report = tfdiag.diagnose(
        job.model,
        **job.arguments("dataset"),
        fit_kwargs=job.fit_kwargs,
        train_step=job.train_step,
        budget=budget,
        verify=False,
        trace=trace,
        progress=probe.mark,
    )
    others.append(load.of_others())
    probe.mark("after")
    train(probe, job, seconds)
    probe.mark("end")
    others.append(load.of_others())
    steps_per_call = 1 if job.train_step else job.model.steps_per_execution
    del job
    gc.collect()  # a generator that is alive when Python ends may wait for ever
    return {
        "steps_per_call": steps_per_call,
        "others": others,
        "report": report.to_dict(),
        "trace": f"{str(report.measurements.device)[:3000]}\n{report.measurements.estimates}",
        "text": str(report),
    }

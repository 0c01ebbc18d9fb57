"""Synthetic jobs that record, from the inside, where their own time goes.

Every job appends marks to a `Tape` while it runs: when `fit` begins a step, when the first and the
last op of the step run, how long an input stage slept, a callback burned and validation took. The
truth is computed from these marks, so a sleep that overshoots is known by what it really took.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

FEATURES = 16
BATCH = 32

InputKind = Literal["memory", "no overlap", "prefetch", "autotune", "generator", "PyDataset"]


_MARKS: dict[int, list[tuple[str, float]]] = {}
"""The marks of every tape. Not in the tape: a diagnosis puts back what the job's objects hold."""


class Tape:
    """Marks in the order in which they happened."""

    def __init__(self) -> None:
        """Start empty."""
        self._number = len(_MARKS)
        _MARKS[self._number] = []

    @property
    def marks(self) -> list[tuple[str, float]]:
        """Give all marks so far."""
        return _MARKS[self._number]

    def mark(self, what: str) -> None:
        """Note that something happens now."""
        self.marks.append((what, time.perf_counter()))


@dataclass(frozen=True)
class Plan:
    """The make-up of a job, in milliseconds."""

    name: str
    step_ms: float
    input: InputKind = "memory"
    sleep_ms: float = 0.0
    callback_ms: float = 0.0
    validation_batches: int = 0
    validation_sleep_ms: float = 2.0
    epoch: int = 0
    """Steps of an epoch; 0 for one endless epoch."""
    steps_per_execution: int = 1
    run_eagerly: bool = False


@dataclass
class Job:
    """A plan made real: what is handed to `fit` or `diagnose`."""

    plan: Plan
    model: Any
    dataset: Any
    fit_kwargs: dict[str, Any]
    tape: Tape = field(repr=False)


# The step ------------------------------------------------------------------------------------


def matmul_chain(x: tf.Tensor, turns: int) -> tf.Tensor:
    """Compute for a while, in TensorFlow alone."""
    seed = tf.eye(64) * 0.5 + tf.reduce_sum(x) * 0.0
    _, result = tf.while_loop(
        lambda turn, _: turn < turns,
        lambda turn, value: (turn + 1, tf.matmul(value, seed)),
        (tf.constant(0), seed),
        parallel_iterations=1,
    )
    return tf.reduce_sum(result)


def turns_for(milliseconds: float) -> int:
    """Find how long the chain must be to take a time."""
    if milliseconds <= 0:
        return 0
    turns, x = 200, tf.zeros((1, 1))
    chain = tf.function(matmul_chain)
    chain(x, turns)
    times = []
    for _ in range(15):
        begin = time.perf_counter()
        chain(x, turns).numpy()
        times.append(time.perf_counter() - begin)
    return max(1, round(turns * milliseconds / 1000 / statistics.median(times)))


class Marked(keras.Model):
    """A model whose train step marks its first and its last op."""

    def __init__(self, tape: Tape, turns: int) -> None:
        """Keep the tape and the length of the chain."""
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self._tape = tape
        self._turns = turns

    def call(self, x: Any) -> Any:
        """Apply the layer."""
        return self.dense(x)

    def _mark(self, what: str) -> Any:
        def now() -> np.int64:
            self._tape.mark(what)
            return np.int64(0)

        return tf.numpy_function(now, [], tf.int64)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Mark, compute, train, mark."""
        x, y = data
        with tf.control_dependencies([x, y]):
            start = self._mark("start")
        with tf.control_dependencies([start]):
            x = tf.identity(x)
            if self._turns:
                x = x + 0.0 * matmul_chain(x, self._turns)
        logs: dict[str, Any] = super().train_step((x, y))
        with tf.control_dependencies(list(tf.nest.flatten(logs))):
            end = self._mark("end")
        with tf.control_dependencies([end]):
            return {name: tf.identity(value) for name, value in logs.items()}


def plain_model(inside: Callable[[], object] | None = None) -> Any:
    """Give a small compiled model, with a function that each of its training steps calls."""
    model = Called(inside) if inside else keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model(np.zeros((1, FEATURES), "float32"))
    return model


class Called(keras.Model):
    """A model whose train step calls a Python function."""

    def __init__(self, inside: Callable[[], object]) -> None:
        """Keep the function."""
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self._inside = inside

    def call(self, x: Any) -> Any:
        """Apply the layer."""
        return self.dense(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Call the function, and train."""

        def call() -> np.int64:
            self._inside()
            return np.int64(0)

        with tf.control_dependencies([tf.numpy_function(call, [], tf.int64)]):
            data = tf.nest.map_structure(tf.identity, data)
        logs: dict[str, Any] = super().train_step(data)
        return logs


# The input -----------------------------------------------------------------------------------


def batch_arrays() -> tuple[np.ndarray, np.ndarray]:
    """Give one batch."""
    x = np.random.default_rng(0).standard_normal((BATCH, FEATURES)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


class SleepingBatches(keras.utils.PyDataset):
    """A PyDataset that sleeps for each batch."""

    def __init__(self, seconds: float, tape: Tape) -> None:
        """Keep what each batch takes."""
        super().__init__()
        self._seconds = seconds
        self._tape = tape
        self._batch = batch_arrays()

    @property
    def num_batches(self) -> None:
        """Be endless."""
        return None

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Give the batch, late."""
        sleep(self._seconds, self._tape)
        return self._batch


def sleep(seconds: float, tape: Tape) -> None:
    """Sleep, and note how long it really took."""
    tape.mark("sleep")
    time.sleep(seconds)
    tape.mark("slept")


def input_of(kind: InputKind, seconds: float, tape: Tape) -> Any:
    """Build an endless input that takes its time for each batch."""
    if kind == "PyDataset":
        return SleepingBatches(seconds, tape)
    if kind == "generator":
        return tf.data.Dataset.from_generator(
            lambda: _generated(seconds, tape),
            output_signature=(
                tf.TensorSpec((BATCH, FEATURES), tf.float32),
                tf.TensorSpec((BATCH, 1), tf.float32),
            ),
        )
    dataset = tf.data.Dataset.from_tensors(batch_arrays()).repeat()
    if seconds:
        dataset = dataset.map(lambda x, y: (_late(x, seconds, tape), y))
    if kind == "autotune":
        return dataset
    if kind == "prefetch":
        dataset = dataset.prefetch(4)
    return without_autotune(dataset)


def _generated(seconds: float, tape: Tape) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    batch = batch_arrays()
    for _ in itertools.count():
        sleep(seconds, tape)
        yield batch


def _late(x: tf.Tensor, seconds: float, tape: Tape) -> tf.Tensor:
    def wait(value: np.ndarray) -> np.ndarray:
        sleep(seconds, tape)
        return value

    late = tf.numpy_function(wait, [x], x.dtype)
    late.set_shape(x.shape)
    return late


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keep the runtime from overlapping by itself."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


# The callback --------------------------------------------------------------------------------


class Marks(keras.callbacks.Callback):
    """Marks what `fit` does; asks for no logs, so that it adds no synchronisation."""

    async_safe = True

    def __init__(self, tape: Tape) -> None:
        """Keep the tape."""
        super().__init__()
        self._tape = tape

    def on_train_begin(self, logs: Any = None) -> None:
        """Mark a new run of `fit`."""
        self._tape.mark("fit")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Mark a new epoch."""
        self._tape.mark("epoch")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Mark a new step."""
        self._tape.mark("begin")

    def on_test_begin(self, logs: Any = None) -> None:
        """Mark the begin of validation."""
        self._tape.mark("validation")

    def on_test_end(self, logs: Any = None) -> None:
        """Mark the end of validation."""
        self._tape.mark("validated")


class Burns(keras.callbacks.Callback):
    """Keeps the processor busy after each step."""

    def __init__(self, seconds: float, tape: Tape) -> None:
        """Keep how long."""
        super().__init__()
        self._seconds = seconds
        self._tape = tape

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Burn, and note how long it really took."""
        self._tape.mark("burn")
        end = time.perf_counter() + self._seconds
        while time.perf_counter() < end:
            pass
        self._tape.mark("burnt")


# Building and reading ------------------------------------------------------------------------


def build(plan: Plan) -> Job:
    """Make the job of a plan."""
    tape = Tape()
    model = Marked(tape, turns_for(plan.step_ms))
    model.compile(
        "sgd",
        "mse",
        steps_per_execution=plan.steps_per_execution,
        run_eagerly=plan.run_eagerly,
    )
    model(np.zeros((1, FEATURES), "float32"))
    callbacks: list[Any] = [Marks(tape)]
    if plan.callback_ms:
        callbacks.append(Burns(plan.callback_ms / 1000, tape))
    kwargs: dict[str, Any] = {"callbacks": callbacks, "verbose": 0, "shuffle": False}
    if plan.epoch:
        kwargs |= {"steps_per_epoch": plan.epoch, "epochs": 10_000}
    if plan.validation_batches:
        validation = input_of("no overlap", plan.validation_sleep_ms / 1000, Tape())
        kwargs["validation_data"] = validation.take(plan.validation_batches)
    dataset = input_of(plan.input, plan.sleep_ms / 1000, tape)
    return Job(plan, model, dataset, kwargs, tape)


@dataclass(frozen=True)
class Truth:
    """What a steady step of a job took, seconds, by its own marks."""

    step: float
    input_wait: float
    compute: float
    callback: float
    validation: float
    request: float
    """From the begin of the step in `fit` to its first op; the wait is in here."""
    sleep: float
    steps: int

    @property
    def rest(self) -> float:
        """What is neither wait nor compute: the loop, its callbacks, dispatch."""
        return self.step - self.input_wait - self.compute


@dataclass
class _Step:
    begin: float
    first_of_epoch: bool
    start: float = 0.0
    end: float = 0.0
    callback: float = 0.0
    validation: float = 0.0
    opened: dict[str, float] = field(default_factory=dict)

    def read(self, what: str, at: float) -> None:
        """Take in a mark that belongs to this step, which includes what follows it."""
        if what == "start":
            self.start = self.start or at
        elif what == "end":
            self.end = self.end or at
        elif what == "burnt":
            self.callback += at - self.opened["burn"]
        elif what == "validated":
            self.validation += at - self.opened["validation"]
        else:
            self.opened[what] = at


def _steps(marks: list[tuple[str, float]]) -> list[list[_Step]]:
    """Read the marks: for each run of `fit`, its steps."""
    runs: list[list[_Step]] = []
    new_epoch = False
    for what, at in marks:
        if what == "fit":
            runs.append([])
        elif what == "epoch":
            new_epoch = True
        elif what == "begin":
            runs[-1].append(_Step(at, new_epoch))
            new_epoch = False
        elif runs and runs[-1]:
            runs[-1][-1].read(what, at)
    return runs


def truth(job: Job, *, warmup: int, steps: int, dispatch: float) -> Truth:
    """Compute what a steady step took in the run of `fit` with the given number of steps.

    `dispatch` is what lies between the begin of a step and its first op when there is nothing to
    wait for, as measured on the same job with its input in memory.
    """
    runs = [run for run in _steps(list(job.tape.marks)) if len(run) >= steps]
    if not runs:
        raise ValueError(f"{job.plan.name}: no run of fit with {steps} steps was marked")
    run = runs[-1][:steps]
    first, last = warmup, len(run) - 1
    if job.plan.epoch:  # whole epochs only, so that what is between them counts right
        edges = [index for index in range(first, last + 1) if run[index].first_of_epoch]
        if len(edges) > 1:
            first, last = edges[0], edges[-1]
    steady = [step for step in run[first:last] if step.start and step.end]
    count = len(steady)
    request = sum(step.start - step.begin for step in steady) / count
    slept = _durations(job.tape.marks, "sleep", "slept", run[first].begin, run[last].begin)
    return Truth(
        step=(run[last].begin - run[first].begin) / (last - first),
        input_wait=max(0.0, request - dispatch),
        compute=sum(step.end - step.start for step in steady) / count,
        callback=sum(step.callback for step in steady) / count,
        validation=sum(step.validation for step in steady) / count,
        request=request,
        sleep=statistics.fmean(slept) if slept else 0.0,
        steps=count,
    )


def _durations(
    marks: list[tuple[str, float]], opens: str, closes: str, low: float, high: float
) -> list[float]:
    found, opened = [], 0.0
    for what, at in marks:
        if what == opens:
            opened = at
        elif what == closes and low <= opened and at <= high:
            found.append(at - opened)
    return found


def run_plainly(job: Job, steps: int) -> None:
    """Run a job with nothing but `fit`."""

    class Stops(keras.callbacks.Callback):
        """Ends the run."""

        async_safe = True
        left = steps

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.left -= 1
            if self.left <= 0:
                self.model.stop_training = True

    kwargs = {**job.fit_kwargs, "callbacks": [*job.fit_kwargs["callbacks"], Stops()]}
    job.model.fit(job.dataset, **kwargs)

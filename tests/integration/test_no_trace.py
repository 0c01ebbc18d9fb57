"""A diagnosis leaves model, callbacks, input and process as they were, however it ends."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdiag
from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound
from tests.traces_left import leaves_no_trace


class CallersError(Exception):
    """An error of the caller's own."""


# Errors --------------------------------------------------------------------------------------

HOOKS = (
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_epoch_end",
    "on_test_begin",
    "on_test_batch_end",
)


def failing(hook: str, error: BaseException, *, after: int = 0) -> Any:
    """Give a callback that raises in one of its methods, at the given call."""
    calls = iter(range(after + 1))

    def fail(*args: Any, **kwargs: Any) -> None:
        if next(calls) == after:
            raise error

    return type("Failing", (keras.callbacks.Callback,), {hook: staticmethod(fail)})()


@pytest.mark.parametrize("hook", HOOKS)
def test_exception_in_a_callback(hook: str) -> None:
    """An error in a callback comes out as the cause of a TfdiagError, and nothing has changed."""
    model, dataset, error = jobs.tiny_model(), jobs.batches(20), CallersError("in the callback")
    callback = failing(hook, error)
    kwargs = {"callbacks": [callback], "validation_data": jobs.batches(5), "epochs": 3}

    with leaves_no_trace(model, callbacks=[callback], dataset=dataset):
        with pytest.raises(tfdiag.TfdiagError, match="in the callback") as caught:
            diagnose(model, dataset, fit_kwargs=kwargs)

    assert caught.value.__cause__ is error


ENOUGH_S = 30.0
"""For jobs that end by an error: a budget that ends before it would hide the error."""


@pytest.mark.parametrize("at", [0, 1, 7, 19])
def test_dataset_that_fails_at_batch_k(at: int) -> None:
    """The error names the batch and has the dataset's own error as its cause."""
    model = jobs.tiny_model()

    def fail(k: int) -> None:
        if k == at:
            raise CallersError(f"bad record {k}")

    dataset = jobs.on_each_batch(jobs.batches(20), fail)
    with leaves_no_trace(model, dataset=dataset):
        with pytest.raises(tfdiag.TfdiagError, match=rf"batch {at}\b") as caught:
            diagnose(model, dataset, budget=ENOUGH_S)

    assert isinstance(caught.value.__cause__, tf.errors.OpError)
    assert f"bad record {at}" in str(caught.value.__cause__)


@pytest.mark.parametrize("at", [1, 7])
def test_py_dataset_that_fails_at_batch_k(at: int) -> None:
    """A PyDataset that raises is told as a dataset that raises."""
    model = jobs.tiny_model()

    class Fails(jobs.SlowBatches):
        """Raises at one index."""

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            """Give a batch, or not."""
            if index == at:
                raise CallersError(f"bad record {index}")
            return super().__getitem__(index)

    dataset = Fails()
    with leaves_no_trace(model, dataset=dataset):
        with pytest.raises(tfdiag.TfdiagError, match="bad record"):
            diagnose(model, dataset, budget=ENOUGH_S, fit_kwargs={"shuffle": False})


def test_exception_in_the_train_step() -> None:
    """An error in the model's own step is the cause of a TfdiagError."""
    calls = iter(range(10_000))

    def act() -> None:
        if next(calls) == 5:
            raise CallersError("in the step")

    model, dataset = jobs.watched_model(act), jobs.batches(None)

    with leaves_no_trace(model, dataset=dataset):
        with pytest.raises(tfdiag.TfdiagError, match="in the step"):
            diagnose(model, dataset)


# Ctrl-C --------------------------------------------------------------------------------------


def interrupt() -> None:
    """Press Ctrl-C: the handler runs in the main thread as soon as that is in Python again."""
    signal.raise_signal(signal.SIGINT)


class Phases:
    """Presses Ctrl-C once, in the phase that the counts of batches and steps tell.

    Without autotune and prefetch each step takes one batch: steps without batches are a replay,
    batches without steps are the input alone.
    """

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.batches = self.steps = 0
        self.steps_since_batch = self.batches_since_step = 0
        self.pressed = False
        self.due: Callable[[Phases], bool] = lambda _: False

    def on_batch(self, _: int) -> None:
        """Count a batch."""
        self.batches += 1
        self.batches_since_step += 1
        self.steps_since_batch = 0
        self._press()

    def on_step(self) -> None:
        """Count a step."""
        self.steps += 1
        self.steps_since_batch += 1
        self.batches_since_step = 0
        self._press()

    def _press(self) -> None:
        if not self.pressed and self.due(self):
            self.pressed = True
            interrupt()


PHASES: dict[str, Callable[[Phases], bool]] = {
    "first batch": lambda seen: seen.batches == 1,
    "first step": lambda seen: seen.steps == 1,
    "live run": lambda seen: seen.steps == 20,
    "input alone": lambda seen: seen.steps > 0 and seen.batches_since_step == 10,
    "replay": lambda seen: seen.steps_since_batch == 4,
    "later in the replay": lambda seen: seen.steps_since_batch == 10,
}


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_in_each_phase(phase: str) -> None:
    """Ctrl-C comes out as KeyboardInterrupt, and nothing has changed."""
    phases = Phases()
    phases.due = PHASES[phase]
    model = jobs.watched_model(phases.on_step)
    dataset = jobs.on_each_batch(jobs.batches(None), phases.on_batch)

    with leaves_no_trace(model, dataset=dataset):
        with pytest.raises(KeyboardInterrupt):
            diagnose(model, dataset, budget=6.0)

    assert phases.pressed


@pytest.mark.parametrize("hook", ["on_train_begin", "on_train_batch_end", "on_epoch_end"])
def test_ctrl_c_in_a_callback(hook: str) -> None:
    """KeyboardInterrupt raised by a callback is not swallowed or wrapped."""
    model, dataset = jobs.tiny_model(), jobs.batches(20)
    callback = failing(hook, KeyboardInterrupt())

    with leaves_no_trace(model, callbacks=[callback], dataset=dataset):
        with pytest.raises(KeyboardInterrupt):
            diagnose(model, dataset, fit_kwargs={"callbacks": [callback], "epochs": 2})


@pytest.mark.parametrize("delay_s", [0.05, 0.4, 1.0, 1.7, 2.5])
def test_ctrl_c_from_another_thread_at_any_time(delay_s: float) -> None:
    """Whenever Ctrl-C comes, it comes out or the diagnosis is over; nothing has changed."""
    model, dataset = jobs.tiny_model(), jobs.slow(jobs.batches(None))
    timer = threading.Timer(delay_s, _thread.interrupt_main)

    with leaves_no_trace(model, dataset=dataset):
        timer.start()
        interrupted = False
        try:
            try:
                diagnose(model, dataset, budget=4.0)
            finally:
                timer.cancel()
                timer.join()
        except KeyboardInterrupt:
            interrupted = True

    assert interrupted or timer.finished.is_set()
    model.fit(jobs.batches(3), verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 3


# The budget ----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0.3, 1.0, 2.0])
def test_budget_that_runs_out_in_the_middle(budget: float) -> None:
    """A budget too small for all phases changes nothing either."""
    model, dataset = jobs.tiny_model(), jobs.slow(jobs.batches(None), 0.05)

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=budget)

    assert report.verdict.code in {"inconclusive", "input-bound"}


# Callbacks with files and state --------------------------------------------------------------


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Give every file below a folder with its time and content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class WritesSummaries(keras.callbacks.Callback):
    """Writes event files as the TensorBoard callback does, without TensorBoard installed."""

    def __init__(self, log_dir: str) -> None:
        """Keep the folder."""
        super().__init__()
        self.log_dir = log_dir
        self.writer: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Open the writer."""
        self.writer = tf.summary.create_file_writer(self.log_dir)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the loss."""
        with self.writer.as_default():
            tf.summary.write("loss", (logs or {}).get("loss", 0.0), step=epoch)

    def on_train_end(self, logs: Any = None) -> None:
        """Close the writer."""
        self.writer.close()


FILE_CALLBACKS: dict[str, Callable[[Path], Any]] = {
    "ModelCheckpoint each epoch": lambda folder: keras.callbacks.ModelCheckpoint(str(folder / "model.keras")),
    "ModelCheckpoint each 5 batches": lambda folder: keras.callbacks.ModelCheckpoint(
        str(folder / "weights.weights.h5"), save_weights_only=True, save_freq=5
    ),
    "ModelCheckpoint with names": lambda folder: keras.callbacks.ModelCheckpoint(
        str(folder / "{epoch:02d}.weights.h5"), save_weights_only=True
    ),
    "CSVLogger": lambda folder: keras.callbacks.CSVLogger(str(folder / "log.csv")),
    "CSVLogger that appends": lambda folder: keras.callbacks.CSVLogger(str(folder / "log.csv"), append=True),
    "BackupAndRestore": lambda folder: keras.callbacks.BackupAndRestore(str(folder / "backup")),
    "summaries": lambda folder: WritesSummaries(str(folder / "logs")),
}


@pytest.mark.parametrize("name", FILE_CALLBACKS)
def test_files_of_callbacks_stay_untouched(name: str, tmp_path: Path) -> None:
    """What callbacks write during a diagnosis does not reach the caller's files."""
    for file in ("model.keras", "weights.weights.h5", "01.weights.h5"):
        (tmp_path / file).write_bytes(b"the best model of last week")
    (tmp_path / "log.csv").write_text("epoch,loss\n0,0.5\n")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "events.out.tfevents.1").write_bytes(b"old events")
    before = listing(tmp_path)
    model, dataset, callback = jobs.tiny_model(), jobs.batches(20), FILE_CALLBACKS[name](tmp_path)
    kwargs = {"callbacks": [callback], "epochs": 3}

    with leaves_no_trace(model, callbacks=[callback], dataset=dataset):
        report = diagnose(model, dataset, fit_kwargs=kwargs)

    is_sound(report, batch_size=jobs.BATCH)
    assert listing(tmp_path) == before


STATEFUL_CALLBACKS: dict[str, Callable[[], Any]] = {
    "EarlyStopping": lambda: keras.callbacks.EarlyStopping(
        "loss", patience=1, min_delta=1e9, restore_best_weights=True
    ),
    "ReduceLROnPlateau": lambda: keras.callbacks.ReduceLROnPlateau(
        "loss", patience=1, min_delta=1e9, factor=0.1
    ),
    "LearningRateScheduler": lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
    "History": keras.callbacks.History,
    "TerminateOnNaN": keras.callbacks.TerminateOnNaN,
    "SwapEMAWeights": lambda: keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
}


@pytest.mark.parametrize("name", STATEFUL_CALLBACKS)
def test_state_of_callbacks_is_put_back(name: str) -> None:
    """A callback knows nothing of the diagnosis, also one that was in use before."""
    optimizer = keras.optimizers.SGD(0.01, use_ema=name == "SwapEMAWeights")
    model, callback = jobs.tiny_model(optimizer=optimizer), STATEFUL_CALLBACKS[name]()
    dataset = jobs.batches(5)
    model.fit(dataset, callbacks=[callback], epochs=2, verbose=0)

    with leaves_no_trace(model, callbacks=[callback], dataset=dataset):
        report = diagnose(model, dataset, fit_kwargs={"callbacks": [callback], "epochs": 500})

    is_sound(report, batch_size=jobs.BATCH)


# Randomness ----------------------------------------------------------------------------------


def order(dataset: tf.data.Dataset) -> list[float]:
    """Give the first value of each batch, which tells the order."""
    return [float(x[0, 0]) for x, _ in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("each", [True, False], ids=["reshuffled", "fixed"])
def test_shuffled_dataset_starts_as_it_would_have(each: bool) -> None:
    """A seeded shuffle gives, after a diagnosis, the order of its first epoch."""

    def shuffled() -> tf.data.Dataset:
        return jobs.batches(20).shuffle(20, seed=1, reshuffle_each_iteration=each)

    twin, dataset, model = shuffled(), shuffled(), jobs.tiny_model()

    with leaves_no_trace(model, dataset=dataset):
        diagnose(model, dataset)

    assert order(dataset) == order(twin)
    assert order(dataset) == order(twin)


def test_dropout_draws_what_it_would_have_drawn() -> None:
    """The state of a layer's seed generator is part of what is put back."""
    model = jobs.tiny_model(dropout=0.5)
    model.fit(jobs.batches(3), verbose=0)
    seeds = [np.array(seed.state.numpy()) for layer in model.layers for seed in layer._seed_generators]
    assert seeds

    with leaves_no_trace(model):
        diagnose(model, jobs.batches(None))

    after = [seed.state.numpy() for layer in model.layers for seed in layer._seed_generators]
    assert all(np.array_equal(one, other) for one, other in zip(seeds, after, strict=True))


def test_shuffled_arrays_leave_the_global_generators_alone() -> None:
    """Shuffling arrays, as `fit` does by default, draws nothing from the caller's generators."""
    keras.utils.set_random_seed(3)
    model = jobs.tiny_model()
    x, y = jobs.arrays(32 * 20)

    with leaves_no_trace(model, dataset=x):
        diagnose(model, x, y=y)


def test_shuffled_py_dataset_leaves_the_global_generators_alone() -> None:
    """Keras shuffles a PyDataset with Python's own generator; the caller's draws don't change."""
    keras.utils.set_random_seed(3)
    model, dataset = jobs.tiny_model(), jobs.SlowBatches()

    with leaves_no_trace(model, dataset=dataset):
        diagnose(model, dataset)


def test_two_diagnoses_in_a_row() -> None:
    """A second diagnosis finds what the first found."""
    model, dataset = jobs.tiny_model(), jobs.slow(jobs.batches(None))

    with leaves_no_trace(model, dataset=dataset):
        first, second = diagnose(model, dataset), diagnose(model, dataset)

    assert first.verdict.code == second.verdict.code == "input-bound"
    assert first.measurements.overhead.total_s < 1.1 * first.measurements.overhead.budget_s.value

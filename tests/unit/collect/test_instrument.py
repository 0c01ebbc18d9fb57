"""What is hung into a `fit`, and that all of it comes off again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.integration import jobs
from tests.traces_left import leaves_no_trace
from tfdiag.collect.recorder import Recorder
from tfdiag.compat.keras import make_train_function
from tfdiag.monitor.callback import DiagnosticsCallback

STEPS = 6


def measuring(*, recorder: Recorder | None = None) -> DiagnosticsCallback:
    """Give a callback that fills a recorder and reports nothing."""
    return DiagnosticsCallback.recording(recorder or Recorder(time.perf_counter))


def calls_of(callback: DiagnosticsCallback) -> int:
    """Count the calls that a callback has seen."""
    assert callback._recorder is not None
    return len(callback._recorder.calls)


def fit(model: Any, *callbacks: Any, **kwargs: Any) -> None:
    """Train for some steps."""
    arguments = {"x": jobs.batches(STEPS), "callbacks": list(callbacks), "verbose": 0, **kwargs}
    model.fit(**arguments)


@pytest.fixture
def model() -> Any:
    """Give a model whose functions are made, so that their being put back can be seen."""
    model = jobs.tiny_model()
    make_train_function(model)
    model.make_test_function()
    return model


class Watcher(keras.callbacks.Callback):
    """Looks at the model and at Keras' list while training goes on."""

    def __init__(self, model: Any) -> None:
        """Keep what was there before."""
        super().__init__()
        self.of = model
        self.before = (model.train_function, model.test_function)
        self.wrapped: list[tuple[bool, bool]] = []

    def _look(self) -> None:
        now = (self.of.train_function, self.of.test_function)
        self.wrapped.append((now[0] is not self.before[0], now[1] is not self.before[1]))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Look."""
        self._look()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Look."""
        self._look()

    def assert_all_off(self) -> None:
        """Check that the functions are the very ones from before."""
        assert self.of.train_function is self.before[0]
        assert self.of.test_function is self.before[1]


class Raises(keras.callbacks.Callback):
    """Raises in one of its methods."""

    def __init__(self, method: str, error: BaseException) -> None:
        """Put the raising method on."""
        super().__init__()

        def fail(*_: Any, **__: Any) -> None:
            raise error

        setattr(self, method, fail)


def callback_list(model: Any, *callbacks: Any) -> Any:
    """Give a list as callers make it who pass their own to fit."""
    return keras.callbacks.CallbackList(list(callbacks), add_history=True, model=model, epochs=1, steps=STEPS)


def end_threads(given: Any) -> None:
    """End the threads that Keras leaves waiting when a fit dies."""
    if given._executor is not None:
        given._executor.shutdown()


def test_everything_is_on_during_training_and_off_after(model: Any) -> None:
    """The train function is wrapped during fit, the test function during validation, and neither after."""
    watcher, ours = Watcher(model), measuring()
    fit(model, watcher, ours, epochs=2, validation_data=jobs.batches(2))
    assert watcher.wrapped == [(True, False), (True, True), (True, True)] * 2
    watcher.assert_all_off()
    assert calls_of(ours) == 2 * STEPS
    assert not ours._instrument.attached
    recorder = ours._recorder
    assert [run.calls for run in recorder.validations] == [2, 2]
    assert recorder.traced == [0]


def test_keras_own_list_is_restored(model: Any) -> None:
    """A list of callbacks that the caller passed holds the same callbacks afterwards, and they were timed."""
    watcher, ours = Watcher(model), measuring()
    given = callback_list(model, watcher, ours)
    before = list(given.callbacks)
    during: list[list[Any]] = []
    watcher.on_epoch_end = lambda *_: during.append(list(given.callbacks))
    fit(model, callbacks=given)
    assert all(a is b for a, b in zip(before, given.callbacks, strict=True))
    assert during[0][0] is not before[0]
    assert during[0][1] is ours
    assert during[0][2] is before[2]  # Keras' own History only keeps logs: no clock is worth its cost
    timed = {(row.callback, row.method) for row in ours._recorder.live().callbacks}
    assert ("Watcher", "on_epoch_end") in timed
    assert not any(callback == "History" for callback, _ in timed)


def test_only_methods_that_do_something_are_timed(model: Any) -> None:
    """The base class's empty hooks are called as they are, and two of a class have two names."""

    class Busy(keras.callbacks.Callback):
        """Has one hook."""

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            """Do something."""

    ours = measuring()
    fit(model, Busy(), ours, Busy())
    rows = [row for row in ours._recorder.live().callbacks if row.callback.startswith("Busy")]
    assert {(row.callback, row.method) for row in rows} == {
        ("Busy", "on_train_batch_begin"),
        ("Busy #2", "on_train_batch_begin"),
    }
    assert sum(row.count for row in rows) == 2 * STEPS


METHODS = ["on_epoch_begin", "on_train_batch_begin", "on_train_batch_end", "on_epoch_end", "on_train_end"]
TEST_METHODS = ["on_test_begin", "on_test_batch_begin", "on_test_batch_end", "on_test_end"]


@pytest.mark.parametrize(
    ("method", "first"),
    [*((method, False) for method in METHODS + TEST_METHODS), *((method, True) for method in METHODS[-2:])],
)
def test_an_exception_in_a_callback_takes_everything_off(model: Any, method: str, first: bool) -> None:
    """Whichever method raises whatever, the model's functions and the list are as before."""
    watcher, ours, error = Watcher(model), measuring(), KeyboardInterrupt(method)
    bad = Raises(method, error)
    given = callback_list(model, *((bad, ours) if first else (ours, bad)))
    before = list(given.callbacks)
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(model, callbacks=given, validation_data=jobs.batches(2))
    assert caught.value is error
    watcher.assert_all_off()
    assert all(a is b for a, b in zip(before, given.callbacks, strict=True))
    if given._executor is not None:
        end_threads(given)


def failing(at: int) -> tf.data.Dataset:
    """Give an input that fails at one batch."""

    def act(k: int) -> None:
        if k == at:
            raise RuntimeError(f"batch {k} is broken")

    return jobs.on_each_batch(jobs.batches(STEPS), act)


def test_an_exception_in_the_train_function_takes_everything_off(model: Any) -> None:
    """A broken batch ends fit with its error, nothing is left on, and the call is known."""
    watcher, ours = Watcher(model), measuring()
    given = callback_list(model, ours, watcher)
    before = list(given.callbacks)
    with pytest.raises(tf.errors.OpError, match="batch 3 is broken"):
        fit(model, x=failing(3), callbacks=given)
    watcher.assert_all_off()
    assert given.callbacks == before
    assert ours._recorder.failed_call == 3
    end_threads(given)


def test_an_exception_in_validation_takes_everything_off(model: Any) -> None:
    """A broken batch of the validation data leaves neither function wrapped."""
    watcher, ours = Watcher(model), measuring()
    given = callback_list(model, ours)
    before = list(given.callbacks)
    with pytest.raises(tf.errors.OpError, match="batch 1 is broken"):
        fit(model, callbacks=given, validation_data=failing(1))
    watcher.assert_all_off()
    assert given.callbacks == before
    end_threads(given)


def test_the_end_of_the_data_takes_nothing_off(model: Any) -> None:
    """Epochs of unknown length end inside the train function; all of them are measured."""
    ours = measuring()
    unknown = jobs.batches(STEPS).filter(lambda *_: True)
    fit(model, ours, x=unknown, epochs=3, validation_data=unknown)
    assert calls_of(ours) == 3 * STEPS
    assert [run.calls for run in ours._recorder.validations] == [STEPS] * 3
    assert ours._recorder.failed_call is None


def test_callbacks_with_slots(model: Any) -> None:
    """A callback that can take no attributes is timed like any other, and can set those that it has."""

    class Slotted:
        """Has the methods of a callback and no `__dict__`."""

        __slots__ = ("batches", "model", "params")

        def __init__(self) -> None:
            self.batches = 0

        def set_model(self, model: Any) -> None:
            self.model = model

        def set_params(self, params: Any) -> None:
            self.params = params

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.batches += 1

        def __getattr__(self, name: str) -> Callable[..., None]:
            if name.startswith("on_"):
                return lambda *_, **__: None
            raise AttributeError(name)

    slotted, ours = Slotted(), measuring()
    fit(model, slotted, ours)
    assert slotted.batches == STEPS
    rows = [row for row in ours._recorder.live().callbacks if row.callback == "Slotted"]
    assert sum(row.count for row in rows if row.method == "on_train_batch_end") == STEPS


def test_what_is_set_on_the_stand_in_reaches_the_callback(model: Any) -> None:
    """Whoever finds a callback in the list and sets something on it sets it on the callback."""
    target = keras.callbacks.EarlyStopping(monitor="loss", patience=3)

    class Setter(keras.callbacks.Callback):
        """Changes another callback in the middle of training."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            entry = next(e for e in given.callbacks if hasattr(e, "patience"))
            entry.patience = 7

    ours = measuring()
    given = callback_list(model, target, Setter(), ours)
    fit(model, callbacks=given)
    assert target.patience == 7


@pytest.mark.parametrize("swap", [False, True])
def test_two_of_ours_in_one_fit(model: Any, swap: bool) -> None:
    """Two callbacks in one fit measure all of it, each for itself, and nothing stays on."""
    watcher, one, two = Watcher(model), measuring(), measuring()
    order = (two, one) if swap else (one, two)
    given = callback_list(model, *order)
    before = list(given.callbacks)
    fit(model, callbacks=given, epochs=2, validation_data=jobs.batches(3))
    assert (calls_of(one), calls_of(two)) == (2 * STEPS, 2 * STEPS)
    for ours in order:
        assert [run.calls for run in ours._recorder.validations] == [3, 3]
    watcher.assert_all_off()
    assert all(a is b for a, b in zip(before, given.callbacks, strict=True))


def test_two_of_ours_when_fit_fails(model: Any) -> None:
    """An exception takes both off, whichever is the outer one."""
    watcher, one, two = Watcher(model), measuring(), measuring()
    with pytest.raises(KeyboardInterrupt):
        fit(model, one, Raises("on_train_batch_end", KeyboardInterrupt()), two)
    watcher.assert_all_off()
    with pytest.raises(tf.errors.OpError):
        fit(model, one, two, x=failing(2))
    watcher.assert_all_off()
    assert not one._instrument.attached
    assert not two._instrument.attached


def die(model: Any, *callbacks: Any) -> None:
    """Let a fit end with an exception that passes through no wrapper."""

    class DyingList(keras.callbacks.CallbackList):
        """Raises by itself after some batches."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                raise MemoryError

    given = DyingList(list(callbacks), model=model)
    with pytest.raises(MemoryError):
        fit(model, callbacks=given)
    if given._executor is not None:
        end_threads(given)


def test_a_fit_that_died_and_one_after_it(model: Any) -> None:
    """What a dead fit left on is no part of the next one, with the same callback and with others."""
    watcher, one, two = Watcher(model), measuring(), measuring()
    die(model, one, two)
    assert (calls_of(one), calls_of(two)) == (3, 3)
    fit(model, two)
    assert calls_of(two) == 3 + STEPS
    assert calls_of(one) == 3
    watcher.assert_all_off()


def test_a_fit_that_died_and_one_after_it_with_the_same(model: Any) -> None:
    """The same two callbacks measure the fit after the one that died, once for each step."""
    watcher, one, two = Watcher(model), measuring(), measuring()
    die(model, one, two)
    fit(model, one, two)
    assert (calls_of(one), calls_of(two)) == (3 + STEPS, 3 + STEPS)
    watcher.assert_all_off()


class Nested(keras.callbacks.Callback):
    """Trains the same model in the middle of its training."""

    def __init__(self, inner: Any, *callbacks: Any) -> None:
        """Keep what is trained, and with which callbacks."""
        super().__init__()
        self.inner, self.with_callbacks = inner, callbacks

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Train."""
        fit(self.inner, *self.with_callbacks, x=jobs.batches(2))


def test_a_nested_fit_is_measured_for_itself(model: Any) -> None:
    """A fit inside a fit with a callback of its own disturbs neither measurement."""
    watcher, outer, inner = Watcher(model), measuring(), measuring()
    fit(model, outer, Nested(model, inner), epochs=2)
    assert calls_of(outer) == 2 * STEPS
    assert calls_of(inner) == 4
    watcher.assert_all_off()


def test_a_nested_fit_of_another_model(model: Any) -> None:
    """Another model that is trained in a callback is no part of the measurement."""
    watcher, ours = Watcher(model), measuring()
    fit(model, ours, Nested(jobs.tiny_model()), epochs=2)
    assert calls_of(ours) == 2 * STEPS
    watcher.assert_all_off()


def test_a_train_function_that_changed_meanwhile_stays(model: Any) -> None:
    """Somebody who makes a new train function during training keeps it."""
    ours = measuring()
    made: list[Any] = []

    class Changes(keras.callbacks.Callback):
        """Makes a new train function."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            model.make_train_function(force=True)
            made.append(model.train_function)

    fit(model, Changes(), ours)
    assert model.train_function is made[0]


def test_training_with_it_is_training_without_it() -> None:
    """Nothing but the training itself is left on the model, and the dataset is iterated as often."""
    model, ours, taken = jobs.tiny_model(), measuring(), []
    fit(model, measuring())
    fit(model, ours, x=jobs.on_each_batch(jobs.batches(STEPS), taken.append))
    assert taken == list(range(STEPS))
    assert not hasattr(model.train_function, "__tfdiag_original__")
    with leaves_no_trace(model):
        ours.close()

"""Puts a recorder into a running `fit`, and takes it out again.

The train function is wrapped (Keras pulls the batch inside it, so only from there can the iterator be
seen), and so are the other callbacks in Keras' own list: the caller's objects are not changed. Everything is
taken off when training ends, when an exception passes through any of it, or when the callback is gone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tfdiag.collect.recorder import Recorder
from tfdiag.compat import keras, tensorflow

__all__ = ["Instrument"]

_METHODS = tuple(
    f"on_{moment}"
    for moment in (
        "train_begin", "train_end", "epoch_begin", "epoch_end", "train_batch_begin", "train_batch_end",
        "test_begin", "test_end", "test_batch_begin", "test_batch_end",
    )
)  # fmt: skip
_OLD_NAMES = {"on_train_batch_begin": "on_batch_begin", "on_train_batch_end": "on_batch_end"}
"""The base class passes these hooks on to those."""
_METRICS = {"get_metrics_result": "metric result", "reset_metrics": "metric reset"}
"""What `fit` asks of the model at the ends of epochs, and what it is called in the times."""
_FRAMES_UP = 8
_NESTED_AT_MOST = 4
BESIDE = " (beside the steps)"
"""Behind the name of a method that runs on another thread."""


class Instrument:
    """What is hung into one `fit`.

    Several may hang in one model: two in one `fit`, one in a `fit` inside a `fit`, and what a `fit` left that
    died where no exception passes through us. Each takes itself off from where it stands, and passes on what
    it is asked once it is off.
    """

    def __init__(self, recorder: Recorder, owner: Any) -> None:
        self.recorder = recorder
        self._owner = owner
        self._model: Any = None
        self._entries: list[Any] | None = None
        self._wrapped: Callable[..., Any] | None = None
        self._found: Any = None
        self._iterators: list[Any] = []
        self.validation_freq: Any = 1
        """As the caller's `fit` was told."""
        self._test: tuple[Any, Any] | None = None
        self._replaced: list[tuple[list[Any], int, Any, _Timed]] = []
        self._metrics: dict[str, tuple[Any, Any]] = {}

    @property
    def attached(self) -> bool:
        """Say whether anything is hung in."""
        return self._model is not None

    @property
    def tests(self) -> bool:
        """Say whether the test function is wrapped."""
        return self._test is not None

    def attach(self, model: Any) -> None:
        """Wrap the train function and the other callbacks of the `fit` that is beginning."""
        self.detach()
        running = _running_lists()
        whole = next((entries for entries in running[:1] if _holds(entries, self._owner)), None)
        self._entries = whole if whole is not None else _callback_entries(self._owner)
        # What is still at work is put back in the end; what a dead fit left is not.
        self._found = _peeled(model.train_function, lambda other: other.attached and other.runs_in(running))
        # Of that, the others in this very fit go on seeing its steps; those of a fit around it must not.
        original = _peeled(
            self._found, lambda other: self._entries is not None and other.runs_in([self._entries])
        )
        bare = _peeled(original, lambda _: False)
        self.recorder.hot.muted = False
        wrapped = self.recorder.instrument(original, tensorflow.tracing_count(bare), on_error=self.detach)
        self._model, self._wrapped = model, _marked(wrapped, original, self)
        fit = _running_fit()
        self._iterators = keras.epoch_iterators(fit)
        self.validation_freq = fit.get("validation_freq", 1)
        model.train_function = wrapped
        self.recorder.facts = []
        self._wrap_callbacks(self._entries or [], fit.get("callbacks"), {})
        if keras.flavour(model) == "keras" and not getattr(model, "run_eagerly", False):
            self._wrap_metrics(model, running)

    def detach(self) -> None:
        """Take everything off; harmless when nothing is on."""
        model, self._model = self._model, None
        if model is None:
            return
        if model.__dict__.get("train_function") is self._wrapped:
            model.train_function = _peeled(self._found, lambda other: other.attached)
        self.recorder.hot.muted = True
        self.recorder.let_go()
        self._found = self._wrapped = None
        self._detach_test(model)
        self._entries = None
        for entries, index, callback, timed in self._replaced:
            if index < len(entries) and entries[index] is timed:
                entries[index] = _bare(callback, lambda other: other.attached)
        self._replaced = []
        metrics, self._metrics = self._metrics, {}
        for name, (own, wrapped) in metrics.items():
            if model.__dict__.get(name) is wrapped:
                model.__dict__.pop(name)
                model.__dict__.update({} if own is None else {name: own})

    def epoch_ends(self) -> None:
        """Read what the iterator of this epoch still knows, and let go of it."""
        iterator, self.recorder.hot.latest = self.recorder.hot.latest, None
        if self._model is not None:
            self.recorder.look(iterator)

    def attach_test(self) -> None:
        """Wrap the test function of the validation that is beginning."""
        model = self._model
        if model is None or self._test is not None:
            return
        original = model.__dict__.get("test_function")
        if original is None:
            return
        self._iterators.extend(keras.validation_iterators(model))
        original = _peeled(original, lambda other: other.tests)
        wrapped = self.recorder.instrument_test(original, self._stop_test)
        ends_epoch = tensorflow.end_of_data()

        def guarded(iterator: Any) -> Any:
            if self._test is None:
                return original(iterator)
            try:
                return wrapped(iterator)
            except ends_epoch:
                raise
            except BaseException:
                self.detach()
                raise

        self._test = (original, _marked(guarded, original, self))
        model.test_function = guarded

    def detach_test(self) -> None:
        """Unwrap the test function."""
        if self._model is not None:
            self._detach_test(self._model)

    def _detach_test(self, model: Any) -> None:
        pair, self._test = self._test, None
        if pair is not None and model.__dict__.get("test_function") is pair[1]:
            model.test_function = _peeled(pair[0], lambda other: other.tests)

    def _stop_test(self) -> None:
        if hasattr(self._model, "stop_evaluating"):
            self._model.stop_evaluating = True
        else:
            self.recorder.hot.stop_at = 0.0
            raise StopIteration

    def take_down(self) -> None:
        """End the iterators of a `fit` that is over, which Keras leaves to garbage collection."""
        iterators, self._iterators = self._iterators, []
        for iterator in iterators:
            keras.take_down(iterator)

    def runs_in(self, lists: list[list[Any]]) -> bool:
        """Say whether it is hung into the `fit` with one of these lists of callbacks."""
        return any(entries is self._entries for entries in lists)

    def _wrap_callbacks(
        self, entries: list[Any], owner: Any, counts: dict[str, int], inside: str = "", depth: int = 0
    ) -> None:
        """Put stand-ins into a list of callbacks, and into the lists that stand in it."""
        background = keras.background_hooks(owner)
        for index, callback in enumerate(entries):
            itself = _bare(callback, lambda _: False)
            if itself is self._owner or keras.is_history(itself):
                continue
            name = type(itself).__name__
            counts[name] = counts.get(name, 0) + 1
            if counts[name] > 1:
                name = f"{name} #{counts[name]}"
            if keras.is_callback_list(itself) and depth < _NESTED_AT_MOST:
                self._wrap_callbacks(itself.callbacks, itself, counts, name, depth + 1)
                continue
            self.recorder.facts.append(keras.callback_facts(itself, name, inside))
            timed = _Timed(callback, name, self, background)
            self._replaced.append((entries, index, callback, timed))
            entries[index] = timed

    def _wrap_metrics(self, model: Any, running: list[list[Any]]) -> None:
        """Time what the model's metrics take at the ends of epochs."""
        for name, called in _METRICS.items():
            found = model.__dict__.get(name)
            own = _peeled(found, lambda _: False)
            if _peeled(found, lambda other: other.attached and other.runs_in(running)) is not own:
                continue  # another of ours in this fit has it
            of_class = getattr(type(model), name, None)
            if own is not found and getattr(own, "__func__", None) is of_class:
                own = None  # a fit that died left a stand-in for the method of the class
            original = own if own is not None or of_class is None else of_class.__get__(model)
            if not callable(original):
                continue
            wrapped = _marked(self.recorder.time_metrics(called, original), original, self)
            self._metrics[name] = (own, wrapped)
            model.__dict__[name] = wrapped


def _marked(function: Any, original: Any, instrument: Instrument) -> Callable[..., Any]:
    function.__tfdiag_original__, function.__tfdiag_instrument__ = original, instrument
    return function  # type: ignore[no-any-return]  # it came as one that can be marked


def _peeled(function: Any, keep: Callable[[Instrument], bool]) -> Any:
    """Take off the outer wrappers of instruments that are not to be kept."""
    while (instrument := getattr(function, "__tfdiag_instrument__", None)) is not None:
        if keep(instrument):
            break
        function = function.__tfdiag_original__
    return function


def _bare(callback: Any, keep: Callable[[Instrument], bool]) -> Any:
    """Give what stands behind those that stand in for a callback, up to one that is to be kept."""
    while isinstance(callback, _Timed) and not keep(callback._tfdiag_instrument):  # noqa: SLF001  # ours
        callback = callback._tfdiag_callback  # noqa: SLF001
    return callback


class _Timed:
    """Stands in Keras' list for a callback, and times those of its methods that do something.

    The methods are slots, and those that do nothing are not timed: this is looked at in every step.
    """

    __slots__ = ("_tfdiag_callback", "_tfdiag_instrument", *_METHODS)

    def __init__(
        self, callback: Any, name: str, instrument: Instrument, background: frozenset[str] = frozenset()
    ) -> None:
        keep = functools.partial(object.__setattr__, self)
        keep("_tfdiag_callback", callback)
        keep("_tfdiag_instrument", instrument)
        base = keras.callback_base()
        recorder = instrument.recorder
        for method in _METHODS:
            function = getattr(callback, method, None)
            if function is None:
                continue
            if any(_implements(callback, each, base) for each in _names(method)):
                beside = method in background
                function = recorder.time_callback(
                    name, method + BESIDE * beside, function, instrument.detach, background=beside
                )
            keep(method, function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tfdiag_callback, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._tfdiag_callback, name, value)


def _names(method: str) -> Iterator[str]:
    """Give the name of a hook, and the older one that stands for the same."""
    yield method
    if method in _OLD_NAMES:
        yield _OLD_NAMES[method]


def _implements(callback: Any, method: str, base: type) -> bool:
    """Say whether a callback does something in a hook."""
    if method not in _METHODS and not isinstance(callback, base):
        return False  # nothing passes the hook on to its older name
    function = getattr(callback, method, None)
    return function is not None and getattr(function, "__func__", function) is not getattr(base, method, None)


def _holds(entries: list[Any], owner: Any, depth: int = 0) -> bool:
    """Say whether a callback stands in a list, or in one that stands in it."""
    for entry in entries:
        itself = _bare(entry, lambda _: False)
        if itself is owner:
            return True
        nested = keras.is_callback_list(itself) and depth < _NESTED_AT_MOST
        if nested and _holds(itself.callbacks, owner, depth + 1):
            return True
    return False


def _callback_entries(owner: Any) -> list[Any] | None:
    """Find the list of the `CallbackList` that is calling `owner`.

    Nothing that a callback is given leads to the list it stands in; the frame that calls it does.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # only the stack knows the list
    for _ in range(_FRAMES_UP):
        if frame is None:
            return None
        entries = getattr(frame.f_locals.get("self"), "callbacks", None)
        if isinstance(entries, list) and any(_bare(e, lambda _: False) is owner for e in entries):
            return entries
        frame = frame.f_back
    return None


def _running_fit() -> dict[str, Any]:
    """Find the local variables of the innermost running `fit`."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # only the stack knows it
    while frame is not None:
        if frame.f_code.co_name == "fit":
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _running_lists() -> list[list[Any]]:
    """Find the lists of callbacks of all the `fit`s that this call stands in."""
    found = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # only the stack knows what is running
    while frame is not None:
        if frame.f_code.co_name == "fit":
            found.append(getattr(frame.f_locals.get("callbacks"), "callbacks", None))
        frame = frame.f_back
    return [entries for entries in found if isinstance(entries, list)]

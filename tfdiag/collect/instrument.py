"""Puts a recorder into a running `fit`, and takes it out again.

The train function is wrapped (Keras pulls the batch inside it, so only from there can the iterator be
seen), and so are the other callbacks in Keras' own list: the caller's objects are not changed. Everything is
taken off when training ends, when an exception passes through any of it, or when the callback is gone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
_FRAMES_UP = 8


class Instrument:
    """What is hung into one `fit`."""

    def __init__(self, recorder: Recorder, owner: Any) -> None:
        self.recorder = recorder
        self._owner = owner
        self._model: Any = None
        self._wrapped: Callable[..., Any] | None = None
        self._original: Any = None
        self._iterator: Any = None
        self._test: tuple[Any, Any] | None = None
        self._replaced: list[tuple[list[Any], int, Any]] = []

    @property
    def attached(self) -> bool:
        """Say whether anything is hung in."""
        return self._model is not None

    def attach(self, model: Any) -> None:
        """Wrap the train function and the other callbacks of the `fit` that is beginning."""
        self.detach()
        original = model.train_function
        # A `fit` that died without an exception passing through us has left its wrapper behind.
        original = getattr(original, "__tfdiag_original__", original)
        wrapped = self.recorder.instrument(original, tensorflow.tracing_count(original))

        ends_epoch = tensorflow.end_of_data()

        def guarded(iterator: Any) -> Any:
            self._iterator = iterator
            try:
                return wrapped(iterator)
            except ends_epoch:
                raise
            except BaseException:
                self.detach()
                raise

        guarded.__tfdiag_original__ = original  # type: ignore[attr-defined]
        self._model, self._original, self._wrapped = model, original, guarded
        model.train_function = guarded
        self._wrap_callbacks()

    def detach(self) -> None:
        """Take everything off; harmless when nothing is on."""
        model, self._model = self._model, None
        if model is None:
            return
        if model.__dict__.get("train_function") is self._wrapped:
            model.train_function = self._original
        self._original = self._wrapped = self._iterator = None
        self._detach_test(model)
        for entries, index, callback in self._replaced:
            if index < len(entries) and isinstance(entries[index], _Timed):
                entries[index] = callback
        self._replaced = []

    def epoch_ends(self) -> None:
        """Read what the iterator of this epoch still knows, and let go of it."""
        iterator, self._iterator = self._iterator, None
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
        wrapped = self.recorder.instrument_test(original, self._stop_test)
        self._test = (original, wrapped)
        model.test_function = wrapped

    def detach_test(self) -> None:
        """Unwrap the test function."""
        if self._model is not None:
            self._detach_test(self._model)

    def _detach_test(self, model: Any) -> None:
        pair, self._test = self._test, None
        if pair is not None and model.__dict__.get("test_function") is pair[1]:
            model.test_function = pair[0]

    def _stop_test(self) -> None:
        if hasattr(self._model, "stop_evaluating"):
            self._model.stop_evaluating = True
        else:
            self.recorder.stop_at = 0.0
            raise StopIteration

    def _wrap_callbacks(self) -> None:
        entries = _callback_entries(self._owner)
        if entries is None:
            return
        counts: dict[str, int] = {}
        for index, callback in enumerate(entries):
            if callback is self._owner:
                continue
            name = type(callback).__name__
            counts[name] = counts.get(name, 0) + 1
            if counts[name] > 1:
                name = f"{name} #{counts[name]}"
            entries[index] = _Timed(callback, name, self.recorder, self.detach)
            self._replaced.append((entries, index, callback))


class _Timed:
    """Stands in Keras' list for a callback, and times those of its methods that do something."""

    def __init__(self, callback: Any, name: str, recorder: Recorder, detach: Callable[[], None]) -> None:
        self.__dict__["_tfdiag_callback"] = callback
        base = keras.callback_base()
        for method in _METHODS:
            function = getattr(callback, method, None)
            if function is None:
                continue
            implementation = getattr(function, "__func__", function)
            if implementation is not getattr(base, method, None):
                function = _guard(recorder.time_callback(name, method, function), detach)
            self.__dict__[method] = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tfdiag_callback, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._tfdiag_callback, name, value)


def _guard(timed: Callable[..., Any], detach: Callable[[], None]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return timed(*args, **kwargs)
        except BaseException:
            detach()
            raise

    return guarded


def _callback_entries(owner: Any) -> list[Any] | None:
    """Find the list of the `CallbackList` that is calling `owner`.

    Nothing that a callback is given leads to the list it stands in; the frame that calls it does.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # only the stack knows the list
    for _ in range(_FRAMES_UP):
        if frame is None:
            return None
        entries = getattr(frame.f_locals.get("self"), "callbacks", None)
        if isinstance(entries, list) and any(entry is owner for entry in entries):
            return entries
        frame = frame.f_back
    return None

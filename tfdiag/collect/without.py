"""The step as it is, and traced once more without something: both timed on one batch, by turns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tfdiag.collect.turns import by_turns, seconds_needed
from tfdiag.compat import keras
from tfdiag.compat import keras_parts as door

__all__ = ["Without"]

_TRACING = 0.9
"""Tracing once more takes a little less than the first call, in which the optimizer was built."""


class Without:
    """Times a model's step without parts of it; its own train function stays."""

    def __init__(
        self,
        model: Any,
        make_dataset: Callable[[], Any],
        *,
        first_call_s: float,
        call_s: float,
        until: float,
        clock: Callable[[], float],
        should_stop: Callable[[], bool],
    ) -> None:
        self._model = model
        self._make_dataset = make_dataset
        self._need_s = _TRACING * first_call_s + seconds_needed(call_s)
        self._call_s = call_s
        self._iterator: Any = None
        self.until = until
        self.clock = clock
        self.should_stop = should_stop

    def fits(self) -> bool:
        """Say whether there is time for one more."""
        return not self.should_stop() and self.clock() + self._need_s <= self.until

    def timed(
        self, leaving_out: AbstractContextManager[None], end: float | None = None
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Give calls with and without what a step that is traced in this context does not have."""
        if self._iterator is None:
            self._iterator = iter(self._make_dataset())
        iterator = self._iterator
        whole = keras.make_train_function(self._model)
        with leaving_out:
            bare = door.own_train_function(self._model)
            bare(iterator)
        return by_turns(
            lambda: whole(iterator),
            lambda: bare(iterator),
            call_s=self._call_s,
            until=self.until if end is None else end,
            clock=self.clock,
            should_stop=self.should_stop,
        )

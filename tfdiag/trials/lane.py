"""One job on a thread of its own, in Keras' own `fit`, that runs when it is its turn.

Several lanes train one model. Only the one whose turn it is runs, with its own train function and settings in
the model; both are taken out again with its turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdiag.collect.causes import root_cause
from tfdiag.collect.recorder import EventKind, Recorder
from tfdiag.collect.session import Session
from tfdiag.collect.worker import SETTLES_S, Worker
from tfdiag.compat import keras_copies
from tfdiag.trials.epochs import Epochs
from tfdiag.trials.gate import EpochGate, Gate, Turn

__all__ = ["Arm", "CachesTooLarge", "CannotTry", "Lane", "LaneFailed"]

_EPOCHS = 1_000_000
_KEPT = ("class_weight", "shuffle")
"""Arguments of the caller's `fit` that belong to its steps; what is for epochs and callbacks is left out."""
_END_S = 3.0
"""How long a job may take to come to its end."""


class CannotTry(Exception):
    """No copy can be made or run; the message says why."""


class CachesTooLarge(CannotTry):
    """A copy with the job's epochs would hold too much in its caches; one without an end holds little."""


class LaneFailed(Exception):
    """The changed job does not run, or did not come back; the message says why."""


@dataclass(slots=True)
class Arm:
    """A job to be run by turns with others."""

    model: Any
    data: dict[str, Any]
    """Arguments of `fit` that carry data; without an end where `epochs` is None."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Attributes of the model while it is this job's turn."""
    samples: float = 1.0
    """Samples in a step, relative to the job as it is."""
    steps_per_call: int = 1
    epochs: Epochs | None = None
    """The epochs that it has; it then stops only between two of them."""
    close: Callable[[], None] = lambda: None


class _Passing(Recorder):
    """Looks on as a recorder does, and only lets each call pass a gate, or each epoch."""

    def __init__(self, clock: Callable[[], float], gate: Gate, stop: Callable[[], None]) -> None:
        super().__init__(clock)
        self._gate = gate
        self._stop = stop
        self._epoch_begins = False

    def instrument(
        self,
        train_function: Callable[[Any], Any],
        tracing: Callable[[], int] | None,
        *,
        waited: list[float] | None = None,
        on_error: Callable[[], None] | None = None,
    ) -> Callable[[Any], Any]:
        """Give a train function that does the same when the gate is open."""
        gate, stop = self._gate, self._stop
        by_epochs = isinstance(gate, EpochGate)

        def passing(iterator: Any) -> Any:
            stops = self._epoch_begins or not by_epochs
            self._epoch_begins = False
            if stops and not gate.passes(iterator):
                stop()
            return train_function(iterator)

        return passing

    def event(self, kind: EventKind) -> None:
        """Learn that the next call is an epoch's first.

        Between two epochs a job stops there: the new iterator has not begun to work, and the old one is gone.
        Before that Keras still holds it, and the older one gets the longer it takes to be taken down.
        """
        if kind == "epoch_begin":
            self._epoch_begins = True


class Lane:
    """A job that has its thread and its gate."""

    def __init__(self, session: Session, arm: Arm, make_callback: Callable[[Recorder], Any]) -> None:
        self.arm = arm
        self._session = session
        self._clock = session.request.clock
        self._make_callback = make_callback
        self._gate = Gate(self._clock) if arm.epochs is None else EpochGate(self._clock)
        self._worker = Worker(self._clock)
        session.threads.append(self._worker)
        self.settled = False
        """Its tuning and buffers have settled."""
        self._begun = False
        self._out = False
        self._error: BaseException | None = None
        self._function: Any = None
        """The train function that stands in the model while it is this job's turn."""

    def turn(self, seconds: float, until: float) -> Turn:
        """Let it run for a while, and give the steps that count."""
        before = self._enter()
        try:
            self._gate.begin(seconds)
            if not self._begun:
                self._begun = True
                self._worker.begin(self._run)
            told = self._gate.wait(until - self._clock())
        finally:
            self._leave(before)
        if told == "parked":
            return self._gate.turn()
        if told == "out":
            self._out = True
            why = "its data ended" if self._error is None else root_cause(self._error)
            raise LaneFailed(f"the changed job failed: {why}")
        raise LaneFailed("a step of it took longer than what was left of the budget")

    def close(self) -> None:
        """Let it come to its end; a job that does not is left, and put back when it is out."""
        if self._begun and not self._out:
            before = self._enter()
            try:
                self._gate.end()
                self._out = self._gate.wait(_END_S) == "out"
            finally:
                self._leave(before)
        self._worker.abandoned = self._begun and not self._out
        self._worker.settle(SETTLES_S)
        if not self._worker.abandoned:
            self._worker.close()
            self._session.threads.remove(self._worker)
        if not self._begun:
            self.arm.close()  # else it is closed behind the job, see _run

    # --- inside -------------------------------------------------------------------------------------

    def _enter(self) -> dict[str, Any]:
        """Put this job's train function and settings into the model, and keep what stood there."""
        if self._session.request.train_step is not None:
            return {}  # a loop of the caller's own has nothing that could be swapped
        model = self.arm.model
        # A job that came to its end left the wish to stop in the model, which is not meant for this one.
        settings = {**self.arm.settings, "stop_training": False}
        before = {name: getattr(model, name, None) for name in settings}
        keras_copies.put_settings(model, settings)
        before["train_function"] = getattr(model, "train_function", None)
        if self._begun or self.arm.settings:
            model.train_function = self._function
        return before

    def _leave(self, before: Mapping[str, Any]) -> None:
        if not before:
            return
        model = self.arm.model
        self._function = getattr(model, "train_function", None)
        keras_copies.put_settings(model, before)

    def _run(self) -> None:
        with contextlib.ExitStack() as behind:
            behind.callback(self.arm.close)
            try:
                if self._session.request.train_step is not None:
                    self._loop(self._session.request.train_step)
                else:
                    self._fit(behind)
            except BaseException as error:  # noqa: BLE001  # carried to the conductor, whatever it is
                self._error = error
            finally:
                self._gate.leave()

    def _fit(self, behind: contextlib.ExitStack) -> None:
        model = self.arm.model

        def stop() -> None:
            model.stop_training = True

        callback = self._make_callback(_Passing(self._clock, self._gate, stop))
        kept = {k: v for k, v in self._session.request.fit_kwargs.items() if k in _KEPT}
        try:
            model.fit(**self.arm.data, **kept, epochs=_EPOCHS, verbose=0, callbacks=[callback])
        finally:
            callback.close()
            behind.callback(callback.take_down)

    def _loop(self, train_step: Callable[[Any], Any]) -> None:
        for batch in self.arm.data["x"]:
            if not self._gate.passes():
                return
            train_step(batch)

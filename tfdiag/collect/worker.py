"""Runs the caller's job on a thread, so that a step that never returns can't keep the caller.

Nothing can interrupt a step that sits in C++ or in the caller's own blocking code; only a second thread
can return in spite of it. The thread sees the Keras state and the strategy of the caller's thread.
"""

from __future__ import annotations

import atexit
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from tfdiag.compat import keras

__all__ = ["SETTLES_S", "Abandoned", "EndOfRun", "Worker"]

SETTLES_S = 0.5
"""How long is waited for what a run held to be taken down, before others go on beside it."""

_T = TypeVar("_T")

_INTERRUPTED_S = 2.0
"""How long a step may take to come back after Ctrl-C before it is left alone."""

_AT_EXIT_S = 60.0
"""How long the interpreter's exit waits for a thread that takes down what a run held."""


class Abandoned(Exception):  # what happened, not what is wrong
    """The work did not come back in time; the thread is still in it."""


class EndOfRun(BaseException):
    """Unwinds the work when it is to end; a BaseException, so that no `except Exception` eats it."""


class Worker:
    """One thread that does one piece of work after another, each with an end by which it must be back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.abandoned = False
        self._leaving = False
        self._on_return: Callable[[], None] | None = None
        self.returned = threading.Event()
        """Set once the thread is out of all its work, and `on_return` of a thread that was left has run."""
        context = contextvars.copy_context()
        scope = keras.carry_context()

        def body() -> None:
            with scope:
                while (work := self._work.get()) is not None:
                    work()
            try:
                if self._on_return is not None:
                    self._on_return()
            finally:
                atexit.unregister(self._before_exit)
                self.returned.set()  # whoever waits must not wait for ever

        self._thread = threading.Thread(target=context.run, args=(body,), name="tfdiag-job", daemon=True)
        self._thread.start()

    @property
    def stuck(self) -> bool:
        """Say whether it was left in the middle of its work, which it may go on with when it comes back."""
        return self.abandoned and not self._leaving

    def run(
        self,
        function: Callable[[], _T],
        *,
        until: float,
        grace_s: float,
        stop: Callable[[], None],
    ) -> _T:
        """Do `function` on the thread; at `until` ask it to `stop`, and leave it after the grace."""
        done = threading.Event()
        result: list[_T] = []
        failure: list[BaseException] = []

        def work() -> None:
            try:
                result.append(function())
            except EndOfRun:
                # Without its frames: they hold iterators of tf.data, and taking these down may wait for their
                # tuning, for seconds. That happens here, at the end of this block, and nobody waits for it.
                failure.append(EndOfRun())
                done.set()
            except BaseException as error:  # noqa: BLE001  # carried to the caller's thread, whatever it is
                failure.append(error)
            finally:
                done.set()

        self._work.put(work)
        try:
            if not done.wait(max(0.0, until - self._clock())):
                stop()
                if not done.wait(max(0.05, grace_s)):
                    raise Abandoned  # noqa: TRY301  # handled like Ctrl-C, just below
        except BaseException as reason:
            if not done.is_set():
                # Ctrl-C, or time is up: the thread ends as soon as it comes back. A second Ctrl-C leaves it.
                self.abandoned = True
                stop()
                # After Ctrl-C no budget has to be kept, and the job is put back once the thread is out.
                patience_s = grace_s if isinstance(reason, Abandoned) else max(grace_s, _INTERRUPTED_S)
                self.abandoned = not done.wait(max(0.05, patience_s))
            raise
        if failure:
            error = failure.pop()
            try:
                raise error
            finally:
                # The error holds this frame, and with it the whole of fit: let go of the circle.
                del error
        return result[0]

    def begin(self, function: Callable[[], None]) -> None:
        """Do `function` on the thread, without waiting for it; it must not raise."""
        self._work.put(function)

    def settle(self, patience_s: float) -> None:
        """Wait until the thread is out of all that it was given; it is left where that takes longer.

        It is known to come out, and touches nothing of the caller's any more.
        """
        if self.stuck:
            return
        idle = threading.Event()
        self._work.put(idle.set)
        self.abandoned = self._leaving = not idle.wait(max(0.0, patience_s))
        if self._leaving:
            # An iterator whose functions are Python's can't be taken down any more once the interpreter is
            # being taken down: both would wait for each other, for ever.
            atexit.register(self._before_exit)

    def close(self, on_return: Callable[[], None] | None = None) -> None:
        """End the thread; where it is still in abandoned work, `on_return` runs when it is out."""
        if self.abandoned:
            self._on_return = on_return
        # The only thing that ends the thread, also one that came back just after it was given up.
        self._work.put(None)
        if not self.abandoned:
            self._thread.join()

    def _before_exit(self) -> None:
        self.returned.wait(_AT_EXIT_S)

"""Some of the job's own steps under the profiler: what the device does in them, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfdiag.collect.recorder import EventKind, Recorder
from tfdiag.collect.worker import EndOfRun
from tfdiag.compat.profiler import Tracer, step_mark
from tfdiag.errors import TraceError
from tfdiag.model.device import DeviceTrace
from tfdiag.model.quantity import Missing
from tfdiag.timeline import condense, read_trace

__all__ = ["LEAST", "WARM", "TracingRecorder"]

WARM = 3
"""Calls before the trace: the first ones fill buffers."""
_CALLS = 24
LEAST = 4
_LIMIT_BYTES = 200_000_000
_SOURCE = "tf.profiler, during this diagnosis"


class TracingRecorder(Recorder):
    """Looks on as a recorder does, and traces some calls once the first are over."""

    def __init__(
        self,
        clock: Callable[[], float],
        tracer: Tracer,
        *,
        steps_per_call: int,
        until: float,
        on_done: Callable[[], None],
        should_stop: Callable[[], bool],
    ) -> None:
        super().__init__(clock, steps_per_call=steps_per_call)
        self._tracer = tracer
        self._until = until
        self._on_done = on_done
        self._should_stop = should_stop
        self._made = 0
        self._traced = 0
        self._begins = False
        """An epoch has begun, and none of its calls."""
        self._ends_of_epochs: list[int] = []
        """The traced calls that were the last of their epoch, -1 for the one before the trace."""
        self._found: bytes | Missing = Missing("the run ended before anything was traced")

    def event(self, kind: EventKind) -> None:
        """Write it down, and which of the traced calls it came after."""
        super().event(kind)
        if kind == "epoch_begin":
            self._begins = True

    def instrument(
        self,
        train_function: Callable[[Any], Any],
        tracing: Callable[[], int] | None,
        *,
        waited: list[float] | None = None,
        on_error: Callable[[], None] | None = None,
    ) -> Callable[[Any], Any]:
        """Give a train function that does the same, and is traced for some calls."""

        def traced(iterator: Any) -> Any:
            if self._should_stop():
                raise EndOfRun
            self._made += 1
            if self._made == WARM + 1 and self.clock() < self._until:
                missing = self._tracer.start(device=True)
                if missing is not None:
                    self._found = missing
            begins, self._begins = self._begins, False
            if not self._tracer.running:
                if self._made > WARM:
                    self._on_done()
                return train_function(iterator)
            if begins:
                self._ends_of_epochs.append(self._traced - 1)
            with step_mark(self._traced):
                result = train_function(iterator)
            self._traced += 1
            late = self.clock() >= self._until and self._traced >= LEAST
            if late or self._traced >= _CALLS:
                self._found = self._tracer.take(_LIMIT_BYTES)
                self._on_done()
            return result

        return super().instrument(traced, tracing, waited=waited, on_error=on_error)

    def trace(self) -> DeviceTrace | Missing:
        """Give what was traced, condensed."""
        if self._tracer.running:  # the data ended first
            self._found = self._tracer.take(_LIMIT_BYTES)
        if isinstance(self._found, Missing):
            return self._found
        try:
            timeline = read_trace(self._found)
        except TraceError as error:
            return Missing(f"the trace of this diagnosis can't be read: {error}")
        timeline.source = _SOURCE
        return condense(timeline, ends_of_epochs=self._ends_of_epochs)

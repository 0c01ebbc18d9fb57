"""Notes traces of functions while the job runs as it is."""

from __future__ import annotations

from collections.abc import Callable

from tfdiag.collect.recorder import Recorder
from tfdiag.compat.traces import Traced, TraceWatch, difference
from tfdiag.model.compilation import Compilation, Trace
from tfdiag.model.quantity import Missing

__all__ = ["TraceLog"]

_KEPT = 200
"""Traces that are kept; more of them say nothing new."""


class TraceLog:
    """What was traced in one run."""

    def __init__(self, clock: Callable[[], float], recorder: Recorder) -> None:
        self._recorder = recorder
        self._watch = TraceWatch(clock, self._note)
        self._traces: list[Trace] = []
        self._count = 0
        self._started = False

    def start(self) -> None:
        """Watch this thread."""
        self._started = True
        self._watch.start()

    def stop(self) -> None:
        """Watch no more; harmless when nothing is on."""
        self._watch.stop()

    def found(self) -> Compilation | Missing:
        """Give what was traced so far."""
        if not self._started:
            return Missing("the job did not run")
        return Compilation(tuple(self._traces), self._count, self._watch.missing)

    def _note(self, traced: Traced) -> None:
        recorder = self._recorder
        if recorder.hot.inside:
            during = "callback"
        elif recorder.testing:
            during = "validation"
        elif recorder.hot.latest is None:
            during = "elsewhere"  # before the first step, or between epochs
        else:
            during = "step"
            self._count += 1
            recorder.traces(traced.seconds)
        if len(self._traces) >= _KEPT:
            return
        cause, argument, before, after = difference(traced)
        self._traces.append(
            Trace(
                function=traced.function,
                where=traced.where,
                call=recorder.dropped + len(recorder.calls),
                seconds=traced.seconds,
                during=during,  # type: ignore[arg-type]  # one of the words above
                cause=cause,  # type: ignore[arg-type]  # one of `CAUSES`
                argument=argument,
                before=before,
                after=after,
            )
        )

"""Facts about Python's part of the run: the callbacks, and what was told apart inside them."""

from __future__ import annotations

from tfdiag.collect.instrument import BESIDE
from tfdiag.collect.session import Session
from tfdiag.model.host_work import HostWork
from tfdiag.model.quantity import Missing

__all__ = ["host_work"]


def host_work(session: Session) -> HostWork | Missing:
    """Say what is known of callbacks beside their times."""
    recorder, watch = session.recorder, session.watch
    if recorder is None or watch is None:
        return Missing("the job did not run")
    return HostWork(
        callbacks=tuple(recorder.facts),
        watched=watch.kinds,
        unwatched=watch.missing,
        background=any(row.method.endswith(BESIDE) for row in recorder.callbacks),
    )

"""Opens a session on the caller's job, and leaves everything as it was when it is over.

Facts are read and a snapshot is taken before anything runs. Whatever ends the session (enough seen, the
budget, an error, Ctrl-C), the snapshot is put back.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfdiag.collect.environment import read_environment
from tfdiag.collect.job import job_of, notes_of
from tfdiag.collect.redirect import redirect_files
from tfdiag.collect.roots import roots_of
from tfdiag.collect.session import Request, Session
from tfdiag.collect.snapshot import Snapshot
from tfdiag.collect.worker import Worker
from tfdiag.compat import keras

__all__ = ["opened"]

_PATIENCE_S = 0.05
"""How long a thread may take to settle where the budget is used up."""


@contextlib.contextmanager
def opened(request: Request, begin: float | None = None) -> Iterator[Session]:
    """Give a session in which the job may be run; everything of the caller's is as before when it ends.

    `begin` is when the budget began, if that was before now.
    """
    begin = request.clock() if begin is None else begin
    environment = read_environment(request.model)
    folder = Path(tempfile.mkdtemp(prefix="tfdiag-"))
    session = Session(request, folder, environment, begin)
    request.source.cache_folder = str(folder)
    snapshot: Snapshot | None = None
    # Warning filters belong to the whole process, so this thread changes them: it always comes back.
    with keras.quiet():
        try:
            with session.phase("facts and snapshot"):
                snapshot = Snapshot(roots_of(request), folder)
                redirected = redirect_files(request.callbacks, folder)
                if redirected:
                    session.notes.append(
                        f"{', '.join(redirected)} wrote to a private folder during the diagnosis"
                    )
                session.job = job_of(request)
                session.notes.extend(notes_of(request))
            session.threads.extend([Worker(request.clock), Worker(request.clock)])
            yield session
        finally:
            if session.tracer.running:
                session.tracer.stop()
            session.unwatch()
            _clean_up(session, snapshot)


def _clean_up(session: Session, snapshot: Snapshot | None) -> None:
    model = session.request.model
    session.over = True
    for thread in session.threads:
        thread.settle(max(_PATIENCE_S, session.deadline.left()))
    left = [thread for thread in session.threads if thread.stuck]

    def discard() -> None:
        shutil.rmtree(session.folder, ignore_errors=True)

    def put_back() -> None:
        try:
            if snapshot is not None:
                snapshot.restore()
        finally:
            discard()

    for thread in session.threads:
        if thread not in left:
            thread.close(on_return=discard)
    if not left:
        put_back()
        return
    # The step is still running and will write its update when it ends: put back now for whoever
    # looks at the model, again when it is out, and let nobody train in between.
    if snapshot is not None:
        snapshot.restore()
    before = getattr(model, "train_function", None)
    for thread in left:
        thread.close(on_return=put_back)

    def wait_first(iterator: Any) -> Any:
        for thread in left:
            thread.returned.wait()
        model.train_function = before
        return keras.make_train_function(model)(iterator)

    if not all(thread.returned.is_set() for thread in left) and session.request.train_step is None:
        model.train_function = wait_first

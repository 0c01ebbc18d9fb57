"""The door to what Python asks of TensorFlow between steps: values, files, summaries.

Calls that hold Python up are timed where they enter TensorFlow, while somebody watches, on one thread only.
Names that are replaced for that time, and what happens where they are gone (that kind is not watched):

- `tensorflow.python.framework.ops._EagerTensorBase._numpy` (2.13 to 2.21): `.numpy()`, `float()`, `int()`,
  `bool()` and printing of a tensor pass through it. `np.asarray(tensor)` reads the buffer and does not.
- `keras.src.backend.convert_to_numpy` (3.3 to 3.15), which reads the buffer too: `keras.ops.convert_to_numpy`
  and the logs of a batch pass through it.
- `tensorflow.python.ops.summary_ops_v2.write`, `.flush` and `_ResourceSummaryWriter.flush` (2.13 to 2.21),
  and `tf.summary.write`, `tf.summary.flush`, which are the same functions.
- `keras.Model.save`, `.save_weights`, the same of tf_keras, `tf.train.Checkpoint.save`, `.write`: public.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tfdiag.compat.tensorflow import tensorflow

__all__ = ["KINDS", "Spent", "Watch"]

KINDS = ("sync", "save", "summary")
_IO = Path("/proc/thread-self/io")


class Spent:
    """What one hook spent on each kind since it was last taken."""

    __slots__ = ("save_s", "saves", "summaries", "summary_s", "sync_s", "syncs", "written")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.syncs = self.saves = self.summaries = 0
        self.sync_s = self.save_s = self.summary_s = 0.0
        self.written = 0
        """Bytes that the thread wrote in calls that save."""

    @property
    def calls(self) -> int:
        """Give the calls of all kinds."""
        return self.syncs + self.saves + self.summaries

    @property
    def all_s(self) -> float:
        """Give the time in all kinds."""
        return self.sync_s + self.save_s + self.summary_s

    def taken(self, *, close: bool) -> dict[str, Any]:
        """Give it by name, and begin anew where that was asked for."""
        parts = {
            "syncs": self.syncs, "sync_s": self.sync_s, "saves": self.saves, "save_s": self.save_s,
            "summaries": self.summaries, "summary_s": self.summary_s, "written_bytes": self.written,
        }  # fmt: skip
        if close:
            self.clear()
        return parts


class Watch:
    """Times those calls for as long as it is on.

    What is called inside of another such call counts for the outer one: saving reads the values of weights.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._thread = 0
        self._busy = False
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self.kinds: tuple[str, ...] = ()
        self.missing = ""
        self.cell: Spent | None = None
        """Where time goes while a hook runs that somebody times."""
        self.fetched: Spent | None = None
        """Where the time goes in which Keras itself fetches the logs of a batch."""

    def start(self) -> None:
        """Replace the functions; what this thread does from now on is watched."""
        self.stop()
        self._thread = threading.get_ident()
        gone = []
        for kind, found in (("sync", _tensors()), ("save", _savers()), ("summary", _writers())):
            for owner, name in found:
                self._replace(owner, name, kind)
            if found:
                self.kinds += (kind,)
            else:
                gone.append(kind)
        self.missing = f"this TensorFlow keeps elsewhere: {', '.join(gone)}" if gone else ""

    def stop(self) -> None:
        """Put the functions back, and pass on what still comes; harmless when nothing is on."""
        self._thread = 0
        self.cell = self.fetched = None
        replaced, self._replaced = self._replaced, []
        for owner, name, original, ours in reversed(replaced):
            # Somebody else may have replaced it meanwhile: theirs stays, and ours passes on.
            if vars(owner).get(name) is ours:
                setattr(owner, name, original)

    def _replace(self, owner: Any, name: str, kind: str) -> None:
        original = vars(owner)[name]
        ours: Any = {"sync": self._reading, "save": self._saving, "summary": self._writing}[kind](original)
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(ours, attribute, getattr(original, attribute, None))
        ours.__wrapped__ = original
        setattr(owner, name, ours)
        self._replaced.append((owner, name, original, ours))

    def _reading(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        clock, ident = self._clock, threading.get_ident

        def _numpy(tensor: Any) -> Any:
            cell = self.cell or self.fetched
            if cell is None or self._busy or ident() != self._thread:
                return original(tensor)
            # The train function asks whether there was a batch: that is no fetching of logs.
            if cell is not self.cell and not _fetches_logs():
                return original(tensor)
            begin = clock()
            try:
                return original(tensor)
            finally:
                cell.sync_s += clock() - begin
                cell.syncs += 1

        return _numpy

    def _saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(*args: Any, **kwargs: Any) -> Any:
            cell = self.cell
            if cell is None or self._busy or threading.get_ident() != self._thread:
                return original(*args, **kwargs)
            self._busy = True
            before = _written()
            begin = self._clock()
            try:
                return original(*args, **kwargs)
            finally:
                cell.save_s += self._clock() - begin
                cell.saves += 1
                cell.written += max(0, _written() - before)
                self._busy = False

        return save

    def _writing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            cell = self.cell
            if cell is None or self._busy or threading.get_ident() != self._thread:
                return original(*args, **kwargs)
            self._busy = True
            begin = self._clock()
            try:
                return original(*args, **kwargs)
            finally:
                cell.summary_s += self._clock() - begin
                cell.summaries += 1
                self._busy = False

        return write


def _fetches_logs() -> bool:
    """Say whether a value is asked for by what makes numbers of the logs of a batch, in Keras 3 or tf_keras.

    It stands right above the replaced function, or above `float` and `.numpy()`.
    """
    asks: FrameType | None = sys._getframe(2)
    for _ in range(2):
        if asks is None:
            return False
        caller = asks.f_back
        if asks.f_code.co_name == "pythonify_logs":
            return caller is not None and caller.f_code.co_name == "_on_train_batch_end"
        if asks.f_code.co_name == "_to_single_numpy_or_python_type":
            return True
        asks = caller
    return False


def _written() -> int:
    """Count the bytes that this thread has written so far; 0 where the platform does not."""
    try:
        for line in _IO.read_text().splitlines():
            if line.startswith("wchar:"):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _tensors() -> list[tuple[Any, str]]:
    return _having(
        [
            (_module("tensorflow.python.framework.ops", "_EagerTensorBase"), ("_numpy",)),
            (sys.modules.get("keras.src.backend"), ("convert_to_numpy",)),
        ]
    )


def _savers() -> list[tuple[Any, str]]:
    models = []
    for package in ("keras", "tf_keras"):
        model = getattr(sys.modules.get(package), "Model", None)
        models.append((model, ("save", "save_weights")))
    return _having([*models, (tensorflow().train.Checkpoint, ("save", "write"))])


def _writers() -> list[tuple[Any, str]]:
    ops = _module("tensorflow.python.ops.summary_ops_v2")
    return _having(
        [
            (ops, ("write", "flush")),
            (tensorflow().summary, ("write", "flush")),
            (getattr(ops, "_ResourceSummaryWriter", None), ("flush",)),
        ]
    )


def _having(owners: list[tuple[Any, tuple[str, ...]]]) -> list[tuple[Any, str]]:
    return [
        (owner, name)
        for owner, names in owners
        if owner is not None
        for name in names
        if callable(vars(owner).get(name))
    ]


def _module(name: str, attribute: str = "") -> Any:
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    return getattr(module, attribute, None) if attribute else module

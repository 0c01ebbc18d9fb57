"""The door to TensorFlow's profiler: a short trace of what the host does, as numbers.

Private names and where they were seen, with what happens when they are gone: the trace is `Missing`, and
dispatch is estimated.

- `tensorflow.tsl.profiler.protobuf.xplane_pb2` (2.16 to 2.21), the form of the trace.
- The name `ExecutorState::Process` (2.16 to 2.21) of the time in which a thread works through the ops of a
  step.
- The names `EagerExecute` and `KernelAndDeviceFunc::Run` (2.16 to 2.21) of an op that Python has executed by
  itself: without them an eager step is not known as one.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tfdiag.compat import stderr
from tfdiag.compat.tensorflow import tensorflow
from tfdiag.model.quantity import Missing

__all__ = ["STEP_MARK", "Tracer", "Worked", "step_mark"]

T = TypeVar("T")

STEP_MARK = "tfdiag step"

_WORKING = "ExecutorState::Process"
_EAGER = "EagerExecute"
_EAGER_WORKING = "KernelAndDeviceFunc::Run"
_HOST_LEVEL = 2
"""Ops and iterators, without the threads' small change."""
_ALL_OPS_LEVEL = 3
"""TensorFlow calls an op quick that took less than some microseconds, and leaves it out of lower levels."""


@dataclass(frozen=True, slots=True)
class Worked:
    """What the host did meanwhile."""

    graph_s: float
    """Time in which at least one thread worked on ops of graphs."""
    eager_s: float
    """Time in which ops ran that Python had executed, graphs as a whole among them."""
    eager_ops: int
    """How many those were."""


class Tracer:
    """Records what the host does between `start` and `stop`; one at a time, as TensorFlow allows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "trace"
        self.running = False

    def start(self, *, device: bool = False, all_ops: bool = False) -> Missing | None:
        """Begin to record, accelerators and quick ops as well if asked to, or say why that can't be."""
        tf = tensorflow()
        try:
            options = tf.profiler.experimental.ProfilerOptions(
                host_tracer_level=_ALL_OPS_LEVEL if all_ops else _HOST_LEVEL,
                python_tracer_level=0,
                device_tracer_level=int(device),
            )
            with stderr.without(stderr.PROFILER):
                tf.profiler.experimental.start(str(self._folder), options=options)
        except (tf.errors.OpError, AttributeError, TypeError) as error:
            return Missing(f"the profiler can't be started: {error}")
        self.running = True
        return None

    def stop(self) -> Worked | Missing:
        """Stop, and give what ops ran."""
        return self.stop_with(_read)

    def take(self, limit_bytes: int) -> bytes | Missing:
        """Stop, and give the trace itself."""
        return self.stop_with(lambda folder: _bytes_of(folder, limit_bytes))

    def stop_with(self, read: Callable[[Path], T | Missing]) -> T | Missing:
        """Stop, and give what `read` finds in the folder of the trace."""
        if not self.running:
            return Missing("no trace was running")
        self.running = False
        tf = tensorflow()
        try:
            with stderr.without(stderr.PROFILER):
                tf.profiler.experimental.stop()
        except tf.errors.OpError as error:
            return Missing(f"the profiler could not be stopped: {error}")
        try:
            return read(self._folder)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def step_mark(number: int) -> Any:
    """Give a context that marks a step in a trace that is being recorded."""
    return tensorflow().profiler.experimental.Trace(STEP_MARK, step_num=number, _r=1)


def _bytes_of(folder: Path, limit_bytes: int) -> bytes | Missing:
    files = sorted(folder.rglob("*.xplane.pb"))
    if not files:
        return Missing("the profiler wrote no trace")
    size = files[-1].stat().st_size
    if size > limit_bytes:
        return Missing(f"a few steps made a trace of {size:,} bytes, which would take too long to read")
    return files[-1].read_bytes()


def _read(folder: Path) -> Worked | Missing:
    files = sorted(folder.rglob("*.xplane.pb"))
    if not files:
        return Missing("the profiler wrote no trace")
    try:
        form = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    except ImportError as error:
        return Missing(f"the trace can't be read: {error}")
    space = form.XSpace.FromString(files[-1].read_bytes())
    spans: dict[str, list[tuple[float, float]]] = {_WORKING: [], _EAGER: [], _EAGER_WORKING: []}
    for plane in space.planes:
        wanted = {
            key: spans[value.name] for key, value in plane.event_metadata.items() if value.name in spans
        }
        for line in plane.lines if wanted else ():
            begin = line.timestamp_ns * 1e-9
            for event in line.events:
                found = wanted.get(event.metadata_id)
                if found is not None:
                    at = begin + event.offset_ps * 1e-12
                    found.append((at, at + event.duration_ps * 1e-12))
    if not spans[_WORKING] and not spans[_EAGER_WORKING]:
        return Missing("the trace holds no ops: this TensorFlow names its events otherwise")
    return Worked(_union(spans[_WORKING]), _union(spans[_EAGER_WORKING]), len(spans[_EAGER]))


def _union(found: list[tuple[float, float]]) -> float:
    """Measure how long at least one of the spans lasted."""
    if not found:
        return 0.0
    spans = np.array(sorted(found))
    reach = np.maximum.accumulate(spans[:, 1])
    begins = np.maximum(spans[:, 0], np.concatenate(([-np.inf], reach[:-1])))
    return float(np.sum(np.maximum(0.0, spans[:, 1] - begins)))

"""What a diagnosis could leave behind, as plain structures that can be compared.

`surroundings()` is the process: threads, hooks, filters, handlers, settings, files. It is cheap
and never imports TensorFlow. `random_streams()` are the global random generators. `state_of()` is a
model with everything that hangs on it, bit for bit. `leaves_no_trace()` compares all of them around
a block, also when an exception passes through.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import random
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BOUNDED_WAIT_S = 20.0
"""How long a thread that was told to end may take: it may be taking down an iterator of tf.data, which waits
for its tuning thread to wake up, at most for as long as the iterator is old."""

NOT_OURS = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".coverage")
"""Entries of the working directory that the test tools write."""

OF_TENSORFLOW = "__autograph_generated_file"
"""Temporary files that TensorFlow keeps until the process ends, one for each function it traced."""

FRAMEWORKS = ("keras", "tf_keras")
"""Objects of these packages are walked; any other object is compared by identity."""

BOOKKEEPING = {
    "_self_update_uid": "a counter of TensorFlow's checkpoint tracking, read by nobody else",
    "_self_unconditional_checkpoint_dependencies": "a view of the attributes, which are compared",
    "_self_unconditional_dependency_names": "a view of the attributes, which are compared",
    "_obj_reference_counts_dict": "tf_keras counts references to attributes, which are compared",
}
"""Attributes that are not compared, each with the reason."""

Paths = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Same:
    """An object that must be the very same one; holding it keeps its id from being used again."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __repr__(self) -> str:
        return f"<{type(self.thing).__module__}.{type(self.thing).__name__} at {id(self.thing):#x}>"


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Say in lines which paths appeared, vanished or changed."""
    lines = [f"new:     {path} = {_short(after[path])}" for path in after if path not in before]
    lines += [f"gone:    {path} = {_short(before[path])}" for path in before if path not in after]
    lines += [
        f"changed: {path}: {_short(before[path])} -> {_short(after[path])}"
        for path in before
        if path in after and before[path] != after[path]
    ]
    return lines


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."


# The process ---------------------------------------------------------------------------------


def surroundings() -> Paths:
    """Give what a library could leave behind in this process, without importing anything heavy."""
    paths: Paths = {
        "sys.gettrace()": Same(sys.gettrace()),
        "sys.getprofile()": Same(sys.getprofile()),
        "threading.gettrace()": Same(threading.gettrace()),
        "threading.getprofile()": Same(threading.getprofile()),
        "sys.excepthook": Same(sys.excepthook),
        "sys.unraisablehook": Same(sys.unraisablehook),
        "threading.excepthook": Same(threading.excepthook),
        "sys.getswitchinterval()": sys.getswitchinterval(),
        "sys.getrecursionlimit()": sys.getrecursionlimit(),
        "warnings.filters": tuple(warnings.filters),
        "warnings.showwarning": Same(warnings.showwarning),
        "gc.isenabled()": gc.isenabled(),
        "gc.get_threshold()": gc.get_threshold(),
        "gc.callbacks": tuple(Same(callback) for callback in gc.callbacks),
        "signal.getitimer()": signal.getitimer(signal.ITIMER_REAL)[1],
        "Path.cwd()": Path.cwd(),
        "np.geterr()": tuple(sorted(np.geterr().items())),
        "logging.root.level": logging.root.level,
        "logging.root.handlers": tuple(
            Same(handler)
            for handler in logging.root.handlers
            if not type(handler).__module__.startswith("_pytest")
        ),
        "logging tfdiag handlers": tuple(map(Same, logging.getLogger("tfdiag").handlers)),
        "logging tfdiag level": logging.getLogger("tfdiag").level,
    }
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            paths[f"signal {int(number)}"] = Same(signal.getsignal(number))
    for entry in Path(tempfile.gettempdir()).iterdir():
        if not entry.name.startswith(OF_TENSORFLOW):
            paths[f"temporary file {entry.name}"] = True
    for entry in Path().iterdir():
        if not entry.name.startswith(NOT_OURS):
            paths[f"working directory {entry.name}"] = True
    paths.update({f"environ {name}": value for name, value in os.environ.items()})
    paths.pop("environ PYTEST_CURRENT_TEST", None)
    if _loaded("tensorflow"):
        paths.update(_tensorflow_settings())
    for package in FRAMEWORKS:
        if _loaded(package):
            paths.update(_keras_settings(package))
    return paths


def frameworks_loaded() -> frozenset[str]:
    """Tell which of TensorFlow and the Kerases have been imported."""
    return frozenset(filter(_loaded, ("tensorflow", *FRAMEWORKS)))


def _loaded(package: str) -> bool:
    """Tell whether a package has been imported to its end."""
    spec = getattr(sys.modules.get(package), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _tensorflow_settings() -> Paths:
    tf = sys.modules["tensorflow"]
    profiler = sys.modules.get("tensorflow.python.profiler.profiler_v2")
    return {
        "tf.config.functions_run_eagerly()": tf.config.functions_run_eagerly(),
        "tf.config.get_soft_device_placement()": tf.config.get_soft_device_placement(),
        "tf.config.optimizer.get_jit()": tf.config.optimizer.get_jit(),
        "tf.config.optimizer options": dict(tf.config.optimizer.get_experimental_options()),
        "tf.config.threading inter": tf.config.threading.get_inter_op_parallelism_threads(),
        "tf.config.threading intra": tf.config.threading.get_intra_op_parallelism_threads(),
        "tf.distribute.has_strategy()": tf.distribute.has_strategy(),
        "tf.executing_eagerly()": tf.executing_eagerly(),
        "tf.get_logger().level": tf.get_logger().level,
        "TensorFlow profiler runs": getattr(profiler, "_profiler", None) is not None,
    }


def _keras_settings(package: str) -> Paths:
    keras = sys.modules[package]
    backend = keras.config if package == "keras" else keras.backend
    paths: Paths = {
        "floatx": backend.floatx(),
        "epsilon": backend.epsilon(),
        "image_data_format": backend.image_data_format(),
    }
    if package == "keras":
        paths["traceback filtering"] = keras.config.is_traceback_filtering_enabled()
        paths["dtype policy"] = keras.config.dtype_policy().name
        paths["interactive logging"] = keras.config.is_interactive_logging_enabled()
        paths["max_epochs"] = keras.config.max_epochs()
        paths["max_steps_per_epoch"] = keras.config.max_steps_per_epoch()
    else:
        paths["dtype policy"] = keras.mixed_precision.global_policy().name
        paths["traceback filtering"] = sys.modules["tensorflow"].debugging.is_traceback_filtering_enabled()
        paths["interactive logging"] = keras.utils.is_interactive_logging_enabled()
    return {f"{package} {name}": value for name, value in paths.items()}


def python_threads() -> set[threading.Thread]:
    """Give the threads that Python started, not those of TensorFlow that called into Python."""
    return {thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}


def threads_left(before: set[threading.Thread]) -> list[str]:
    """Name the threads that are new and don't end, after one bounded wait for each."""
    if not python_threads() - before:
        return []
    gc.collect()  # the thread pool of an abandoned Keras CallbackList ends when it is collected
    left = python_threads() - before
    for thread in left:
        thread.join(BOUNDED_WAIT_S)
    stacks = sys._current_frames()
    return [
        f"thread:  {thread!r}, at\n" + "".join(traceback.format_stack(stacks[thread.ident or 0]))
        for thread in left
        if thread.is_alive() and thread.ident in stacks
    ]


# Random generators and names -----------------------------------------------------------------


def random_streams() -> Paths:
    """Give the states of the global generators: Python's, numpy's, TensorFlow's and Keras'."""
    paths: Paths = {
        "random.getstate()": random.getstate(),
        "np.random.get_state()": _plain(np.random.get_state()),  # noqa: NPY002  # the global one is meant
    }
    if _loaded("tensorflow"):
        seeds = sys.modules["tensorflow.python.eager.context"].context()
        generator = getattr(seeds, "_rng", None)  # made by the first draw
        paths["TensorFlow's global seed"] = getattr(seeds, "_seed", None)
        paths["TensorFlow's op seeds"] = None if generator is None else generator.getstate()
    if _loaded("keras"):
        paths.update(_keras_globals())
    return paths


def _keras_globals() -> Paths:
    """Give Keras' own globals: the names it has handed out and its global seed generator."""
    tracker = sys.modules["keras.src.backend.common.global_state"].GLOBAL_STATE_TRACKER
    kept = {
        name: value
        for name, value in vars(tracker).items()
        # a memo of names that are unique within one call, emptied by Keras itself
        if not name.startswith("_")
    }
    walker = _Walk()
    walker.visit("Keras global", kept)
    return walker.paths


# A model and what hangs on it ----------------------------------------------------------------


def state_of(model: Any, callbacks: Iterable[Any] = ()) -> Paths:
    """Give everything that training could change: an entry for each variable and attribute."""
    walker = _Walk()
    walker.visit("model", model)
    for index, callback in enumerate(callbacks):
        walker.visit(f"callbacks[{index}]", callback, walk=True)
    return walker.paths


def state_of_input(dataset: Any) -> Paths:
    """Give what can be seen of an input without taking anything from it."""
    walker = _Walk()
    if isinstance(dataset, (str, bytes, np.ndarray, list, tuple, dict)):
        walker.visit("dataset", dataset)
    elif hasattr(dataset, "__dict__") and not _is_tensor(dataset):
        walker.visit("dataset", dataset, walk=True)
    return walker.paths


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "numpy") and hasattr(value, "dtype")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "numpy") and hasattr(value, "dtype") and hasattr(value, "shape")


def _of_framework(value: Any) -> bool:
    """Tell whether an object is of Keras, or of a class that derives from Keras."""
    return any(base.__module__.split(".")[0] in FRAMEWORKS for base in type(value).__mro__)


def _bits(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    array = np.asarray(value)
    return str(array.dtype), array.shape, array.tobytes()


class _Walk:
    """Flattens an object and what it owns to paths; every object is visited once."""

    def __init__(self) -> None:
        self.paths: Paths = {}
        self._seen: set[int] = set()
        self._kept: list[Any] = []

    def visit(self, path: str, value: Any, *, walk: bool = False) -> None:
        """Flatten a value; `walk` goes into an object that is not Keras' too."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, type)):
            self.paths[path] = _nan_safe(value)
        elif isinstance(value, np.ndarray | np.generic):
            self.paths[path] = _bits(value)
        elif _is_variable(value):
            self._variable(path, value)
        elif id(value) in self._seen:
            self.paths[path] = Same(value)
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            self._container(path, value)
        elif walk or (_of_framework(value) and hasattr(value, "__dict__")):
            self._remember(value)
            self.paths[path] = Same(value)
            for name, entry in vars(value).items():
                if name not in BOOKKEEPING:
                    self.visit(f"{path}.{name}", entry)
        else:
            self.paths[path] = Same(value)

    def _container(self, path: str, value: Any) -> None:
        """Compare a container by what is in it: a copy of it is as good."""
        self._remember(value)
        if isinstance(value, Mapping):
            self.paths[path] = f"mapping of {len(value)}"
            entries = [(_key(key), entry) for key, entry in value.items()]
        elif isinstance(value, list | tuple):
            self.paths[path] = f"sequence of {len(value)}"
            entries = [(str(index), entry) for index, entry in enumerate(value)]
        else:
            self.paths[path] = frozenset(Same(entry) if _owns(entry) else entry for entry in value)
            entries = []
        for name, entry in entries:
            self.visit(f"{path}[{name}]", entry)

    def _variable(self, path: str, variable: Any) -> None:
        """A variable must be the same object and hold the same bits, on each replica."""
        self.paths[path] = Same(variable)
        if id(variable) in self._seen:
            return
        self._remember(variable)
        # Keras 3 wraps the variable of TensorFlow, and has none before it is built.
        inner = variable._value if hasattr(variable, "_initializer") else variable
        replicas = getattr(inner, "values", None)
        if isinstance(replicas, tuple):
            for index, replica in enumerate(replicas):
                self.paths[f"{path} replica {index}"] = _bits(replica.numpy())
        elif inner is not None:
            self.paths[f"{path} value"] = _bits(inner.numpy())

    def _remember(self, value: Any) -> None:
        self._seen.add(id(value))
        self._kept.append(value)


def _owns(value: Any) -> bool:
    return not isinstance(value, (bool, int, float, complex, str, bytes, type, tuple, frozenset))


def _key(key: Any) -> str:
    return repr(key) if isinstance(key, (bool, int, float, str, bytes, tuple)) else f"{id(key):#x}"


def _nan_safe(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _bits(value)
    if isinstance(value, list | tuple):
        return tuple(_plain(entry) for entry in value)
    return value


# Around a block ------------------------------------------------------------------------------


@contextlib.contextmanager
def leaves_no_trace(
    model: Any = None, *, callbacks: Iterable[Any] = (), dataset: Any = None
) -> Iterator[None]:
    """Fail when the block changed the model, the callbacks, the input or anything global."""
    callbacks = tuple(callbacks)
    threads = python_threads()

    def everything() -> Paths:
        paths = surroundings() | random_streams()
        if model is not None:
            paths |= state_of(model, callbacks)
        return paths | state_of_input(dataset)

    before = everything()
    try:
        yield
    finally:
        # also when the block raised: pytest shows that error as the context of this one
        left = threads_left(threads)
        lines = difference(before, everything()) + left
        assert not lines, "the block left traces:\n  " + "\n  ".join(lines)

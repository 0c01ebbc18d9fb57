"""Keeps the caller's objects as they are, and puts them back bit for bit.

Two things make up the state of a Keras job: the values of variables, and the attributes of Python objects
(lists of weights, `built`, `train_function`, `stop_training`, counters of callbacks). Values are copied to
host memory, or to a private file where they are large; attributes are kept by reference, the containers
among them with their contents. What a run created is gone afterwards, because nothing refers to it.
"""

from __future__ import annotations

import collections
import functools
import random
import sys
import tempfile
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tfdiag.compat import host, keras, tensorflow
from tfdiag.errors import ModelError, SnapshotError

__all__ = ["Snapshot"]

_SPILL_SHARE = 0.25
"""Values over this share of the free memory go to a file."""
_ARRAY_LIMIT = 64 * 1024 * 1024
"""A numpy array that an object holds is copied up to this size: a dataset shuffles its indices in place."""


class Snapshot:
    """The state of some objects, and of the random generators that a run draws from."""

    def __init__(self, roots: Iterable[Any], folder: Path) -> None:
        self._folder = folder
        self._objects: list[tuple[Any, dict[str, Any]]] = []
        self._containers: list[tuple[Any, Any]] = []
        self._arrays: list[tuple[Any, Any]] = []
        self._variables: dict[int, Any] = {}
        self._values: list[tuple[Any, Any]] = []
        self._seen: dict[int, Any] = {}
        generators = [*keras.seed_generators(), tensorflow.global_random_variable()]
        roots = [root for root in roots if root is not None]
        self._roots = {id(root) for root in roots}
        self._walk([*roots, *(g for g in generators if g is not None)])
        self.bytes = 0
        self._keep_values()
        self._random = (
            random.getstate(),
            np.random.get_state(),  # noqa: NPY002  # the global state is what a job may draw from
            tensorflow.eager_random_state(),
            keras.global_state(),
        )

    def restore(self) -> None:
        """Put everything back; what can't be put back does not keep the rest from it."""
        failures: list[str] = []
        for thing, attributes in self._objects:
            _restore_attributes(thing, attributes)
        for container, contents in self._containers:
            _refill(container, contents)
        for array, kept in self._arrays:
            np.copyto(array, kept)
        for variable, value in self._values:
            try:
                variable.assign(value)
            except (ValueError, TypeError, RuntimeError, tensorflow.op_error()) as error:
                failures.append(f"{getattr(variable, 'name', '?')}: {error}")
        python, numpy_state, eager, keras_state = self._random
        random.setstate(python)
        np.random.set_state(numpy_state)  # noqa: NPY002
        tensorflow.restore_eager_random_state(eager)
        keras.restore_global_state(keras_state)
        if failures:
            raise SnapshotError(
                f"{len(failures)} variables could not be put back: " + "; ".join(failures[:3])
            )

    def _walk(self, roots: list[Any]) -> None:
        waiting: list[Any] = list(roots)
        while waiting:
            thing = waiting.pop()
            if thing is None or isinstance(thing, (str, bytes, int, float, complex, type)):
                continue
            if id(thing) in self._seen:
                continue
            self._seen[id(thing)] = thing  # also keeps it alive, so that ids stay unique
            waiting.extend(self._record(thing))

    def _record(self, thing: Any) -> Iterable[Any]:
        if tensorflow.is_variable(thing):
            for component in tensorflow.components(thing):
                self._variables[id(component)] = component
            return ()
        if isinstance(thing, np.ndarray):
            if thing.flags.writeable and thing.nbytes <= _ARRAY_LIMIT and not thing.dtype.hasobject:
                self._arrays.append((thing, thing.copy()))
            return ()
        inside: list[Any] = []
        wrapped = getattr(thing, "__wrapped__", None)
        if wrapped is not None and isinstance(wrapped, (dict, list, tuple)):
            inside.append(wrapped)
        elif isinstance(thing, (list, set, collections.deque)):
            self._containers.append((thing, list(thing)))
            inside.extend(thing)
        elif isinstance(thing, dict):
            self._containers.append((thing, dict(thing)))
            inside.extend(thing.values())
        elif isinstance(thing, (tuple, frozenset)):
            inside.extend(thing)
        if _owned(thing) or (id(thing) in self._roots and hasattr(thing, "__dict__")):
            attributes = dict(vars(thing))
            self._objects.append((thing, attributes))
            inside.extend(attributes.values())
        return inside

    def _keep_values(self) -> None:
        sizes = []
        for variable in self._variables.values():
            try:
                sizes.append(int(variable.dtype.size) * int(np.prod(variable.shape.as_list())))
            except (ValueError, TypeError, AttributeError) as error:
                name = getattr(variable, "name", repr(variable))
                raise ModelError(
                    f"the variable {name} can't be read ({error}), so it could not be put back; "
                    "nothing was run"
                ) from error
        self.bytes = sum(sizes)
        free = host.free_memory_bytes()
        spill = self.bytes > _SPILL_SHARE * free
        if spill and self.bytes > 0.9 * host.free_disk_bytes(str(self._folder)):
            raise SnapshotError(
                f"the model's state takes {self.bytes / 2**30:.1f} GiB; neither memory "
                f"({free / 2**30:.1f} GiB free) nor the disk of {tempfile.gettempdir()} has room for a copy"
            )
        unreadable = (
            RuntimeError, ValueError, AttributeError, NotImplementedError, tensorflow.op_error(),
        )  # fmt: skip
        for index, variable in enumerate(self._variables.values()):
            try:
                value = variable.numpy()
            except unreadable as error:
                name = getattr(variable, "name", repr(variable))
                raise ModelError(
                    f"the variable {name} can't be read ({error}), so it could not be put back; "
                    "nothing was run"
                ) from error
            self._values.append((variable, self._spilled(index, value) if spill else value))

    def _spilled(self, index: int, value: Any) -> Any:
        if not value.nbytes or value.dtype.hasobject:
            return value  # nothing that could be mapped
        path = self._folder / f"variable-{index}.bin"
        # Bytes, because a file of numpy's own format forgets bfloat16 and its like.
        value.tofile(path)
        return np.memmap(path, dtype=value.dtype, mode="r", shape=value.shape)


def _owned(thing: Any) -> bool:
    """Say whether the attributes of `thing` belong to the job: Keras' objects and the caller's own."""
    if not hasattr(thing, "__dict__") or isinstance(thing, _CODE):
        return False
    if keras.is_keras_object(thing):
        return not keras.is_symbolic(thing)
    root = (type(thing).__module__ or "").split(".")[0]
    if root == "tensorflow":
        # Containers of TensorFlow that hold Keras' variables; a tf.Module is the caller's model.
        return isinstance(thing, (list, dict)) or _is_module(thing)
    return _is_callers(root)


_CODE = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.ModuleType,
    functools.partial,
)


@functools.cache
def _is_callers(root: str) -> bool:
    """Say whether a module is the caller's own code, not an installed library or Python's."""
    if root == "__main__":
        return True
    if root in sys.stdlib_module_names or root == "tfdiag":
        return False
    origin = str(getattr(sys.modules.get(root), "__file__", None) or "")
    return bool(origin) and not {"site-packages", "dist-packages"} & set(Path(origin).parts)


def _is_module(thing: Any) -> bool:
    return any(cls.__name__ in ("Module", "AutoTrackable") for cls in type(thing).__mro__)


def _restore_attributes(thing: Any, attributes: dict[str, Any]) -> None:
    current = vars(thing)
    for name in [name for name in current if name not in attributes]:
        del current[name]
    for name, value in attributes.items():
        if current.get(name, _ABSENT) is not value:
            current[name] = value


_ABSENT = object()


def _refill(container: Any, contents: Any) -> None:
    """Give a container its contents back, past what its class does on change."""
    if isinstance(container, dict):
        # An OrderedDict keeps its order beside the dict.
        kind = collections.OrderedDict if isinstance(container, collections.OrderedDict) else dict
        if kind.__len__(container) == len(contents) and all(
            key is kept and value is contents[kept]
            for (key, value), kept in zip(kind.items(container), contents, strict=True)
        ):
            return
        kind.clear(container)
        kind.update(container, contents)
    elif isinstance(container, list):
        if len(contents) != list.__len__(container) or any(
            a is not b for a, b in zip(list.__iter__(container), contents, strict=False)
        ):
            list.clear(container)
            list.extend(container, contents)
    elif isinstance(container, set):
        if set.__len__(container) != len(contents) or not all(
            set.__contains__(container, item) for item in contents
        ):
            set.clear(container)
            set.update(container, contents)
    else:
        container.clear()
        container.extend(contents)

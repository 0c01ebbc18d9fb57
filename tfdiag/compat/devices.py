"""The door to TensorFlow's devices: what there is, what runs where, and when it is done.

`tf.test.experimental.sync_devices` would be the public way to wait; its op has kernels for CUDA and ROCm
only, and waits for nothing on other accelerators. So a tiny op is put behind the work and its result read.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfdiag.compat.tensorflow import is_module, is_variable, tensorflow, variables_of_function

__all__ = [
    "computing_devices", "devices_of", "fence", "fetch", "is_dense", "on", "quiet_tracing", "resident",
    "rows_of", "sessions_of", "short_name", "size_of", "variable_devices", "with_rows",
]  # fmt: skip


def short_name(name: str) -> str:
    """Give `/GPU:0` for what TensorFlow calls `/job:localhost/replica:0/task:0/device:GPU:0`."""
    text = name.rpartition("device:")[2] if "device:" in name.lower() else name
    kind, _, number = text.lstrip("/").partition(":")
    return f"/{kind.upper()}:{number or '0'}"


def computing_devices() -> list[tuple[str, str]]:
    """List the devices that ops can run on, the CPU first: name and kind."""
    listed = tensorflow().config.list_logical_devices()
    found = [(short_name(str(each.name)), str(each.device_type)) for each in listed]
    return sorted(
        (each for each in found if not each[1].endswith("_SYSTEM")), key=lambda each: each[1] != "CPU"
    )


def on(device: str) -> contextlib.AbstractContextManager[Any]:
    """Run a block's ops on a device."""
    scope: contextlib.AbstractContextManager[Any] = tensorflow().device(device)
    return scope


def fence(device: str) -> Callable[[], None] | None:
    """Give a function that comes back once all that was put on the device is done; None where calls wait."""
    tf = tensorflow()
    if not tf.executing_eagerly():
        return None  # sessions come back with the result
    if device.startswith("/CPU") and tf.config.experimental.get_synchronous_execution():
        return None
    with tf.device(device):
        one = tf.identity(tf.constant(1.0))

    def wait() -> None:
        # A device does what it is given in order, so what comes last is done last: variables included.
        with tf.device(device):
            tf.add(one, one).numpy()

    return wait


def _leaves(value: Any) -> list[Any]:
    try:
        return list(tensorflow().nest.flatten(value, expand_composites=True))
    except (TypeError, ValueError):  # keys that have no order
        return [value]


def devices_of(result: Any) -> tuple[str, ...]:
    """Name the devices that the tensors of a result are on, or the variables of what it is made of."""
    found: dict[str, None] = {}
    for leaf in _leaves(result):
        if isinstance(leaf, np.ndarray):
            continue  # the function has fetched it: from where does not show
        parts = [leaf] if hasattr(leaf, "device") else list(getattr(leaf, "variables", None) or ())
        for part in parts:
            name = getattr(getattr(part, "value", part), "device", None) or getattr(part, "device", None)
            if isinstance(name, str) and name:
                found[short_name(name)] = None
    return tuple(sorted(found))


def fetch(result: Any) -> None:
    """Copy the tensors of a result to the host."""
    for leaf in _leaves(result):
        if _is_tensor(leaf):
            leaf.numpy()


def size_of(value: Any) -> int:
    """Count the bytes of the dense tensors and arrays in a structure."""
    total = 0
    for leaf in _leaves(value):
        if is_dense(leaf):
            width: Any = getattr(leaf.dtype, "size", None) or getattr(leaf.dtype, "itemsize", 0)
            shape: list[Any] = list(leaf.shape)
            total += int(width) * math.prod(int(length) for length in shape)
    return total


def _is_tensor(value: Any) -> bool:
    tf = tensorflow()
    return isinstance(value, tf.Tensor) and hasattr(value, "numpy")


def is_dense(value: Any) -> bool:
    """Say whether `value` is an array of numpy's or a tensor that is there."""
    return isinstance(value, np.ndarray) or _is_tensor(value)


def rows_of(value: Any) -> int | None:
    """Give the first dimension of a dense array or tensor."""
    if not is_dense(value) or not len(value.shape):
        return None
    return int(value.shape[0]) or None


def with_rows(value: Any, rows: int) -> Any:
    """Tile or cut an array or a tensor to so many rows, in the host's memory."""
    now = rows_of(value)
    assert now is not None
    if rows == now:
        return value
    times = -(-rows // now)
    if isinstance(value, np.ndarray):
        return np.concatenate([value] * times)[:rows] if times > 1 else value[:rows].copy()
    tf = tensorflow()
    with tf.device("/CPU:0"):
        return (tf.concat([value] * times, axis=0) if times > 1 else tf.identity(value))[:rows]


def resident(value: Any, device: str) -> Any:
    """Copy a tensor to a device; a tensor remembers its copies, so a new one is made each time."""
    tf = tensorflow()
    source = value
    if _is_tensor(value):
        with tf.device(value.device):
            source = tf.identity(value)
    with tf.device(device):
        return tf.identity(source)


def sessions_of(function: Any) -> list[Any]:
    """Give the sessions of TensorFlow 1 that a function reaches for; the default one, where it names none."""
    v1 = tensorflow().compat.v1
    kinds = (v1.Session, v1.InteractiveSession)
    own = getattr(getattr(function, "__self__", None), "__dict__", {})
    within = [*_within_reach(function), *own.values()]
    reached = {id(thing): thing for thing in within if isinstance(thing, kinds)}
    default = v1.get_default_session()
    return list(reached.values()) or ([default] if isinstance(default, kinds) else [])


def variable_devices(function: Any, args: tuple[Any, ...]) -> tuple[str, ...]:
    """Name the devices of the variables that a function uses, as far as they can be seen."""
    inner = getattr(function, "python_function", function)
    found: dict[str, None] = {}
    for thing in (function, *_within_reach(function), *_within_reach(inner), *args):
        variables = [thing] if is_variable(thing) else variables_of_function(thing)
        if is_module(thing) or hasattr(thing, "trainable_variables"):
            variables = list(getattr(thing, "variables", ()))
        for variable in variables:
            place: Any = variable if is_variable(variable) else getattr(variable, "value", None)
            name = getattr(place, "device", None)
            if isinstance(name, str) and name:
                found[short_name(name)] = None
    return tuple(sorted(found))


def _within_reach(function: Any) -> Iterator[Any]:
    """Give what a function was made with: bound object, partial arguments, closure, globals that it names."""
    if isinstance(function, functools.partial):
        yield from function.args
        yield from function.keywords.values()
        yield from _within_reach(function.func)
        return
    yield getattr(function, "__self__", None)
    yield from getattr(function, "__defaults__", None) or ()
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell.cell_contents
    code = getattr(function, "__code__", None)
    names = getattr(code, "co_names", ())
    known = getattr(function, "__globals__", {})
    yield from (known[name] for name in names if name in known)


@contextlib.contextmanager
def quiet_tracing() -> Iterator[None]:
    """Silence TensorFlow's warnings about functions that are traced again: sizes are changed on purpose."""
    logger = tensorflow().get_logger()
    before = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(before)

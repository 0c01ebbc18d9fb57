"""`tfdiag.compare_devices`: is this faster on the CPU? Asked of a small function, answered by measurement."""

from __future__ import annotations

import contextlib
import functools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfdiag.analyse.comparison import crossings_of, device_cost, limit_of, transfer_of
from tfdiag.collect.sizes import Sizes, Work
from tfdiag.compat import devices as door
from tfdiag.compat import host, keras, tensorflow
from tfdiag.compat.sessions import CannotMove, MovedSession
from tfdiag.errors import JobError, UsageError
from tfdiag.model.comparison import ComparisonData
from tfdiag.model.devices import DeviceRun
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.devices import DeviceComparison

__all__ = ["compare_devices"]

_MOST_BYTES = 256 * 2**20
"""Arguments are tiled up to this size, and to no more than a part of the memory that is free."""
_MEMORY_PART = 1 / 16
_SESSION = (
    "the function runs a session of TensorFlow 1, whose graph says where its ops run: a copy of it ran on "
    "{devices}, with the same values, and each call brings its arguments there and its results back"
)


def compare_devices(
    fn: Callable[..., Any], *args: Any, devices: Sequence[str] | None = None, budget: float = 20.0
) -> DeviceComparison:
    """Say on which device a call of `fn(*args)` is faster, and from which size on.

    The function is called under `tf.device` of each of the `devices` by turns (all that TensorFlow sees,
    unless they are named), and each call is waited for until its result, and what it assigned, really is
    there. A session of TensorFlow 1 that it runs is copied to each device, and the copies run. Arrays and
    tensors among the arguments are tiled and cut, where the function accepts that: what then does not change
    is the fixed cost of a call. First calls, which trace and compile, stand apart. Variables that the
    function assigns stay as it leaves them: the result says how many calls were made. It takes `budget`
    seconds at most, but a call that has begun is waited for.

    >>> import tensorflow as tf
    >>> x = tf.ones((2, 2))
    >>> found = compare_devices(tf.matmul, x, x, devices=["CPU"], budget=1)
    >>> found.devices[0].device
    '/CPU:0'
    >>> found.devices[0].call.value < 0.01  # seconds
    True
    >>> "calls made" in str(found)
    True
    """
    chosen = _checked(fn, devices, budget)
    clock = time.perf_counter
    begin = clock()
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        for context in (keras.quiet(), door.quiet_tracing(), _random_kept()):
            stack.enter_context(context)
        calls = _Calls(fn, args, _moved(fn, chosen, stack))
        sizes = Sizes(chosen, until=begin + budget, clock=clock, fenced=not calls.sessions)
        own = calls.rows or 1
        sizes.begin(calls.prepare, own)
        missing = _scale(calls, sizes, own)
        sizes.measure()
    runs = sizes.runs()
    if not any(run.sizes for run in runs):
        reasons = "; ".join(f"{run.device}: {run.failed}" for run in runs)
        raise JobError(f"the function failed on every device: {reasons}") from sizes.error
    if sizes.stopped and len(sizes.sizes) > 1:
        notes.append(f"sizes end at {sizes.sizes[-1]:,} rows: {sizes.stopped}")
    if calls.sessions:
        notes += _session_notes(calls)
    else:
        notes += _notes(runs, calls, door.variable_devices(fn, args))
    return DeviceComparison.from_data(
        ComparisonData(
            function=_name(fn),
            rows=Quantity(float(own), "rows", origin="given")
            if calls.rows
            else Missing("no argument is an array with rows"),
            devices=tuple(device_cost(run, own, copies_inside=calls.copies_inside) for run in runs),
            crossings=crossings_of(runs, own, copies_inside=calls.copies_inside),
            scaled=calls.scaled_names if not missing else "",
            sizes_missing=missing,
            **_on_one_device(runs, own, calls),
            notes=tuple(notes),
            budget_s=float(budget),
            total_s=clock() - begin,
            runs=runs,
        )
    )


def _checked(fn: Any, devices: Any, budget: Any) -> list[tuple[str, str]]:
    """Refuse what can't be compared, before anything is called."""
    tensorflow.tensorflow()
    if not callable(fn):
        raise UsageError(
            f"fn is a function that is called with the other arguments, got {type(fn).__name__}: pass "
            "compare_devices(fn, x), not compare_devices(fn(x))"
        )
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 < budget < math.inf:
        raise UsageError(f"budget is a finite number of seconds above 0, got {budget!r}")
    if not door.sessions_of(fn) and tensorflow.in_function():
        raise UsageError("compare_devices was called inside a tf.function; call it from Python")
    there = door.computing_devices()
    if devices is None:
        chosen = there
    else:
        if isinstance(devices, str):
            raise UsageError(f"devices: pass several names, not one string: devices=[{devices!r}]")
        known = dict(there)
        names = list(dict.fromkeys(door.short_name(str(name)) for name in devices))
        absent = [name for name in names if name not in known]
        if absent or not names:
            what = f"there is no {absent[0]}" if absent else "no device is named"
            raise UsageError(f"devices: {what}; TensorFlow sees {', '.join(known)}")
        chosen = sorted(((name, known[name]) for name in names), key=lambda each: each[1] != "CPU")
    return chosen


Moved = Mapping[str, Sequence[MovedSession]]
"""Copies of the caller's sessions, by device."""


def _moved(fn: Any, devices: Sequence[tuple[str, str]], stack: contextlib.ExitStack) -> Moved:
    """Copy the sessions that the function runs to each device, until the stack is left."""
    moved: dict[str, list[MovedSession]] = {}
    for session in door.sessions_of(fn):
        for device, _ in devices:
            try:
                made = MovedSession(session, device)
            except CannotMove as error:
                raise UsageError(
                    f"the function runs a session of TensorFlow 1, which can't be copied to {device}: "
                    f"{error}. Pass a function that makes its graph and its session itself, or eager code"
                ) from error
            stack.callback(made.close)
            moved.setdefault(device, []).append(made)
    return moved


class _Calls:
    """The caller's function and arguments, at any size and on any device."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], sessions: Moved) -> None:
        self._fn, self._args = fn, args
        self.sessions = sessions
        self._leaves = [leaf for arg in args for leaf in _dense(arg)]
        with_rows = [index for index, leaf in enumerate(self._leaves) if door.rows_of(leaf)]
        self.rows = door.rows_of(self._leaves[with_rows[0]]) if with_rows else None
        alike = [index for index in with_rows if door.rows_of(self._leaves[index]) == self.rows]
        # Whatever has as many rows is a part of the same batch; where that fails, the first alone.
        self.groups = [alike, alike[:1]] if len(alike) > 1 else [alike]
        self._scaled: list[int] = []
        self.numpys = bool(self._leaves) and all(isinstance(leaf, np.ndarray) for leaf in self._leaves)
        self.copies_inside = self.numpys or bool(sessions)
        self.bytes = door.size_of(list(self._leaves))

    def scale(self, group: list[int]) -> None:
        """Choose which arrays are tiled and cut."""
        self._scaled = group

    @property
    def scaled_names(self) -> str:
        """Say which arrays are tiled and cut."""
        if len(self._scaled) == len(self._leaves):
            return "all arrays" if len(self._scaled) > 1 else "the array"
        return "array " + ", ".join(str(index + 1) for index in self._scaled)

    @property
    def row_bytes(self) -> float:
        """Give the bytes that a row adds."""
        return door.size_of([self._leaves[index] for index in self._scaled]) / (self.rows or 1)

    def prepare(self, device: str, rows: int) -> Work:
        """Make a call ready: its arguments of this size, on this device."""
        leaves = [
            door.with_rows(leaf, rows) if index in self._scaled and rows != self.rows else leaf
            for index, leaf in enumerate(self._leaves)
        ]
        there = [
            leaf if self.sessions or isinstance(leaf, np.ndarray) else door.resident(leaf, device)
            for leaf in leaves
        ]
        handed = iter(there)
        args = [_with(arg, handed) for arg in self._args]

        def copy() -> list[Any]:
            return [door.resident(leaf, device) for leaf in leaves]

        call = functools.partial(self._fn, *args)
        if not self.sessions:
            return Work(call, copy if leaves else None)
        moved = self.sessions[device]

        def with_copies() -> Any:
            with contextlib.ExitStack() as stack:
                for each in moved:
                    stack.enter_context(each.standing_in())
                return call()

        return Work(with_copies)


def _dense(value: Any) -> Iterator[Any]:
    """Give the arrays and tensors in an argument: in lists, tuples and dicts of Python's, nowhere else."""
    if door.is_dense(value):
        yield value
    elif type(value) in (list, tuple):
        for each in value:
            yield from _dense(each)
    elif type(value) is dict:
        for each in value.values():
            yield from _dense(each)


def _with(value: Any, leaves: Iterator[Any]) -> Any:
    """Give an argument with other arrays in the places of its own."""
    if door.is_dense(value):
        return next(leaves)
    if type(value) in (list, tuple):
        return type(value)(_with(each, leaves) for each in value)
    if type(value) is dict:
        return {key: _with(each, leaves) for key, each in value.items()}
    return value


def _scale(calls: _Calls, sizes: Sizes, own: int) -> str:
    """Call with other sizes where that can be; or say why it can't."""
    if not calls.rows:
        return "no argument is an array or a tensor with rows that could be more or fewer"
    if not sizes.sizes:
        return "no device ran it"
    reason = ""
    for group in calls.groups:
        calls.scale(group)
        reason = sizes.fits(calls.prepare, 2 * own)
        if not reason:
            room = min(_MOST_BYTES, _MEMORY_PART * host.free_memory_bytes())
            most = max(own, int(room / max(1.0, calls.row_bytes)))
            sizes.explore(calls.prepare, least=1, most=most)
            if len(sizes.sizes) == 1:
                return sizes.stopped or "no other size was found"
            return ""
    return f"with twice as many rows: {reason}"


def _notes(runs: tuple[DeviceRun, ...], calls: _Calls, variables: tuple[str, ...]) -> list[str]:
    notes = []
    for run in runs:
        away = [name for name in variables if name != run.device]
        if run.sizes and away:
            notes.append(
                f"the function uses variables on {', '.join(away)}: on {run.device} each call copies them. "
                f"To see what it takes with variables of its own, make them inside "
                f"`with tf.device({run.device!r})` and compare on that device alone"
            )
        elsewhere = [name for name in run.ran_on if name != run.device]
        if run.sizes and elsewhere and run.device not in run.ran_on:
            notes.append(
                f"under tf.device({run.device!r}) the results are on {', '.join(elsewhere)}: the function "
                "chooses its device itself, has no kernel for this one, or reads the result"
            )
    if len(runs) > 1 and calls.copies_inside:
        notes.append("the arguments are numpy's: each call copies them to its device, as the function does")
    return notes


def _session_notes(calls: _Calls) -> list[str]:
    notes = [_SESSION.format(devices=" and ".join(calls.sessions))]
    for device, moved in calls.sessions.items():
        places = [place for each in moved for place in each.places]
        if places and device not in places:
            notes.append(f"none of its ops has a kernel for {device}: they ran on {', '.join(places)}")
        elif places and places[0] != device:
            notes.append(f"most of its ops have no kernel for {device}: they ran on {places[0]}")
    return notes


def _on_one_device(runs: tuple[DeviceRun, ...], own: int, calls: _Calls) -> dict[str, Any]:
    if len(runs) > 1 or runs[0].kind != "CPU":
        return {}
    cost = device_cost(runs[0], own, copies_inside=calls.copies_inside)
    return {"limit": limit_of(cost), "transfer": transfer_of(calls.bytes)}


def _name(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    inner = getattr(fn, "python_function", fn)
    return str(getattr(inner, "__name__", type(fn).__name__))


@contextlib.contextmanager
def _random_kept() -> Iterator[None]:
    """Put back what the calls drew from the random generators, and the names that Keras gave."""
    python, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002  # the caller may draw from it
    eager, names = tensorflow.eager_random_state(), keras.global_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)  # noqa: NPY002
        tensorflow.restore_eager_random_state(eager)
        if names:  # before its import Keras has none
            keras.restore_global_state(names)

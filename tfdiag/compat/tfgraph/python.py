"""What Python still knows of a dataset: the callables behind the functions in its graph."""

from __future__ import annotations

import functools
import inspect
import os
import re
from typing import Any

__all__ = ["callables", "generator_is_one_shot", "name_of", "parts", "where_is"]

_THEIRS = os.path.join("tensorflow", "python", "data")
"""Where functions are that nobody but TensorFlow wrote."""
_DEPTH = 4
"""How many functions within functions are looked through for the caller's generator."""


def parts(dataset: Any) -> list[Any] | None:
    """List a dataset and all datasets that it is made of; None when Python does not know."""
    found: list[Any] = []
    waiting = [dataset]
    while waiting:
        part = waiting.pop()
        found.append(part)
        inputs = getattr(part, "_inputs", None)
        if inputs is None:
            return None
        waiting.extend(inputs())
    return found


def callables(dataset: Any) -> dict[str, Any]:
    """Say which callable of the caller's each function of the graph was made of.

    The function that makes a from_generator stands for the caller's generator.
    """
    found: dict[str, Any] = {}
    for part in parts(dataset) or []:
        for wrapper in list(getattr(part, "__dict__", {}).values()):
            traced, written = getattr(wrapper, "_function", None), getattr(wrapper, "_func", None)
            name = getattr(traced, "name", None)
            if written is None or name is None:
                continue
            generator = _generator(written)
            name = name.decode() if isinstance(name, bytes) else str(name)
            found[name] = written if generator is None else generator
    return found


def _generator(function: Any, depth: int = _DEPTH) -> Any:
    """Find the caller's generator in the functions that `from_generator` makes."""
    if not str(getattr(function, "__module__", "")).endswith("from_generator_op"):
        return None
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        found = getattr(value, "_generator", None)
        if found is None and depth and inspect.isfunction(value):
            found = _generator(value, depth - 1)
        if found is not None:
            return found
    return None


def generator_is_one_shot(dataset: Any) -> bool:
    """Say whether a from_generator gets the same iterator each time, which is empty after one pass.

    False where that can't be known.
    """
    for part in parts(dataset) or []:
        function = getattr(getattr(part, "_map_func", None), "_func", None)
        generator = _generator(function)
        if generator is None or inspect.isgeneratorfunction(plain_callable(generator)):
            continue
        try:
            first, second = generator(), generator()
            if first is second and iter(first) is first:
                return True
        except Exception:  # noqa: BLE001, S112  # the caller's code: whatever it raises, nothing is known
            continue
    return False


def plain_callable(function: Any) -> Any:
    """Find what the caller wrote within decorators, partials, methods and tf.functions."""
    for _ in range(20):
        inner = None
        if isinstance(function, functools.partial):
            inner = function.func
        elif inspect.ismethod(function):
            inner = function.__func__
        else:
            for attribute in ("__wrapped__", "python_function", "_python_function", "ag_original"):
                inner = inner or getattr(function, attribute, None)
        if inner is None or inner is function or not callable(inner):
            break
        function = inner
    return function


def name_of(function: Any) -> str:
    """Name a callable as its author did."""
    found = plain_callable(function)
    name = getattr(found, "__name__", None) or type(found).__name__
    name = str(name).rsplit(".", maxsplit=1)[-1]
    # TensorFlow's own classes have versions that nobody writes.
    return re.sub(r"DatasetV\d$", "Dataset", name)


def where_is(function: Any) -> str:
    """Give file and line of a callable, empty where it has none; relative to the working directory."""
    found = plain_callable(function)
    # An object that can be called is where its class says how.
    code = getattr(found, "__code__", None) or getattr(vars(type(found)).get("__call__"), "__code__", None)
    if code is None:
        return ""
    path = str(code.co_filename)
    if path.startswith("<") or _THEIRS in path:
        return ""
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # no working directory, or another drive
        relative = path
    return f"{path if relative.startswith('..') else relative}:{code.co_firstlineno}"

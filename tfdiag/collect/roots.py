"""The caller's objects that a run may change: what the snapshot begins from."""

from __future__ import annotations

import contextlib
from typing import Any

from tfdiag.collect.session import Request
from tfdiag.compat import keras, tensorflow

__all__ = ["roots_of"]


def roots_of(request: Request) -> list[Any]:
    """List models, callbacks, PyDatasets, and what a step of the caller's own refers to."""
    roots = [request.model, *request.callbacks]
    x = request.source.data.get("x")
    if keras.is_py_dataset(x):
        roots.append(x)
    validation = request.fit_kwargs.get("validation_data")
    if keras.is_py_dataset(validation):
        roots.append(validation)
    if request.train_step is not None:
        roots.extend(_reachable(request.train_step))
    return roots


def _reachable(step: Any) -> list[Any]:
    """List what a caller's step function refers to: models, optimizers, metrics, variables."""
    found: list[Any] = [*tensorflow.variables_of_function(step)]
    function = getattr(step, "python_function", step)
    function = getattr(function, "__wrapped__", function)
    owner = getattr(function, "__self__", None)
    if owner is not None:
        found.append(owner)
    function = getattr(function, "__func__", function)
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            found.append(cell.cell_contents)
    code = getattr(function, "__code__", None)
    module = getattr(function, "__globals__", {})
    found.extend(module.get(name) for name in getattr(code, "co_names", ()))
    result: list[Any] = []
    for value in found:
        if value is not step and hasattr(value, "python_function"):
            result.extend(_reachable(value))
    return result + [
        value
        for value in found
        if keras.is_keras_object(value)
        or tensorflow.is_variable(value)
        or isinstance(value, (list, dict, tuple))
        or tensorflow.is_module(value)
    ]

"""Copies of compiled Keras models, made on a device of our choice."""

from __future__ import annotations

import importlib
from typing import Any

from tfdiag.compat.keras import flavour, keras
from tfdiag.errors import ModelError

__all__ = ["clone", "own_objects"]


def clone(model: Any, *, jit_compile: bool | None = None) -> Any:
    """Make a compiled copy of a model, with its weights, on the current device; or raise with the reason.

    `jit_compile` replaces the caller's own choice.
    """
    root: Any = importlib.import_module("tf_keras") if flavour(model) == "tf_keras" else keras()
    if not getattr(model, "built", False):
        raise ModelError("the model is not built, so it has no weights to copy")
    config = dict(model.get_compile_config() or {})
    if not config:
        raise ModelError("the model does not tell how it was compiled")
    if jit_compile is not None:
        config["jit_compile"] = jit_compile
    with root.utils.custom_object_scope(own_objects(model)):
        copy = root.models.clone_model(model)
        if type(copy) is not type(model):
            raise ModelError(f"Keras copies a {type(model).__name__} as a {type(copy).__name__}")
        copy.compile_from_config(config)
    if not getattr(copy, "compiled", True):
        raise ModelError(f"{type(model).__name__}.compile is of its own, and can't be repeated")
    copy.set_weights(model.get_weights())
    return copy


def own_objects(model: Any) -> dict[str, Any]:
    """Name the caller's own classes and functions, which Keras can't find by itself."""
    found: dict[str, Any] = {type(model).__name__: type(model)}
    layers = getattr(model, "_flatten_layers", None)
    for layer in layers() if layers is not None else model.layers:
        found[type(layer).__name__] = type(layer)
    for thing in _flat([getattr(model, "loss", None), getattr(model, "optimizer", None)]):
        named = thing if isinstance(thing, type) or hasattr(thing, "__code__") else type(thing)
        if getattr(named, "__name__", ""):
            found[named.__name__] = named
    return {
        name: thing
        for name, thing in found.items()
        if getattr(thing, "__module__", "").split(".")[0] not in ("keras", "tf_keras", "builtins")
    }


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [each for part in value.values() for each in _flat(part)]
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in _flat(part)]
    return [] if value is None or isinstance(value, str) else [value]

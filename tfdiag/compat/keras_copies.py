"""The door to changed copies of Keras jobs: settings that are taken back, clones, inputs without an end.

Private names and where they were seen, with what happens when they are gone:

- `model._compile_metrics` with `_user_metrics` and `_user_weighted_metrics` (Keras 3.3 to 3.15): a step
  without a metric is not tried.
- `model._steps_per_execution` (tf_keras 2.16 to 2.21): the setting has no effect, and the trial shows none.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tfdiag.compat.clones import own_objects
from tfdiag.compat.keras import epoch_length, flavour, keras
from tfdiag.compat.tensorflow import tensorflow

__all__ = [
    "asking", "clone", "put_settings", "steps_per_execution_setting", "weight_bytes",
    "without_metrics_setting",
]  # fmt: skip


def asking(dataset: Any, *, endless: bool) -> Any:
    """Give a PyDataset with the batches and workers of another one; None for tf_keras.

    It is asked for nothing but batches: what the caller's does at the ends of epochs may change it.
    """
    base: Any = getattr(keras().utils, "PyDataset", None)
    if base is None or not isinstance(dataset, base):
        return None

    class Asking(base):  # type: ignore[misc,valid-type,unused-ignore]  # Keras is untyped
        @property
        def num_batches(self) -> int | None:
            return None if endless else length

        def __getitem__(self, index: int) -> Any:
            return dataset[index % length if length else index]

    length = epoch_length({"x": dataset})
    return Asking(
        workers=dataset.workers,
        use_multiprocessing=dataset.use_multiprocessing,
        max_queue_size=dataset.max_queue_size,
    )


def put_settings(model: Any, settings: Mapping[str, Any]) -> None:
    """Set attributes of a model; those that start with an underscore without Keras tracking them."""
    for name, value in settings.items():
        if name.startswith("_"):
            vars(model)[name] = value
        else:
            setattr(model, name, value)


def steps_per_execution_setting(model: Any, steps: int) -> dict[str, Any]:
    """Give the attribute that says how many steps a call makes, with this value."""
    if flavour(model) == "tf_keras":
        return {"_steps_per_execution": tensorflow().Variable(steps, dtype="int64")}
    return {"steps_per_execution": steps}


def without_metrics_setting(model: Any, targets: Collection[str]) -> dict[str, Any] | str:
    """Give the attribute that holds the compiled metrics, without some of them, or why it can't be made.

    An empty name stands for all of them.
    """
    compiled = vars(model).get("_compile_metrics")
    if compiled is None:
        return "this Keras does not tell how it keeps its metrics"
    if "" in targets:
        return {"_compile_metrics": None}
    outputs = len(getattr(model, "outputs", None) or ())
    dropped: list[str] = []
    try:
        parts = [
            _less(getattr(compiled, name, None), targets, dropped, by_output=outputs > 1)
            for name in ("_user_metrics", "_user_weighted_metrics")
        ]
    except Exception as error:  # noqa: BLE001  # metrics are the caller's own classes
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return f"a metric that stays can't be made anew: {first}"
    if set(dropped) != set(targets):
        return f"there is no metric {min(set(targets) - set(dropped))} among those of compile"
    if parts == [None, None]:
        return {"_compile_metrics": None}
    made = type(compiled)(*parts, output_names=getattr(compiled, "output_names", None))
    return {"_compile_metrics": made}


def _less(part: Any, targets: Collection[str], dropped: list[str], *, by_output: bool) -> Any:
    """Give fresh metrics in the same order and nesting, without some; None where nothing is left.

    `by_output`: a list has a place for each output, so that what is dropped leaves its place empty.
    """
    if isinstance(part, Mapping):
        less = {name: _less(each, targets, dropped, by_output=False) for name, each in part.items()}
        return {name: each for name, each in less.items() if each is not None} or None
    if isinstance(part, (list, tuple)):
        row = [_less(each, targets, dropped, by_output=False) for each in part]
        if not by_output:
            row = [each for each in row if each is not None]
        return row if any(each is not None for each in row) else None
    if part is None:
        return None
    name = _metric_name(part)
    if name in targets:
        dropped.append(name)
        return None
    return type(part).from_config(part.get_config()) if hasattr(part, "get_config") else part


def _metric_name(metric: Any) -> str:
    return metric if isinstance(metric, str) else str(getattr(metric, "name", None) or metric.__name__)


def weight_bytes(model: Any) -> int:
    """Give the bytes of a model's weights."""
    return sum(int(np.prod(weight.shape)) * 4 for weight in model.weights)


def clone(model: Any, *, policy: str, optimizer: str) -> Any:
    """Give a clone with the same weights, compiled the same way but for these, or why there is none."""
    module = importlib.import_module(flavour(model) or "keras")

    def again(layer: Any) -> Any:
        if policy and getattr(layer, "layers", None):  # a model in the model, whose layers have theirs
            return module.models.clone_model(layer, clone_function=again)
        config = layer.get_config()
        if policy and "dtype" in config:
            config["dtype"] = policy
        return type(layer).from_config(config)

    try:
        with module.utils.custom_object_scope(own_objects(model)):
            made = module.models.clone_model(model, clone_function=again)
            if type(made) is not type(model):
                return f"Keras copies a {type(model).__name__} as a {type(made).__name__}"
            config = model.get_compile_config()
            if optimizer:
                rate = float(np.asarray(model.optimizer.learning_rate))
                found = module.optimizers.get({"class_name": optimizer, "config": {"learning_rate": rate}})
                config = {**config, "optimizer": module.optimizers.serialize(found)}
            made.compile_from_config(config)
        if not getattr(made, "compiled", True):
            return f"{type(model).__name__}.compile is of its own, and can't be repeated"
        made.set_weights(model.get_weights())
    except Exception as error:  # noqa: BLE001  # layers and losses are the caller's own classes
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return f"the model can't be cloned: {first}"
    return made

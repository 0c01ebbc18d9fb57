"""The door to changed copies of Keras jobs: settings that are taken back, clones, inputs without an end.

Private names and where they were seen, with what happens when they are gone:

- `model._compile_metrics` with `_user_metrics` and `_user_weighted_metrics` (Keras 3.3 to 3.15): a step
  without a metric is not tried.
- `model._steps_per_execution` (tf_keras 2.16 to 2.21): the setting has no effect, and the trial shows none.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfdiag.compat.keras import epoch_length, flavour, keras
from tfdiag.compat.tensorflow import tensorflow

__all__ = [
    "clone", "endless", "put_settings", "steps_per_execution_setting", "weight_bytes",
    "without_metrics_setting",
]  # fmt: skip


def endless(dataset: Any) -> Any:
    """Give a PyDataset with the batches and workers of another one, again and again; None for tf_keras."""
    base: Any = getattr(keras().utils, "PyDataset", None)
    if base is None or not isinstance(dataset, base):
        return None

    class Endless(base):  # type: ignore[misc,valid-type,unused-ignore]  # Keras is untyped
        num_batches = None

        def __getitem__(self, index: int) -> Any:
            return dataset[index % length if length else index]

    length = epoch_length({"x": dataset})
    return Endless(
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


def without_metrics_setting(model: Any, target: str) -> dict[str, Any] | None:
    """Give the attribute that holds the compiled metrics, without one of them or (empty) without any."""
    compiled = vars(model).get("_compile_metrics")
    if compiled is None:
        return None
    if not target:
        return {"_compile_metrics": None}
    kept = [getattr(compiled, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    if not all(part is None or isinstance(part, (list, tuple)) for part in kept):
        return None
    less = [[m for m in part or () if _metric_name(m) != target] for part in kept]
    if sum(map(len, less)) == sum(len(part or ()) for part in kept):
        return None
    again = [[_fresh_metric(metric) for metric in part] or None for part in less]
    if again == [None, None]:
        return {"_compile_metrics": None}
    made = type(compiled)(*again, output_names=getattr(compiled, "output_names", None))
    return {"_compile_metrics": made}


def _metric_name(metric: Any) -> str:
    return metric if isinstance(metric, str) else str(getattr(metric, "name", None) or metric.__name__)


def _fresh_metric(metric: Any) -> Any:
    return type(metric).from_config(metric.get_config()) if hasattr(metric, "get_config") else metric


def weight_bytes(model: Any) -> int:
    """Give the bytes of a model's weights."""
    return sum(int(np.prod(weight.shape)) * 4 for weight in model.weights)


def clone(model: Any, *, policy: str, optimizer: str) -> Any:
    """Give a clone with the same weights, compiled the same way but for these, or why there is none."""
    module = importlib.import_module(flavour(model) or "keras")

    def again(layer: Any) -> Any:
        config = layer.get_config()
        if policy and "dtype" in config:
            config["dtype"] = policy
        return type(layer).from_config(config)

    try:
        made = module.models.clone_model(model, clone_function=again)
        config = model.get_compile_config()
        if optimizer:
            rate = float(np.asarray(model.optimizer.learning_rate))
            found = module.optimizers.get({"class_name": optimizer, "config": {"learning_rate": rate}})
            config = {**config, "optimizer": module.optimizers.serialize(found)}
        made.compile_from_config(config)
        made.set_weights(model.get_weights())
    except (ValueError, TypeError, NotImplementedError, AttributeError, KeyError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return f"the model can't be cloned: {first}"
    return made

"""Changes of a job beside its input, made where they can be taken back: in settings, or in a clone.

What the train function is made from is read while it is traced, in a lane's first turn. So a setting stands
in the caller's model while it is the lane's turn, and is taken out with it; what can't be taken back (a
policy, an optimizer) is done to a clone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfdiag.compat import host, keras_copies, tensorflow, tfdata
from tfdiag.model.changes import Change
from tfdiag.trials.lane import Arm, CannotTry

__all__ = ["changed_arm"]

_COPIES = 4
"""Of the weights, in a clone that trains: values, gradients, and two slots of the optimizer."""
_MEMORY_SHARE = 0.25


def changed_arm(arm: Arm, changes: Sequence[Change], device: str) -> Arm:
    """Give the job with these changes; edits of its input were made before."""
    metrics = [change.target for change in changes if change.kind == "without_metrics"]
    if metrics:
        arm.settings |= _without_metrics(arm.model, metrics)
    for change in changes:
        match change.kind:
            case "steps_per_execution":
                arm.settings |= keras_copies.steps_per_execution_setting(arm.model, int(change.value or 1))
                arm.steps_per_call = int(change.value or 1)
            case "run_eagerly":
                if tensorflow.functions_run_eagerly():
                    raise CannotTry("tf.config.run_functions_eagerly(True) is a setting of the whole process")
                arm.settings["run_eagerly"] = bool(change.value)
            case "jit_compile":
                arm.settings["jit_compile"] = bool(change.value)
            case "copy_ahead":
                if not device or not tfdata.is_dataset(arm.data["x"]):
                    raise CannotTry("only a tf.data.Dataset can be copied ahead, and to an accelerator")
                arm.data["x"] = tfdata.copied_ahead(arm.data["x"], device)
            case "policy" | "optimizer":
                arm.model = _clone(arm.model, change)
            case "batch_size" | "without_callback" | "without_metrics":
                pass  # the one changes the input, no copy has callbacks, and metrics are dropped above
    return arm


def _without_metrics(model: Any, names: Sequence[str]) -> dict[str, Any]:
    settings = keras_copies.without_metrics_setting(model, names)
    if isinstance(settings, str):
        raise CannotTry(settings)
    return settings


def _clone(model: Any, change: Change) -> Any:
    need = _COPIES * keras_copies.weight_bytes(model)
    if need > _MEMORY_SHARE * host.free_memory_bytes():
        raise CannotTry(f"a clone of the model would take about {need / 2**20:,.0f} MiB while it trains")
    made = keras_copies.clone(
        model,
        policy=str(change.value) if change.kind == "policy" else "",
        optimizer=str(change.value) if change.kind == "optimizer" else "",
    )
    if isinstance(made, str):
        raise CannotTry(made)
    return made

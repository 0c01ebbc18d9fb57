"""The door to TensorFlow: everything that tfdiag takes from it passes here, and nothing at import time.

Private names and where they were seen, with what happens when they are gone:

- `context()._rng`, `context()._internal_operation_seed` (2.16 to 2.21): op seeds drawn during a
  diagnosis move the sequence on.
- `context().device_name` (2.13 to 2.21): a `tf.device` around a diagnosis is not followed.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
from collections.abc import Callable
from typing import Any

from tfdiag.errors import TensorFlowMissingError

__all__ = [
    "current_device",
    "device_list",
    "eager_random_state",
    "end_of_data",
    "global_random_variable",
    "in_function",
    "op_error",
    "restore_eager_random_state",
    "tensorflow",
    "tracing_count",
    "variables_of_function",
    "version",
]

_INSTALL = (
    "tfdiag measures TensorFlow jobs, and TensorFlow can't be imported here ({reason}). "
    'Install one build of it, for instance: pip install "tfdiag[tensorflow]", "tfdiag[cpu]" or '
    '"tfdiag[and-cuda]".'
)


@functools.lru_cache(maxsize=1)
def tensorflow() -> Any:
    """Import TensorFlow, or say in one sentence what to install."""
    try:
        module = importlib.import_module("tensorflow")
    except ImportError as error:
        raise TensorFlowMissingError(_INSTALL.format(reason=error)) from error
    if not hasattr(module, "function"):
        raise TensorFlowMissingError(
            _INSTALL.format(reason=f"a module named tensorflow without tf.function: {module!r}")
        )
    return module


def version() -> str:
    """Give TensorFlow's version."""
    return str(tensorflow().__version__)


def end_of_data() -> tuple[type[BaseException], ...]:
    """Give the exceptions with which a train function says that its iterator has no more batches."""
    return StopIteration, tensorflow().errors.OutOfRangeError


def op_error() -> type[Exception]:
    """Give the base of what operations raise; it is no RuntimeError."""
    return tensorflow().errors.OpError  # type: ignore[no-any-return]  # TensorFlow is untyped


def in_function() -> bool:
    """Say whether the caller stands inside a `tf.function` that is being traced."""
    return bool(tensorflow().inside_function())


def device_list() -> list[tuple[str, str, str]]:
    """List the devices that TensorFlow uses: name, kind, description."""
    tf = tensorflow()
    found = [(str(device.name), str(device.device_type), "") for device in tf.config.list_logical_devices()]
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        described = ", ".join(f"{key}: {value}" for key, value in sorted(details.items()))
        found.append((str(device.name), "physical GPU", described))
    return found


def thread_settings() -> tuple[int, int]:
    """Give the intra-op and inter-op thread counts; 0 lets TensorFlow choose."""
    threading = tensorflow().config.threading
    return (
        int(threading.get_intra_op_parallelism_threads()),
        int(threading.get_inter_op_parallelism_threads()),
    )


def functions_run_eagerly() -> bool:
    """Say whether the caller made every `tf.function` run eagerly."""
    return bool(tensorflow().config.functions_run_eagerly())


def tracing_count(function: Any) -> Callable[[], int] | None:
    """Give a counter of the traces of `function`, or of the `tf.function`s that it closes over."""
    counters = [
        cell.experimental_get_tracing_count
        for cell in [function, *_closed_over(function)]
        if hasattr(cell, "experimental_get_tracing_count")
    ]
    if not counters:
        return None
    if len(counters) == 1:
        return counters[0]  # type: ignore[no-any-return]  # TensorFlow is untyped
    return lambda: sum(counter() for counter in counters)


def _closed_over(function: Any) -> list[Any]:
    contents = []
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            contents.append(cell.cell_contents)
    return contents


def variables_of_function(function: Any) -> list[Any]:
    """List the variables that the traced graphs of a `tf.function` use."""
    variables: dict[int, Any] = {}
    for traced in getattr(function, "_list_all_concrete_functions", list)():
        for variable in getattr(traced, "variables", ()):
            variables[id(variable)] = variable
    return list(variables.values())


def is_variable(value: Any) -> bool:
    """Say whether `value` is a TensorFlow variable, distributed or not."""
    tf = tensorflow()
    return isinstance(value, tf.Variable)


def nested_bytes(value: Any) -> int:
    """Count the bytes of a structure of tensors; strings count as what they hold."""
    total = 0
    for part in tensorflow().nest.flatten(value, expand_composites=True):
        if getattr(part, "dtype", None) == tensorflow().variant:
            continue  # a dataset inside the element: nothing of it is held
        array = part.numpy() if hasattr(part, "numpy") else part
        if getattr(array, "dtype", None) == "object":
            total += sum(len(text) for text in array.ravel())
        else:
            total += len(array) if isinstance(array, bytes) else int(getattr(array, "nbytes", 8))
    return total


def is_module(value: Any) -> bool:
    """Say whether `value` is a `tf.Module`."""
    return isinstance(value, tensorflow().Module)


def components(variable: Any) -> list[Any]:
    """List the copies that a distributed variable has on each device; a plain one has itself."""
    values = getattr(variable, "values", None)
    if isinstance(values, tuple) and values and all(hasattr(v, "assign") for v in values):
        return list(values)
    return [variable]


def eager_random_state() -> Any:
    """Keep what the next op without a seed would draw."""
    context = _context()
    return copy.deepcopy(getattr(context, "_rng", None))


def restore_eager_random_state(state: Any) -> None:
    """Put back what `eager_random_state` kept."""
    context = _context()
    if hasattr(context, "_rng"):
        context._rng = copy.deepcopy(state)  # drawing changes it, and it may be put back again


def current_device() -> str:
    """Give the device that a `tf.device` around the caller chooses, empty where there is none."""
    return str(getattr(_context(), "device_name", "") or "")


def _context() -> Any:
    try:
        return importlib.import_module("tensorflow.python.eager.context").context()
    except (ImportError, AttributeError):
        return None


def global_random_variable() -> Any | None:
    """Give the state variable of `tf.random.get_global_generator()`, if somebody has made one."""
    try:
        module = importlib.import_module("tensorflow.python.ops.stateful_random_ops")
        generator = module.global_generator
    except (ImportError, AttributeError):
        return None
    return None if generator is None else generator.state

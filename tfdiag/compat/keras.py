"""The door to Keras 3 (on TensorFlow) and tf_keras: what a trainer offers, and its global state.

Private names and where they were seen, with what happens when they are gone:

- `keras.src.backend.common.global_state.GLOBAL_STATE_TRACKER` (3.3 to 3.15): the counters behind automatic
  names move on.
- `epoch_iterator` among the locals of `fit`, `._epoch_iterator`, `.data_adapter` and its `.enqueuer`,
  `model._eval_epoch_iterator` (3.3 to 3.15): an iterator that was told to stop is taken down whenever Python
  collects garbage.
- `keras.src.trainers.data_adapters.get_data_adapter` (3.3 to 3.15), `tf_keras.src.engine.data_adapter`
  (2.16 to 2.21): arrays, generators and PyDatasets can't be read without the model, and the
  input alone is `Missing`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import queue
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from tfdiag.compat.tensorflow import current_device, tensorflow
from tfdiag.errors import ModelError, TensorFlowMissingError

__all__ = [
    "adapter_dataset",
    "backend_of",
    "callback_base",
    "carry_context",
    "epoch_iterators",
    "epoch_length",
    "flavour",
    "global_state",
    "has_default_strategy",
    "is_keras_object",
    "is_py_dataset",
    "null_step",
    "quiet",
    "restore_global_state",
    "version",
]

_ROOTS = ("keras", "tf_keras")


@functools.lru_cache(maxsize=1)
def keras() -> Any:
    """Import the Keras that comes with TensorFlow."""
    tensorflow()
    try:
        return importlib.import_module("keras")
    except ImportError as error:
        raise TensorFlowMissingError(
            f"TensorFlow is installed but Keras can't be imported: {error}"
        ) from error


def version(model: Any) -> str:
    """Give the version of the Keras that the model belongs to."""
    if flavour(model) == "tf_keras":
        return f"{importlib.import_module('tf_keras').__version__} (tf_keras)"
    return str(keras().__version__)


def callback_base() -> type:
    """Give the class that callbacks of `fit` derive from; tf_keras takes them by their methods."""
    return keras().callbacks.Callback  # type: ignore[no-any-return]  # Keras is untyped


def is_history(callback: Any) -> bool:
    """Say whether it is the callback that Keras itself adds to each `fit`, which only keeps the logs."""
    cls = type(callback)
    return cls.__name__ == "History" and cls.__module__.split(".")[0] in _ROOTS


def flavour(model: Any) -> str:
    """Say whose trainer the model has: `keras`, `tf_keras`, or nothing when it is not a model."""
    for cls in type(model).__mro__:
        root = cls.__module__.split(".")[0]
        if cls.__name__ == "Model" and root in _ROOTS:
            return root
    return ""


def backend_of(model: Any) -> str:
    """Give the backend that computes the model."""
    if flavour(model) == "tf_keras":
        return "tensorflow"
    return str(keras().backend.backend())


def set_workers(dataset: Any, workers: int, *, processes: bool) -> None:
    """Set how many workers ask a PyDataset for batches."""
    dataset.workers = workers
    dataset.use_multiprocessing = processes


def is_py_dataset(value: Any) -> bool:
    """Say whether `value` is a PyDataset (or a Sequence, its older name)."""
    return any(
        cls.__name__ in ("PyDataset", "Sequence") and cls.__module__.split(".")[0] in _ROOTS
        for cls in type(value).__mro__
    )


def is_keras_object(value: Any) -> bool:
    """Say whether the class of `value`, or a class that it derives from, is Keras'."""
    return any(cls.__module__.split(".")[0] in _ROOTS for cls in type(value).__mro__)


def is_symbolic(value: Any) -> bool:
    """Say whether `value` belongs to Keras' graph of layers, which no run changes."""
    return type(value).__name__ in ("KerasTensor", "Node", "KerasHistory", "InputSpec")


def _state_tracker() -> Any:
    name = "keras.src.backend.common.global_state"
    module = sys.modules.get(name)
    return getattr(module, "GLOBAL_STATE_TRACKER", None)


def global_state() -> dict[str, Any]:
    """Keep what Keras remembers for this thread: name counters, seeds, policy, scopes."""
    tracker = _state_tracker()
    if tracker is None:
        return {}
    return {key: _own(value) for key, value in vars(tracker).items()}


def _own(value: Any) -> Any:
    """Copy a container, so that no two threads share it."""
    return copy.copy(value) if isinstance(value, (dict, list)) else value


def restore_global_state(kept: dict[str, Any]) -> None:
    """Put back what `global_state` kept."""
    tracker = _state_tracker()
    if tracker is None:
        return
    for key in list(vars(tracker)):
        if key not in kept:
            delattr(tracker, key)
    for key, value in kept.items():
        current = getattr(tracker, key, None)
        # The same object, so that whoever holds it sees it as it was; never one that threads would share.
        if isinstance(value, dict) and isinstance(current, dict):
            current.clear()
            current.update(value)
        elif isinstance(value, list) and isinstance(current, list):
            current[:] = value
        else:
            setattr(tracker, key, _own(value))


def epoch_iterators(frame_locals: dict[str, Any]) -> list[Any]:
    """Give what a running `fit` iterates over, from its local variables."""
    iterator = frame_locals.get("epoch_iterator")
    return [] if iterator is None else [iterator]


def validation_iterators(model: Any) -> list[Any]:
    """Give what the validation of a running `fit` iterates over."""
    iterator = getattr(model, "_eval_epoch_iterator", None)
    return [] if iterator is None else [iterator]


def take_down(epoch_iterator: Any) -> None:
    """End an epoch iterator of a `fit` that was told to stop.

    Keras leaves a circle of it and its generator behind, which some later garbage collection takes down: in
    the middle of anything, waiting for tf.data's tuning to end. And the workers of a PyDataset go on.
    """
    generator: Any = getattr(epoch_iterator, "_epoch_iterator", None)
    if hasattr(generator, "close"):
        generator.close()
    for name in ("_epoch_iterator", "_current_iterator"):
        if hasattr(epoch_iterator, name):
            setattr(epoch_iterator, name, None)
    _end_workers(getattr(epoch_iterator, "data_adapter", None))


def _end_workers(adapter: Any) -> None:
    """Stop the workers of a PyDataset, and let go of the batches that they had ready.

    Keras keeps those for a next epoch, and TensorFlow keeps the adapter for as long as its graph lives.
    """
    enqueuer = getattr(adapter, "enqueuer", None)
    if enqueuer is None:
        return
    if enqueuer.is_running():
        enqueuer.stop()
    ready = getattr(enqueuer, "ready_queue", None)
    with contextlib.suppress(queue.Empty):
        while ready is not None:
            ready.get_nowait()


def seed_generators() -> list[Any]:
    """List Keras' global seed generator, when somebody has made one."""
    generator = global_state().get("global_seed_generator")
    return [] if generator is None else [generator]


def carry_context() -> contextlib.AbstractContextManager[None]:
    """Make a block in another thread see the Keras state, the strategy and the device of this one."""
    state = {**global_state()}
    tf = tensorflow()
    strategy = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    device = current_device()

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        before = global_state()
        restore_global_state(state)
        with (
            tf.device(device) if device else contextlib.nullcontext(),
            strategy.scope() if strategy is not None else contextlib.nullcontext(),
        ):
            try:
                yield
            finally:
                restore_global_state(before)

    return scope()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence what Keras warns about because of how tfdiag calls it, not because of the job."""
    with warnings.catch_warnings():
        for message in (
            ".*shuffle=True.*will be ignored.*",
            ".*[Yy]our input ran out of data.*",
            ".*does not have any trainable weights.*",
            ".*this option does not apply to tf.data functions.*",
        ):
            warnings.filterwarnings("ignore", message=message)
        yield


def adapter_dataset(model: Any, arguments: dict[str, Any]) -> Any:
    """Build the `tf.data.Dataset` that `fit` would build from its arguments, or None."""
    tf_keras = flavour(model) == "tf_keras"
    try:
        if tf_keras:
            door = importlib.import_module("tf_keras.src.engine.data_adapter")
            adapter = door.select_data_adapter(arguments.get("x"), arguments.get("y"))(
                arguments.get("x"),
                arguments.get("y"),
                batch_size=arguments.get("batch_size") or 32,
                sample_weights=arguments.get("sample_weight"),
                shuffle=arguments.get("shuffle", True),
                model=model,
            )
            return adapter.get_dataset()
        door = importlib.import_module("keras.src.trainers.data_adapters")
        adapter = door.get_data_adapter(
            x=arguments.get("x"),
            y=arguments.get("y"),
            sample_weight=arguments.get("sample_weight"),
            batch_size=arguments.get("batch_size"),
            shuffle=arguments.get("shuffle", True),
            class_weight=arguments.get("class_weight"),
        )
        adapter.on_epoch_begin()
        return _Adapted(adapter, adapter.get_tf_dataset())
    except (ImportError, AttributeError, TypeError):
        return None


class _Adapted:
    """A dataset that a Keras adapter feeds, and the way to end the feeding."""

    def __init__(self, adapter: Any, dataset: Any) -> None:
        self.adapter = adapter
        self.dataset = dataset

    def close(self) -> None:
        """Stop the workers of a PyDataset."""
        self.adapter.on_epoch_end()
        _end_workers(self.adapter)


def epoch_length(arguments: dict[str, Any]) -> int | None:
    """Give the batches that Keras would count in an epoch of these arguments, or None."""
    x: Any = arguments.get("x")
    if is_py_dataset(x):
        length = getattr(x, "num_batches", None)
        if length is None:
            try:
                length = len(x)
            except (TypeError, NotImplementedError):
                return None
        return int(length)
    first: Any = _first_array(x)
    if first is None:
        return None
    size = int(arguments.get("batch_size") or 32)
    count = len(first)
    split = arguments.get("validation_split") or 0.0
    if split and arguments.get("validation_data") is None:
        count = int(count * (1.0 - split))
    return max(1, -(-count // size))


def _first_array(x: Any) -> Any:
    if isinstance(x, dict):
        return _first_array(next(iter(x.values()), None))
    if isinstance(x, (list, tuple)):
        return _first_array(x[0]) if x else None
    return x if hasattr(x, "shape") and hasattr(x, "__len__") else None


def null_step(model: Any, names: list[str]) -> Any:
    """Build a train function like the model's, whose step does nothing: what dispatch costs."""
    tf = tensorflow()
    tf_keras = flavour(model) == "tf_keras"
    base = importlib.import_module("tf_keras").Model if tf_keras else keras().Model

    class Null(base):  # type: ignore[misc, valid-type]  # Keras is untyped
        def train_step(self, data: Any) -> dict[str, Any]:
            return {name: tf.constant(0.0) for name in names}

        def call(self, inputs: Any) -> Any:
            return inputs

    strategy = getattr(model, "distribute_strategy", None)
    with strategy.scope() if strategy is not None else contextlib.nullcontext():
        null = Null(name="null")
        options = {"run_eagerly": bool(model.run_eagerly), "jit_compile": False}
        null.compile(loss=None, steps_per_execution=int(steps_per_execution(model)), **options)
        built = null.make_train_function()
    return built if built is not None else null.train_function


def steps_per_execution(model: Any) -> int:
    """Give the steps that one call of the train function makes."""
    value: Any = getattr(model, "steps_per_execution", None)
    if value is None:
        value = getattr(model, "_steps_per_execution", None)
    try:
        return max(1, int(value.numpy() if hasattr(value, "numpy") else value))
    except (TypeError, ValueError):
        return 1


def has_default_strategy(model: Any) -> bool:
    """Say whether the model is trained without a `tf.distribute` strategy of the caller's."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy is None or type(strategy).__name__.startswith("_Default")


def make_train_function(model: Any) -> Any:
    """Give the train function that `fit` would call, building it where there is none."""
    built = model.make_train_function()
    return built if built is not None else model.train_function


def require_model(model: Any) -> str:
    """Give the model's flavour, or say what was received instead of a model."""
    found = flavour(model)
    if not found:
        raise ModelError(
            "tfdiag.diagnose needs a Keras model (keras.Model or tf_keras.Model), "
            f"got {type(model).__module__}.{type(model).__qualname__}; "
            "for a loop of your own pass train_step= as well"
        )
    return found


def is_compiled(model: Any) -> bool:
    """Say whether `compile` was called."""
    compiled = getattr(model, "compiled", None)
    if compiled is None:
        compiled = getattr(model, "_is_compiled", False)
    return bool(compiled)

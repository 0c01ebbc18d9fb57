"""What the caller trains on, in whatever form `fit` takes it, as arguments for runs of our own.

Each run gets fresh arguments: a `tf.data.Dataset` with shuffles or caches is rebuilt so that the caller's
keeps its
order, a generator is counted, because what it has given can't be put back.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdiag.compat import keras, tfdata
from tfdiag.compat.tfgraph import generator_is_one_shot
from tfdiag.errors import DatasetError, UsageError

__all__ = ["Input", "can_be_read_once", "check_data", "resolve_input"]

_DATA_NAMES = ("x", "y", "sample_weight", "batch_size")


@dataclass(slots=True)
class Input:
    """The caller's input."""

    kind: str
    data: dict[str, Any]
    """The arguments of `fit` that carry data."""
    one_shot: bool = False
    exhausts: bool = False
    """A dataset whose generator gives its elements only once, however often the dataset is iterated."""
    cache_folder: str = ""
    notes: list[str] = field(default_factory=list)
    batches_used: int = 0
    first_batch: Any = None
    _factory: Callable[[], Any] | None = None
    _copy: Any = None

    def fresh(self) -> dict[str, Any]:
        """Give arguments for one more run."""
        arguments = dict(self.data)
        x = arguments.get("x")
        if self._factory is not None:
            arguments["x"] = self._counted(iter(self._factory()))
        elif self.one_shot:
            arguments["x"] = self._counted(x)
        else:
            # The same copy for every run: a cache that one has filled is full for the next, as in the job.
            if self._copy is None:
                self._copy = self.copied(x)
            arguments["x"] = self._copy
        return arguments

    def copied(self, dataset: Any) -> Any:
        """Give a dataset that shares no state with this one, or itself where that can't be."""
        if not tfdata.is_dataset(dataset):
            return dataset
        copy = tfdata.copy_dataset(dataset, self.cache_folder)
        if copy.why_not and copy.why_not not in self.notes:
            self.notes.append(copy.why_not)
        return copy.dataset

    def replayable(self) -> dict[str, Any] | None:
        """Give arguments that yield the kept batch for ever, where the source can't be read again."""
        if self.first_batch is None:
            return None

        def repeated() -> Iterator[Any]:
            while True:
                yield self.first_batch

        return {**self.data, "x": repeated()}

    def _counted(self, source: Any) -> Iterator[Any]:
        for batch in source:
            if self.first_batch is None:
                self.first_batch = batch
            self.batches_used += 1
            yield batch


def resolve_input(
    dataset: Any,
    *,
    y: Any,
    batch_size: int | None,
    fit_kwargs: Mapping[str, Any],
    custom: bool,
) -> Input:
    """Tell what kind of input it is, and refuse what no run could use."""
    data = {name: fit_kwargs[name] for name in _DATA_NAMES if name in fit_kwargs}
    given = {"x": dataset, "y": y, "batch_size": batch_size}
    for name, value in given.items():
        if value is None:
            continue
        if name in data:
            raise UsageError(f"{name} is given twice: as an argument and in fit_kwargs; pass it once")
        data[name] = value
    x = data.get("x")
    if x is None:
        raise DatasetError(
            "there is nothing to train on: pass what you pass to fit, "
            "diagnose(model, dataset) or diagnose(model, x, y=y)"
        )
    if isinstance(x, tuple) and "y" not in data and 2 <= len(x) <= 3 and _is_array(x[1]):
        data["x"], data["y"] = x[0], x[1]
        if len(x) == 3:
            data["sample_weight"] = x[2]
        x = data["x"]
    size = data.get("batch_size")
    if size is not None and size <= 0:
        raise UsageError(f"batch_size must be positive, got {size}")
    return _classified(x, data, custom=custom)


def check_data(x: Any) -> None:
    """Refuse data that fit would refuse, and that is empty; nothing is read from it."""
    _classified(x, {"x": x}, custom=False)


def _classified(x: Any, data: dict[str, Any], *, custom: bool) -> Input:
    if tfdata.is_dataset(x):
        if tfdata.cardinality(x) == 0:
            raise DatasetError("the dataset is empty: it yields no batch, so there is no step to measure")
        return Input("tf.data.Dataset", data, exhausts=generator_is_one_shot(x))
    if tfdata.is_distributed(x):
        return Input("distributed dataset", data)
    if keras.is_py_dataset(x):
        try:
            length = keras.epoch_length(data)
        except Exception as error:
            raise DatasetError(f"len() of the {type(x).__name__} failed: {error}") from error
        if length == 0:
            raise DatasetError(f"the {type(x).__name__} is empty: its length is 0")
        return Input("PyDataset", data)
    if can_be_read_once(x):
        return Input("generator", data, one_shot=True)
    if isinstance(x, types.FunctionType) or (custom and callable(x)):
        return Input("generator function", data, _factory=x)
    if _is_array(x) or isinstance(x, (list, tuple, dict)):
        _check_rows(data)
        return Input("arrays", data)
    if hasattr(x, "__iter__"):
        return Input(type(x).__name__, data)
    raise DatasetError(
        f"can't train on {type(x).__module__}.{type(x).__qualname__}: pass a tf.data.Dataset, arrays, "
        "a PyDataset, a generator, or a function that returns a fresh generator"
    )


def can_be_read_once(x: Any) -> bool:
    """Say whether what is taken from it is gone."""
    return isinstance(x, types.GeneratorType) or hasattr(x, "__next__")


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__len__")


def _check_rows(data: dict[str, Any]) -> None:
    """Make sure that all arrays have the same number of rows, and at least one."""
    rows = {
        f"{name}{where}": count
        for name in ("x", "y", "sample_weight")
        for where, count in _row_counts(data.get(name))
    }
    if rows and 0 in rows.values():
        raise DatasetError("the arrays are empty: they have no rows, so there is no step to measure")
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in rows.items())
        raise DatasetError(f"the arrays differ in their number of rows: {counts}; they must have the same")
    if not rows:
        raise DatasetError(f"there are no arrays in x, got {type(data['x']).__name__}: pass what fit takes")


def _row_counts(value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for key, part in value.items():
            for where, count in _row_counts(part):
                yield f"[{key!r}]{where}", count
    elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float, str)):
        for index, part in enumerate(value):
            for where, count in _row_counts(part):
                yield f"[{index}]{where}", count
    elif isinstance(value, (list, tuple)):
        yield "", len(value)
    elif value is not None:
        shape: Any = getattr(value, "shape", None)
        if shape is not None and len(shape) and shape[0] is not None:
            yield "", int(shape[0])

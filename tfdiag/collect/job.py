"""Facts about the job: the model, how it is compiled, how long an epoch is, what else runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tfdiag.collect.inputs import Input, can_be_read_once
from tfdiag.collect.session import Request
from tfdiag.compat import keras, tensorflow, tfdata
from tfdiag.model.measurements import BatchTensor, Job
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["batch_facts", "batch_tensors", "describe", "job_of", "notes_of"]

_LOOKED_AT = 1_000_000
"""Numbers of a tensor; enough to see what they are, and quick."""


def describe(
    model: Any,
    source: Input | None,
    fit_kwargs: Mapping[str, Any],
    *,
    callbacks: tuple[str, ...] = (),
    epochs: int = 1,
    steps_per_epoch: Maybe | None = None,
) -> Job:
    """Describe a Keras job before it runs."""
    flavour = keras.flavour(model)
    strategy = getattr(model, "distribute_strategy", None)
    return Job(
        loop="tf_keras" if flavour == "tf_keras" else "keras",
        model=f"{getattr(model, 'name', '')} ({type(model).__name__})",
        input=source.kind if source is not None else "the caller's own fit",
        parameters=_parameters(model),
        steps_per_execution=keras.steps_per_execution(model),
        steps_per_epoch=steps_per_epoch or _epoch_steps(source, fit_kwargs),
        epochs=epochs,
        run_eagerly=bool(getattr(model, "run_eagerly", False)) or tensorflow.functions_run_eagerly(),
        eager_everywhere=tensorflow.functions_run_eagerly(),
        jit_compile=getattr(model, "jit_compile", None) in (True, "True"),
        dtype_policy=str(getattr(getattr(model, "dtype_policy", None), "name", "")),
        strategy="" if keras.has_default_strategy(model) else type(strategy).__name__,
        replicas=int(getattr(strategy, "num_replicas_in_sync", 1) or 1),
        validation_freq=_frequency(fit_kwargs.get("validation_freq", 1), epochs),
        callbacks=callbacks,
        one_shot=source.one_shot if source is not None else False,
    )


_NEVER = 1_000_000
_READ_ONCE = "the validation data can be read only once, so it was left to the caller and not validated on"


def _frequency(value: Any, epochs: int) -> int:
    """Give the epochs between two validations; a list names single epochs, which makes it their mean."""
    if isinstance(value, int) or epochs <= 1:
        return max(1, value) if isinstance(value, int) else 1
    named = [each for each in value if 1 <= each <= epochs]
    return max(1, round(epochs / len(named))) if named else _NEVER


def _parameters(model: Any) -> Maybe:
    try:
        return Quantity(float(model.count_params()), "parameters", source="model.count_params()")
    except ValueError:
        return Missing("the model is not built before its first step")
    except (AttributeError, TypeError, NotImplementedError) as error:
        return Missing(f"the model can't count its parameters: {error}")


def _epoch_steps(source: Input | None, fit_kwargs: Mapping[str, Any]) -> Maybe:
    """Give the steps of one of the caller's epochs, as far as anybody can know before running."""
    if source is None:
        return Missing("fit did not say how long an epoch is")
    given = fit_kwargs.get("steps_per_epoch")
    if given:
        return Quantity(float(given), "steps", origin="given", source="steps_per_epoch")
    x = source.data.get("x")
    if tfdata.is_dataset(x) or tfdata.is_distributed(x):
        count = tfdata.cardinality(x)
        if count == -1:
            return Missing("the dataset is infinite and steps_per_epoch is not given")
        if count is None:
            return Missing("the dataset does not know its length")
        return Quantity(float(count), "steps", source="cardinality of the dataset")
    if source.kind in ("arrays", "PyDataset"):
        length = keras.epoch_length({**fit_kwargs, **source.data})
        if length is not None:
            return Quantity(float(length), "steps", source=f"length of the {source.kind}")
    return Missing(f"a {source.kind} does not know its length")


def batch_facts(batch: Any) -> tuple[Maybe, Maybe]:
    """Give the rows of a batch and its bytes."""
    tf = tensorflow.tensorflow()
    rows: Maybe = Missing("the batch has no leading dimension")
    total = 0
    for part in _flat(batch):
        values = getattr(part, "values", None)
        if isinstance(values, tuple):  # one part for each replica
            found, inner = zip(*(batch_facts(value) for value in values), strict=True)
            known = [item.value for item in found if isinstance(item, Quantity)]
            if isinstance(rows, Missing) and known:
                rows = Quantity(sum(known), "rows", source="first batch")
            total += sum(int(item.value) for item in inner if isinstance(item, Quantity))
            continue
        flat = getattr(part, "flat_values", None)
        tensor = flat if flat is not None else part
        if isinstance(part, tf.SparseTensor):
            tensor = part.values
        shape: Any = getattr(part, "shape", ())
        if isinstance(rows, Missing) and len(shape) and shape[0] is not None:
            rows = Quantity(float(shape[0]), "rows", source="first batch")
        dtype: Any = getattr(tensor, "dtype", None)
        size: Any = getattr(dtype, "size", None) or getattr(dtype, "itemsize", 0)
        count = 1
        for length in getattr(tensor, "shape", ()):
            count *= int(length or 0)
        total += int(size) * count
    return rows, Quantity(float(total), "B", source="first batch")


def batch_tensors(batch: Any) -> tuple[BatchTensor, ...]:
    """Give the dense tensors of a batch: type, bytes, and what numbers they hold."""
    return tuple(
        _tensor(f"part {index}" if index else "the first part", part)
        for index, part in enumerate(_flat(batch))
        if hasattr(part, "dtype") and not isinstance(getattr(part, "values", None), tuple)
    )


def _tensor(name: str, part: Any) -> BatchTensor:
    dtype: Any = part.dtype
    kind = str(getattr(dtype, "name", dtype))
    try:
        values = np.asarray(part)
    except (TypeError, ValueError, NotImplementedError, RuntimeError):  # ragged, sparse, of strings …
        return BatchTensor(name, kind, 0)
    if values.dtype.kind not in "fiu" or not values.size:
        return BatchTensor(name, kind, int(values.nbytes))
    seen = values.reshape(-1)[:_LOOKED_AT]
    low, high = float(seen.min()), float(seen.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return BatchTensor(name, kind, int(values.nbytes))
    return BatchTensor(
        name,
        kind,
        int(values.nbytes),
        whole=bool(values.dtype.kind != "f" or (seen == np.round(seen)).all()),
        low=Quantity(low, "", source="one batch", count=len(seen)),
        high=Quantity(high, "", source="one batch", count=len(seen)),
    )


def _flat(batch: Any) -> list[Any]:
    if batch is None:
        return []
    if isinstance(batch, dict):
        return [leaf for value in batch.values() for leaf in _flat(value)]
    if isinstance(batch, (list, tuple)):
        return [leaf for value in batch for leaf in _flat(value)]
    return [batch]


def job_of(request: Request) -> Job:
    """Say what was asked to be diagnosed."""
    names = tuple(type(callback).__name__ for callback in request.callbacks)
    if request.train_step is not None:
        step = request.train_step
        job = Job(
            loop="custom",
            model=getattr(step, "__name__", type(step).__name__),
            input=request.source.kind,
            steps_per_epoch=Missing("a loop of the caller's own has no epochs"),
            run_eagerly=tensorflow.functions_run_eagerly(),
            eager_everywhere=tensorflow.functions_run_eagerly(),
        )
    else:
        job = describe(
            request.model,
            request.source,
            request.fit_kwargs,
            callbacks=names,
            epochs=int(request.fit_kwargs.get("epochs", 0)),
        )
    return replace(
        job, validation_steps=_validation_steps(request), validation_pass=_validation_pass(request)
    )


def _validation_pass(request: Request) -> Maybe:
    """Give the steps of one pass over the validation data, also where it repeats for ever."""
    data = request.fit_kwargs.get("validation_data")
    if data is None:
        return _split_steps(request)
    if can_be_read_once(data):
        return Missing(_READ_ONCE)
    if tfdata.is_dataset(data):
        count = tfdata.one_pass(data)
        if count is None:
            return Missing("the validation data does not know its length")
        return Quantity(float(count), "steps", source="cardinality of the validation data")
    return _validation_length(request, data)


def _validation_steps(request: Request) -> Maybe:
    kwargs = request.fit_kwargs
    data = kwargs.get("validation_data")
    if data is None:
        return _split_steps(request)
    if can_be_read_once(data):
        return Missing(_READ_ONCE)
    if kwargs.get("validation_steps"):
        return Quantity(float(kwargs["validation_steps"]), "steps", origin="given")
    if tfdata.is_dataset(data):
        count = tfdata.cardinality(data)
        if count is not None and count > 0:
            return Quantity(float(count), "steps", source="cardinality of the validation data")
        return Missing("the validation data does not know its length")
    return _validation_length(request, data)


def _split_steps(request: Request) -> Maybe:
    """Give the steps of a validation on a part of the training arrays."""
    part = float(request.fit_kwargs.get("validation_split") or 0.0)
    if not part:
        return Missing("there is no validation")
    kwargs = {name: value for name, value in request.fit_kwargs.items() if name != "steps_per_epoch"}
    whole = keras.epoch_length({**kwargs, **request.source.data, "validation_split": 0.0})
    if whole is None:
        return Missing("the validation data does not know its length")
    return Quantity(float(max(1, round(part * whole))), "steps", source="validation_split of the arrays")


def _validation_length(request: Request, data: Any) -> Maybe:
    kwargs = request.fit_kwargs
    size = kwargs.get("validation_batch_size") or request.source.data.get("batch_size")
    x = data[0] if isinstance(data, (list, tuple)) else data
    length = keras.epoch_length({"x": x, "batch_size": size})
    if length is None:
        return Missing("the validation data does not know its length")
    return Quantity(float(length), "steps", source="length of the validation data")


def notes_of(request: Request) -> list[str]:
    """Say what a reader must know about how the job is run."""
    notes: list[str] = []
    if can_be_read_once(request.fit_kwargs.get("validation_data")):
        notes.append(f"{_READ_ONCE}; pass a dataset, or a function that returns a fresh generator")
    if request.source.exhausts:
        notes.append(
            "the dataset reads from a generator object that was made once: the batches that the "
            "diagnosis took are gone; give from_generator a function that returns a fresh generator"
        )
    if request.source.one_shot:
        notes.append(
            "the input is a generator, which can be read only once: the batches that the diagnosis "
            "took from it are gone; pass a function that returns a fresh generator to keep them"
        )
    if request.train_step is None and request.fit_kwargs.get("verbose") != 0:
        notes.append("the progress bar was off during the diagnosis, so its time is not in the step")
    return notes

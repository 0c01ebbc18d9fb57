"""What a real batch holds: rows of tables that it uses, padding, and what its length costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tfdiag.collect.layers import embeddings_in, maskings_in
from tfdiag.collect.replay import resident
from tfdiag.collect.turns import by_turns, seconds_needed
from tfdiag.compat import keras_parts as door
from tfdiag.compat import tensorflow
from tfdiag.model.layers import LengthCalls, Padding
from tfdiag.model.quantity import Quantity

__all__ = ["Given", "given_in", "inputs_of", "measure_lengths", "padding_of", "worth_timing"]

_SHORTEST = 8
"""Shorter inputs are no sequences that somebody pads: columns of a table, mostly."""
_OFTEN = 0.5
"""Of the rows must end with the same value, for it to be padding where nothing masks it."""
_WORTH_TIMING = 0.15
"""Below this share of padding its time is not asked for."""
_TRACING = 0.9

Array = Any
Side = Literal["right", "left"]


@dataclass(frozen=True, slots=True)
class Given:
    """What a layer was given by one batch."""

    layer: str
    values: Array
    mask_zero: bool = False
    mask_value: float | None = None
    """That of a masking layer."""

    def padded(self, values: Array | None = None) -> tuple[Array, float] | None:
        """Say which positions may be padding and what they hold; None where there is no axis of time."""
        given = self.values if values is None else values
        if not given.size:
            return None
        if self.mask_value is not None:
            return (np.all(given == self.mask_value, axis=-1), self.mask_value) if given.ndim == 3 else None
        if given.ndim != 2 or given.dtype.kind not in "iu" or given.shape[1] < _SHORTEST:
            return None
        if self.mask_zero:
            return given == 0, 0.0
        best = None
        for column, run in ((-1, _trailing), (0, _leading)):
            numbers, counts = np.unique(given[:, column], return_counts=True)
            value = numbers[np.argmax(counts)]
            if counts.max() >= _OFTEN * len(given):
                total = run(given == value).sum()
                if best is None or total > best[0]:
                    best = total, value
        return None if best is None else (given == best[1], float(best[1]))


def inputs_of(batch: Any) -> Any:
    """Give the part of a batch that the model is called with."""
    return batch[0] if isinstance(batch, (tuple, list)) else batch


def given_in(model: Any, batch: Any) -> list[Given]:
    """Run the model forwards on a batch, and see what its embeddings and masking layers are given."""
    tables, masking = embeddings_in(model), maskings_in(model)
    if not tables and not masking:
        return []
    if not getattr(model, "built", True):
        raise ValueError("the train step never calls the model itself")
    found: list[Given] = []

    def see(layer: Any, given: Any) -> None:
        if not hasattr(given, "numpy") and not isinstance(given, np.ndarray):
            return  # within a function that is being traced
        values = np.asarray(given)
        value = getattr(layer, "mask_value", None)
        found.append(
            Given(str(layer.name), values, bool(getattr(layer, "mask_zero", False)),
                  None if value is None else float(value))
        )  # fmt: skip

    with door.watched_calls([*tables, *masking], see):
        model(inputs_of(batch), training=False)
    return found


def padding_of(given: Given, batch: Any, others: Iterable[Any] = ()) -> Padding | None:
    """Count the padding of a layer's input in a batch and, where the batch itself holds it, in others."""
    first = given.padded()
    if first is None:
        return None
    mask, value = first
    sides: dict[Side, int] = {"right": int(_trailing(mask).sum()), "left": int(_leading(mask).sum())}
    side: Side = "left" if sides["left"] > sides["right"] else "right"
    if not sides[side]:
        return None
    masks = [mask]
    at = _place(given.values, batch)
    for other in others if at is not None else ():
        parts = _parts(other)
        values = np.asarray(parts[at]) if at is not None and at < len(parts) else None
        again = given.padded(values) if values is not None and values.ndim == given.values.ndim else None
        if again is not None and again[1] == value:
            masks.append(again[0])
    run = _leading if side == "left" else _trailing
    lengths = [one.shape[1] - run(one) for one in masks]
    padded = sum(int(run(one).sum()) for one in masks)
    return Padding(
        layer=given.layer,
        side=side,
        value=value,
        length=float(np.mean([one.shape[1] for one in masks])),
        row_length=float(np.mean(np.concatenate(lengths))),
        longest=float(np.mean([one.max() for one in lengths])),
        share=Quantity(
            padded / sum(one.size for one in masks), "share", source="real batches", count=len(masks)
        ),
        rows=sum(len(one) for one in masks),
        batches=len(masks),
    )


def _trailing(mask: Array) -> Array:
    return np.where(mask.all(axis=1), mask.shape[1], np.argmin(mask[:, ::-1], axis=1))


def _leading(mask: Array) -> Array:
    return _trailing(mask[:, ::-1])


def _parts(batch: Any) -> list[Any]:
    return list(tensorflow.tensorflow().nest.flatten(inputs_of(batch)))


def _place(values: Array, batch: Any) -> int | None:
    """Find which part of a batch a layer was given, None where something was done to it before."""
    for at, part in enumerate(_parts(batch)):
        if tuple(getattr(part, "shape", ())) == values.shape and hasattr(part, "numpy"):
            mine = part.numpy()
            if mine.dtype.kind in "iuf" and np.array_equal(mine, values):
                return at
    return None


def worth_timing(padding: Padding) -> bool:
    """Say whether a step of rows cut to their mean length is worth a look."""
    cut = math.ceil(padding.row_length)
    return padding.length - padding.row_length >= _WORTH_TIMING * padding.length and 0 < cut < padding.length


def measure_lengths(
    model: Any,
    batch: Any,
    element_spec: Any,
    padding: Padding,
    *,
    first_call_s: float,
    call_s: float,
    until: float,
    turns_until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> tuple[tuple[LengthCalls, ...], str]:
    """Time the step on a batch and on the same batch cut to the mean length of its rows; or say why not."""
    if clock() + _TRACING * first_call_s + seconds_needed(call_s) > until:
        return (), "to trace the step for other lengths would not fit into the budget"
    tf = tensorflow.tensorflow()
    lengths = {int(part.shape[1]) for part in _parts(batch) if len(getattr(part, "shape", ())) > 1}
    whole = min(lengths, key=lambda length: abs(length - padding.length), default=0)
    # Near enough is the same: other batches may be a little longer or shorter than this one.
    cut = math.ceil(whole * padding.row_length / padding.length)
    if not 0 < cut < whole:
        return (), "the batch holds no sequences of this length"
    step = door.own_train_function(model)
    data = [
        iter(resident(model, _cut(batch, whole, length, padding.side), _open(element_spec, batch, whole)))
        for length in (whole, cut)
    ]
    try:
        with door.any_length(model):
            for each in data:
                step(each)
        long_s, short_s = by_turns(
            lambda: step(data[0]),
            lambda: step(data[1]),
            call_s=call_s,
            until=turns_until,
            clock=clock,
            should_stop=should_stop,
        )
    except (tf.errors.OpError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        return (), f"the model takes no other length: {(str(error).splitlines() or ['?'])[0]}"
    return (LengthCalls(whole, long_s), LengthCalls(cut, short_s)), ""


def _cut(batch: Any, whole: int, length: int, side: Side) -> Any:
    """Cut all that is as long as the sequences, inputs and targets, on the side of the padding."""

    def shorter(part: Any) -> Any:
        if len(getattr(part, "shape", ())) < 2 or part.shape[1] != whole:
            return part
        return part[:, :length] if side == "right" else part[:, whole - length :]

    return tensorflow.tensorflow().nest.map_structure(shorter, batch)


def _open(element_spec: Any, batch: Any, whole: int) -> Any:
    """Give the batch's specification without the length of its sequences."""
    tf = tensorflow.tensorflow()

    def spec(part: Any, known: Any) -> Any:
        if not isinstance(known, tf.TensorSpec) or len(part.shape) < 2 or part.shape[1] != whole:
            return known
        shape = known.shape.as_list() if known.shape.rank is not None else [None] * len(part.shape)
        shape[1] = None
        return tf.TensorSpec(shape, known.dtype)

    if element_spec is None:
        element_spec = tf.nest.map_structure(tf.TensorSpec.from_tensor, batch)
    return tf.nest.map_structure(spec, batch, element_spec)

"""What tells copies, computing and dispatch apart where no trace does.

Tensors of the batch are copied to the device by themselves, whole and by a quarter, and the step is called on
a batch that has each row twice: what does not grow with it is the fixed cost of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfdiag.collect import replay
from tfdiag.compat import gpu, keras, tensorflow
from tfdiag.model.estimates import CopySample, DeviceEstimates
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["measure_copies", "measure_twice"]

_TENSORS = 3
"""So many of the largest are copied: they are what a copy of the batch takes."""
_COPIES = 15
_LEAST = 3
_LEAST_BYTES = 1 << 16
"""A quarter of less is no shorter than the whole: all of it is latency."""
_ROUNDS = 3
_FULL = 0.9
"""Of the device's memory: what may need more is not tried, because TensorFlow waits ten seconds before it
gives up."""


def measure_copies(
    batch: Any, device: str, *, until: float, clock: Callable[[], float], should_stop: Callable[[], bool]
) -> DeviceEstimates:
    """Time copies of the batch's tensors to a device."""
    tf = tensorflow.tensorflow()
    parts = [
        part
        for part in tf.nest.flatten(batch, expand_composites=True)
        if isinstance(part, tf.Tensor) and part.dtype not in (tf.string, tf.variant, tf.resource)
    ]
    if not parts:
        return DeviceEstimates(copies_missing="the batch has no tensors of numbers")
    if any("CPU" not in part.device for part in parts):
        return DeviceEstimates(
            copies_missing="batches come on the device: how much of their copies the step waits for is not "
            "known without a trace"
        )
    sizes = tuple(_bytes(part) for part in parts)
    largest = sorted(parts, key=_bytes, reverse=True)[:_TENSORS]
    samples: list[CopySample] = []
    host: list[float] = []
    for number, part in enumerate(largest):
        end = clock() + (until - clock()) / (len(largest) - number)
        flat = tf.reshape(part, [-1])
        with tf.device("/CPU:0"):
            quarter = tf.identity(flat[: max(1, int(flat.shape[0]) // 4)])
        whole_s: list[float] = []
        quarter_s: list[float] = []
        _copied(part, device, clock)
        while len(whole_s) < _COPIES and not should_stop():
            whole_s.append(_copied(part, device, clock))
            quarter_s.append(_copied(quarter, device, clock))
            host.append(_copied(quarter, "/CPU:0", clock))
            if clock() >= end and len(whole_s) >= _LEAST:
                break
        samples.append(CopySample(_bytes(part), tuple(whole_s), _bytes(quarter), tuple(quarter_s)))
        if clock() >= until:
            break
    return DeviceEstimates(tensors=sizes, copies=tuple(samples), op_s=tuple(host))


def _bytes(tensor: Any) -> int:
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def _copied(tensor: Any, device: str, clock: Callable[[], float]) -> float:
    """Copy a tensor and wait for it."""
    tf = tensorflow.tensorflow()
    with tf.device("/CPU:0"):
        # A tensor remembers where it was copied to; one that shares its memory does not.
        fresh = tf.identity(tensor)
    begin = clock()
    with tf.device(device):
        tf.identity(fresh)
    return clock() - begin


def measure_twice(
    model: Any,
    train_step: Callable[[Any], Any] | None,
    batch: Any,
    element_spec: Any,
    *,
    device: str,
    first_call_s: float,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> tuple[tuple[float, ...], tuple[float, ...]] | Missing:
    """Time calls on the batch and on one with each row twice, by turns."""
    tf = tensorflow.tensorflow()
    if reason := _no_room(device):
        return Missing(reason)
    twice = tf.nest.map_structure(lambda part: tf.concat([part, part], 0), batch)
    wide = _takes_any_length(element_spec)
    if not wide and clock() + first_call_s > until:
        return Missing("the budget left no time to trace the step for a batch of another size")
    if train_step is None:
        step = keras.make_train_function(model)
        spec = element_spec if wide else tf.data.Dataset.from_tensors(twice).element_spec
        both = (replay.resident(model, batch, element_spec), replay.resident(model, twice, spec))
    else:
        own = train_step
        step = lambda iterator: own(next(iterator))  # noqa: E731  # the loop of one's own in a line
        both = tuple(tf.data.Dataset.from_tensors(each).repeat() for each in (batch, twice))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        for dataset, found in zip(both, times, strict=True):
            end = clock() + (until - clock()) / (2 * _ROUNDS)
            found.extend(replay.call_times(step, dataset, end, clock, should_stop))
        if should_stop() or clock() >= until:
            break
    return tuple(times[0]), tuple(times[1])


def _takes_any_length(spec: Any) -> bool:
    """Say whether the step was traced for batches of any length."""
    tf = tensorflow.tensorflow()
    parts = [
        part for part in tf.nest.flatten(spec, expand_composites=True) if isinstance(part, tf.TensorSpec)
    ]
    return bool(parts) and all(part.shape.rank is None or part.shape[:1] == [None] for part in parts)


def _no_room(device: str) -> str:
    name = device.strip("/").removeprefix("device:")
    used, limit = gpu.allocated(name), gpu.allocator_limit(name)
    if isinstance(used, Missing) or not isinstance(limit, Quantity):
        return ""
    current, peak = used
    if 2 * peak - current > _FULL * limit.value:
        return "a batch of twice the size might not fit into the device's memory"
    return ""

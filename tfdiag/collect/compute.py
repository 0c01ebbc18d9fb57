"""Finds out what a step computes, and what the machine could compute in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfdiag.collect.flops import Counted, OpWork, count
from tfdiag.collect.peak import Wanted, measure_peaks
from tfdiag.collect.walked import Names
from tfdiag.compat import compute as door
from tfdiag.compat import host, keras, placement
from tfdiag.model.compute import Compute, LayerWork, Peak
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["add_up", "measure_compute", "wanted_peaks"]

_LAYERS_KEPT = 60
_HALF = ("float16", "bfloat16")
_MATTERS = 0.01
"""Of the operations: in a type that has fewer the peak hardly matters."""
_TENSOR_CORES = 7.0
"""The compute capability from which on a GPU has them."""


def measure_compute(
    model: Any,
    step: Any,
    *,
    rows: int | None,
    device: str,
    capability: float | None,
    peaks: bool,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> Compute | Missing:
    """Count the operations of a traced step, and let the machine show its peak in the types that they have.

    `model` is None for a step function of the caller's own. `peaks` is false where how much the machine could
    do does not matter. `capability` is what the driver says of the device: TensorFlow itself does not know it
    of every GPU.
    """
    concrete = placement.step_function(step)
    if concrete is None:
        return Missing("the step has no traced graph whose operations could be counted")
    steps = 1 if model is None else keras.steps_per_execution(model)
    unrolled = 1 if model is None else min(steps, door.unrolled_steps(model))
    counted = count(door.work_graph(concrete), rows, steps / unrolled)
    names = Names() if model is None else Names(frozenset(placement.layer_names(model)))
    kernels = () if model is None else door.kernels(model)
    flops, by_dtype, layers = add_up(counted, steps, names, kernels)
    told = door.capability(device)
    source = "TensorFlow's details of the device" if told is not None else "NVML"
    capability = capability if told is None else told
    features = host.low_precision_features()
    found: tuple[Peak, ...] = ()
    missing = "how much the machine could compute does not matter here"
    if peaks and by_dtype:
        wanted = wanted_peaks(by_dtype, {op.dtype for op in counted.ops if "Conv" in op.op}, capability)
        found, missing = measure_peaks(device, wanted, until=until, clock=clock, should_stop=should_stop)
    return Compute(
        flops=flops,
        by_dtype=by_dtype,
        layers=layers,
        uncounted=counted.uncounted,
        peaks=found,
        peaks_missing=missing,
        device=device,
        capability=Missing("the device has no compute capability")
        if capability is None
        else Quantity(capability, "", source=source),
        tensor_float_32=door.tensor_float_32(),
        cpu_features=() if isinstance(features, Missing) else features,
        cpu_features_missing=features.reason if isinstance(features, Missing) else "",
    )


def add_up(
    counted: Counted, steps: int, names: Names, kernels: tuple[door.Kernel, ...]
) -> tuple[Maybe, dict[str, float], tuple[LayerWork, ...]]:
    """Give the operations of one step: all of them, by type, and by layer."""
    names = names.seen_in(op.path for op in counted.ops)
    held = {kernel.layer: kernel for kernel in kernels}
    by_dtype: dict[str, float] = {}
    by_layer: dict[tuple[str, str], float] = {}
    for op in counted.ops:
        by_dtype[op.dtype] = by_dtype.get(op.dtype, 0.0) + op.flops / steps
        key = (names.layer(op.path), op.dtype)
        by_layer[key] = by_layer.get(key, 0.0) + op.flops / steps
    ranked = sorted(by_layer, key=lambda key: -by_layer[key])[:_LAYERS_KEPT]
    layers = tuple(
        LayerWork(layer, by_layer[layer, dtype], dtype, held[layer].kind, held[layer].shape)
        if layer in held
        else LayerWork(layer, by_layer[layer, dtype], dtype)
        for layer, dtype in ranked
    )
    return _total(counted.ops, counted.uncounted, steps), by_dtype, layers


def _total(ops: tuple[OpWork, ...], uncounted: tuple[str, ...], steps: int) -> Maybe:
    total = sum(op.flops for op in ops) / steps
    if not total and uncounted:
        return Missing(f"nothing could be counted: {', '.join(uncounted)}")
    source = "matrix products and convolutions in the traced step, forward and backward"
    if uncounted:
        source += f", at least: not counted is {', '.join(uncounted)}"
        return Quantity(total, "FLOP", total, None, "estimated", source, len(ops))
    return Quantity(total, "FLOP", source=source, count=len(ops))


def wanted_peaks(by_dtype: dict[str, float], convolved: set[str], capability: float | None) -> list[Wanted]:
    """Say what the machine has to show: the step's own types, and those that would be the alternative.

    `convolved` are the types in which the step has convolutions. What matters least comes last, where the
    time may be over.
    """
    types = sorted((each for each in by_dtype if by_dtype[each] > 0), key=lambda each: -by_dtype[each])
    wanted: list[Wanted] = []
    rest: list[Wanted] = []
    for dtype in types:
        into = wanted if by_dtype[dtype] >= _MATTERS * sum(by_dtype.values()) else rest
        into.append(("matrix product", dtype, True))
        if dtype in convolved:
            into.append(("convolution", dtype, True))
    half = [each for each in types if each in _HALF]
    cores = capability is not None and capability >= _TENSOR_CORES
    if half and "float32" not in types:
        wanted.append(("matrix product", "float32", True))
    if cores and not half:
        wanted.append(("matrix product", "float16", True))
    if cores and half:
        wanted.append(("matrix product", half[0], False))
    return [*wanted, *rest]

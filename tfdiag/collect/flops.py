"""Counts the floating-point operations of a traced step: pure, so that it can be tested without TensorFlow.

Counted are matrix products and convolutions, two operations for each multiplication with its addition. The
graph of a train function holds the backward pass as ops of its own, so nothing has to be guessed for it.
What works on single numbers is left out: it is limited by memory, not by arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tfdiag.compat.compute import Shape, WorkGraph, WorkNode

__all__ = ["Counted", "OpWork", "count", "flops_of"]

_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_CONVOLUTIONS = (
    "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
    "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter",
    "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2",
)  # fmt: skip
_MOST_OPS = 500_000
"""Functions that call each other many times would make the walk endless."""


@dataclass(frozen=True, slots=True)
class OpWork:
    """What the executions of one op take in a call of the train function."""

    path: str
    op: str
    dtype: str
    flops: float


@dataclass(frozen=True, slots=True)
class Counted:
    """The work of a call of the train function."""

    ops: tuple[OpWork, ...]
    uncounted: tuple[str, ...]
    """What has work that is not known, each in a few words."""


def count(graph: WorkGraph, rows: int | None, steps_per_loop: float = 1.0) -> Counted:
    """Go through a graph with all its functions; a loop counts as often as it goes round.

    `rows` stands for the one dimension of a shape that the graph may not know. `steps_per_loop` is how often
    a loop over steps goes round.
    """
    found: list[OpWork] = []
    unknown: dict[str, None] = {}
    for path, node, times in _walk(graph, "", "", 1.0, steps_per_loop, unknown):
        flops = flops_of(node, rows)
        if flops is None:
            unknown[f"{node.op} of unknown shape"] = None
        elif flops:
            found.append(OpWork(path, node.op, node.dtype, times * flops))
        if len(found) > _MOST_OPS:
            unknown["what follows the first 500,000 ops"] = None
            break
    return Counted(tuple(found), tuple(unknown))


def _walk(
    graph: WorkGraph, function: str, prefix: str, times: float, steps: float, unknown: dict[str, None]
) -> Iterator[tuple[str, WorkNode, float]]:
    for node in graph.nodes.get(function, ()):
        path = prefix + node.name
        if not node.calls:
            yield path, node, times
            continue
        turns = 1.0
        inside = [list(_walk(graph, called, f"{path}/", times, steps, unknown)) for called in node.calls]
        if node.kind == "branches":
            # One of them is run, and which one is not known before: the one with most to do is the step's.
            inside = [max(inside, key=len)]
        if not any(inside):
            continue
        if node.kind == "loop":
            if _over_steps(graph, node.calls[0]):
                turns = steps
            elif node.trips is not None:
                turns = float(node.trips)
            else:
                unknown["a loop of unknown length, counted once"] = None
        for work in inside:
            for below, each, often in work:
                yield below, each, often * turns


def _over_steps(graph: WorkGraph, function: str) -> bool:
    """Say whether a loop's body takes batches, in itself or in what it calls."""
    waiting, seen = [function], set()
    while waiting:
        name = waiting.pop()
        if name in graph.steps:
            return True
        seen.add(name)
        waiting += [
            called for node in graph.nodes.get(name, ()) for called in node.calls if called not in seen
        ]
    return False


def flops_of(node: WorkNode, rows: int | None) -> float | None:
    """Give the operations of one execution, None where a shape is not known."""
    inputs = tuple(_known(shape, rows) for shape in node.inputs)
    outputs = tuple(_known(shape, rows) for shape in node.outputs)
    try:
        if node.op in _PRODUCTS:
            return _product(inputs, outputs)
        if node.op in _CONVOLUTIONS:
            return _convolution(node.op, inputs, outputs)
    except (IndexError, TypeError, ZeroDivisionError):  # a shape is not known, or is not what the op has
        return None
    return _einsum(node.equation, inputs) if node.op == "Einsum" else None


def _known(shape: Shape, rows: int | None) -> Shape:
    """Put the batch's rows in for what the graph does not know of a shape."""
    if shape is None or shape.count(-1) == 0:
        return shape
    if rows is None or shape.count(-1) > 1:
        return None
    return tuple(rows if size == -1 else size for size in shape)


Shapes = tuple[Shape, ...]


def _size(shape: Shape) -> float:
    if shape is None:
        raise TypeError
    return float(math.prod(shape))


def _product(inputs: Shapes, outputs: Shapes) -> float:
    """Each number of the result is a sum over the inner dimension, which follows from either operand."""
    out = outputs[0]
    if out is None:
        raise TypeError
    if not _size(out):
        return 0.0
    for operand, outer in ((inputs[0], out[-2]), (inputs[1], out[-1])):
        if operand is not None:
            return 2.0 * _size(out) * _inner(operand, outer)
    raise TypeError


def _inner(operand: tuple[int, ...], outer: int) -> float:
    """Give the inner dimension of an operand, which may be transposed."""
    return _size(operand[-2:]) / outer


def _convolution(op: str, inputs: Shapes, outputs: Shapes) -> float:
    """Each number on the far side is a sum over the kernel's window, and over the channels that it mixes.

    Going back, the far side is given as the third input; for the kernel's gradient the result is the kernel.
    """
    back = "Backprop" in op
    kernel = outputs[0] if "BackpropFilter" in op else inputs[1]
    far = inputs[2] if back else outputs[0]
    if kernel is None:
        raise TypeError
    window = _size(kernel[:2]) if op.startswith("Depthwise") else _size(kernel) / kernel[-1]
    return 2.0 * _size(far) * window


def _einsum(equation: str, inputs: Shapes) -> float | None:
    """Multiply the sizes of all letters; with one operand nothing is multiplied."""
    operands = equation.replace(" ", "").partition("->")[0].split(",")
    if len(operands) != len(inputs) or None in inputs:
        return None
    if len(operands) < 2:
        return 0.0
    sizes: dict[str, int] = {}
    for letters, shape in zip(operands, inputs, strict=True):
        before, dots, after = letters.partition("...")
        extra = len(shape or ()) - len(before) - len(after)
        names = [*before, *(f"...{extra - place}" for place in range(extra if dots else 0)), *after]
        for name, size in zip(names, shape or (), strict=False):
            sizes[name] = max(size, sizes.get(name, 1))
    return 2.0 * math.prod(sizes.values())

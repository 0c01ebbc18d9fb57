"""A graph that works on one element at a time, to measure what its stages cost by themselves."""

from __future__ import annotations

import os
from typing import Any

from tfdiag.compat.tensorflow import tensorflow
from tfdiag.compat.tfgraph.clones import cloned, renamed
from tfdiag.compat.tfgraph.edit import AUTOTUNE, kind, retyped
from tfdiag.compat.tfgraph.wires import (
    Wires,
    argument,
    arguments,
    bare,
    constant,
    constant_node,
    copy_of,
    inner_functions,
)

__all__ = ["serial"]

_ENOUGH = 8
"""Elements in a shuffle's buffer that is measured: more would have to be filled first."""


def serial(wires: Wires) -> Wires:
    """Let every stage work on one element at a time, and none ahead."""
    for name in wires.reached(wires.output):
        what = kind(wires.nodes[name])
        if what == "Prefetch":
            wires = wires.bypassed(name)
        elif what in ("Shuffle", "ShuffleAndRepeat"):
            size = wires.value(name, "buffer_size")
            if size is None or size > _ENOUGH or size < 0:
                wires = wires.with_value(name, "buffer_size", _ENOUGH)
        elif what in _SERIAL:
            node = wires.nodes[name]
            wires = wires.having(retyped(node, _SERIAL[what], arguments(node)))
        elif what == "ParallelInterleave":
            wires = _serial_interleave(wires, name)
        elif what == "MapAndBatch":
            wires = _apart(wires, name)
    return _serial_functions(wires)


_SERIAL = {"ParallelMap": "MapDataset", "ParallelBatch": "BatchDatasetV2", "ParallelFilter": "FilterDataset"}


def _serial_interleave(wires: Wires, name: str) -> Wires:
    node = wires.nodes[name]
    sources = arguments(node)
    if wires.value(name, "cycle_length") in (None, AUTOTUNE):
        cycle = _usual_cycle(wires.value(name, "num_parallel_calls"))
        wires, number = wires.with_constant(cycle, tensorflow().int64)
        sources["cycle_length"] = [number]
    return wires.having(retyped(node, "InterleaveDataset", sources))


def _apart(wires: Wires, name: str) -> Wires:
    """Make a map and a batch of what does both."""
    node = wires.nodes[name]
    sources = arguments(node)
    elements = copy_of(node)
    elements.name = wires.fresh("MapDataset")
    for shape in elements.attr["output_shapes"].list.shape:
        if not shape.unknown_rank:
            del shape.dim[0]
    mapped = retyped(elements, "MapDataset", sources)
    batch = retyped(node, "BatchDatasetV2", {**sources, "input_dataset": [mapped.name]})
    return wires.having(mapped, batch)


def _usual_cycle(calls: int | None) -> int:
    """Give the cycle that TensorFlow takes where it may choose."""
    cores = os.cpu_count() or 1
    # As many as it calls at a time; else each one has about three threads.
    return min(calls, cores) if calls is not None and calls > 0 else -(-cores // 3)


def _serial_functions(wires: Wires) -> Wires:
    """Do the same to the datasets that functions make."""
    working = (*_SERIAL, "ParallelInterleave", "Prefetch")
    if not any(kind(node) in working for inside in wires.functions.values() for node in inside.node_def):
        return wires
    callers = [wires.nodes[name] for name in wires.reached(wires.output)]
    callers = [node for node in callers if any(True for _ in inner_functions(node))]
    roots = [name for node in callers for name in inner_functions(node)]
    wires, names = cloned(wires, roots, _serial_inside)
    return wires.having(*(renamed(copy_of(node), names) for node in callers))


def _serial_inside(function: Any) -> None:
    nodes = {node.name: node for node in function.node_def}
    for node in [node for node in function.node_def if kind(node) == "Prefetch"]:
        _bypass_inside(function, node)
    for node in list(function.node_def):
        what = kind(node)
        if what in _SERIAL:
            node.CopyFrom(retyped(node, _SERIAL[what], arguments(node)))
        elif what == "ParallelInterleave":
            sources = arguments(node)
            if _inside(nodes, node, "cycle_length") in (None, AUTOTUNE):
                cycle = _usual_cycle(_inside(nodes, node, "num_parallel_calls"))
                number = constant_node(f"{node.name}_cycle", cycle, tensorflow().int64)
                function.node_def.append(number)
                sources["cycle_length"] = [f"{number.name}:output:0"]
            node.CopyFrom(retyped(node, "InterleaveDataset", sources))


def _inside(nodes: dict[str, Any], node: Any, role: str) -> Any:
    source = nodes.get(bare(argument(node, role) or ""))
    return None if source is None else constant(source)


def _bypass_inside(function: Any, node: Any) -> None:
    """Let all in a function who read a node read its input instead."""
    below = node.input[0]
    for reader in function.node_def:
        for at, source in enumerate(reader.input):
            if bare(source) == node.name and not source.startswith("^"):
                reader.input[at] = below
    for output, source in function.ret.items():
        if bare(source) == node.name:
            function.ret[output] = below
    # Unless something waits for it, it goes, so that nobody takes it for a part of the function.
    if not any(f"^{node.name}" in reader.input for reader in function.node_def):
        at = next(at for at, other in enumerate(function.node_def) if other.name == node.name)
        del function.node_def[at]

"""Changed copies of the functions in a graph, under names of their own.

TensorFlow knows the caller's functions by their names, so a changed one must have another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tfdiag.compat.tfgraph.wires import Wires, copy_of, inner_functions

__all__ = ["cloned", "renamed", "without_shapes"]


def cloned(wires: Wires, roots: Iterable[str], change: Callable[[Any], None]) -> tuple[Wires, dict[str, str]]:
    """Put in changed copies of functions and of all that they call; gives their new names by the old."""
    names: dict[str, str] = {}
    waiting = list(roots)
    while waiting:
        at = waiting.pop()
        if at in names or at not in wires.functions:
            continue
        names[at] = f"{at}_tfdiag_{len(wires.functions)}"
        waiting.extend(inner for node in wires.functions[at].node_def for inner in inner_functions(node))
    made = dict(wires.functions)
    for old, new in names.items():
        function = copy_of(wires.functions[old])
        function.signature.name = new
        for node in function.node_def:
            renamed(node, names)
        change(function)
        made[new] = function
    return replace(wires, functions=made), names


def renamed(node: Any, names: dict[str, str]) -> Any:
    """Let a node, which is changed, call functions by their new names."""
    for value in node.attr.values():
        for called in [value.func] if value.HasField("func") else value.list.func:
            called.name = names.get(called.name, called.name)
    return node


def without_shapes(wires: Wires, name: str) -> tuple[Wires, str]:
    """Copy a function without the shapes of the elements that it was traced with.

    The runtime believes them: it would fold a shape that batches don't have into a constant.
    """

    def forget(function: Any) -> None:
        for attributes in function.arg_attr.values():
            attributes.attr.pop("_output_shapes", None)
        for node in function.node_def:
            node.attr.pop("_output_shapes", None)

    wires, names = cloned(wires, [name], forget)
    return wires, names.get(name, name)

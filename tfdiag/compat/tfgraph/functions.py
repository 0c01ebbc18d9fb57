"""What the functions in a graph do: whether they call Python, draw random numbers, read files."""

from __future__ import annotations

import re
from typing import Any

from tfdiag.compat.tfgraph.python import name_of, where_is
from tfdiag.compat.tfgraph.wires import CALLS, Wires, arguments, inner_functions, op_definition, plain
from tfdiag.model.pipeline import Function

__all__ = ["READERS", "function_of", "is_generator", "written_name"]

READERS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
"""Operations that read the records of files."""

_PYTHON = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
_RANDOM = (
    "Random",
    "Stateful",
    "RngReadAndSkip",
    "SampleDistortedBoundingBox",
    "TruncatedNormal",
    "ParameterizedTruncatedNormal",
    "Multinomial",
)
_TRIVIAL = ("NoOp", "Const", "Identity")
_TRANSFORMATIONS = (
    "flat_map|map|interleave|parallel_interleave|filter|scan|take_while|group_by_window|from_generator"
)
_CREATING = ("Dataset", "Assert")
"""Stateful by name only: the runtime does not mind these when it makes a map parallel."""


def written_name(function: str) -> str:
    """Give the caller's name of a function in a graph: `__inference_Dataset_map_decode_12` → `decode`."""
    name = re.sub(r"(_tfdiag_\d+)+$", "", function)
    name = re.sub(r"_\d+$", "", re.sub(r"^__inference_", "", name))
    name = name.removeprefix("tf_data_experimental_")
    name = re.sub(rf"^(Dataset_)?({_TRANSFORMATIONS})_", "", name).rsplit(".", maxsplit=1)[-1]
    return "<lambda>" if name in ("lambda", "<lambda>") else name


def reached(wires: Wires, name: str) -> list[Any]:
    """List the nodes of a function and of all that it calls."""
    seen: set[str] = set()
    waiting = [name]
    nodes: list[Any] = []
    while waiting:
        at = waiting.pop()
        if at in seen or at not in wires.functions:
            continue
        seen.add(at)
        for node in wires.functions[at].node_def:
            nodes.append(node)
            waiting.extend(inner_functions(node))
    return nodes


def function_of(wires: Wires, node: Any, callables: dict[str, Any]) -> Function | None:
    """Describe the function of a stage; None where it has none."""
    names = list(inner_functions(node))
    if not names:
        return None
    first = names[0]
    for role in ("f", "predicate", "key_func"):
        if role in node.attr and node.attr[role].HasField("func"):
            first = node.attr[role].func.name
    original = re.sub(r"(_tfdiag_\d+)+$", "", first)
    written = callables.get(original)
    inside = [found for name in names for found in reached(wires, name)]
    ops = [found.op for found in inside]
    python = any(op in _PYTHON for op in ops)
    random = any(op.startswith(_RANDOM) and not _is_call(op) for op in ops)
    # Keras' seed generators keep their seeds in variables, and move them on.
    moved = any(op.startswith("Assign") and "Variable" in op for op in ops)
    random = random or (moved and any(op.startswith("StatelessRandom") for op in ops))
    return Function(
        name=name_of(written) if written is not None else written_name(first),
        where=where_is(written) if written is not None else "",
        python=python,
        random=random,
        stateful=python or any(_stateful(op) for op in ops),
        reads_files=any(op == "ReadFile" or plain(op) in READERS for op in ops),
        datasets=tuple(dict.fromkeys(op for op in (*ops, *_captured(wires, node)) if _makes_dataset(op))),
        ops=sum(op not in _TRIVIAL for op in ops),
    )


def is_generator(wires: Wires, node: Any) -> bool:
    """Say whether a flat_map is what `from_generator` is made of."""
    called = node.attr["f"].func.name if "f" in node.attr else ""
    function = wires.functions.get(called)
    return function is not None and any(inner.op == "GeneratorDataset" for inner in function.node_def)


def _captured(wires: Wires, node: Any) -> list[str]:
    """List operations of the datasets that a function takes from outside."""
    return [
        wires.nodes[name].op
        for source in arguments(node).get("other_arguments", ())
        for name in wires.reached(source.split(":")[0])
    ]


def _makes_dataset(op: str) -> bool:
    return plain(op).endswith("Dataset")


def _is_call(op: str) -> bool:
    return op in CALLS


def _stateful(op: str) -> bool:
    if _is_call(op) or any(word in op for word in _CREATING):
        return False
    definition = op_definition(op)
    return definition is not None and bool(definition.is_stateful)

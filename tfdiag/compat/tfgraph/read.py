"""A graph's stages as their author would name them."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

from tfdiag.compat.tensorflow import tensorflow
from tfdiag.compat.tfgraph.build import cardinality
from tfdiag.compat.tfgraph.edit import kind
from tfdiag.compat.tfgraph.functions import READERS, function_of, is_generator, written_name
from tfdiag.compat.tfgraph.wires import CannotEdit, Wires, argument, arguments, constant, plain, texts
from tfdiag.model.pipeline import Function, Node

__all__ = ["hidden_inputs", "read_nodes", "stages"]

_WORDS = {
    "ParallelMap": "map",
    "ParallelBatch": "batch",
    "ParallelInterleave": "interleave",
    "ParallelFilter": "filter",
    "TensorSlice": "from_tensor_slices",
    "Tensor": "from_tensors",
    "SparseTensorSlice": "from_sparse_tensor_slices",
    "MapAndBatch": "map_and_batch",
    "ShuffleAndRepeat": "shuffle_and_repeat",
    "DirectedInterleave": "choose_from_datasets",
    "DataService": "distribute",
    "CSV": "CsvDataset",
}
_SIZED = {
    "batch_size": ("Batch", "ParallelBatch", "PaddedBatch", "MapAndBatch"),
    "buffer_size": ("Prefetch", "Shuffle", "ShuffleAndRepeat"),
    "count": ("Take", "Skip", "Repeat"),
    "size": ("Window",),
}
_PASSING = ("Zip", "Shuffle", "Repeat", "Prefetch", "Cache", "Shard", "ShuffleAndRepeat")
"""Stages that hand on names of files, all of them."""
_LOOKED_AT = 200
"""So many files are asked for their size at most; more are estimated from these."""


def stages(wires: Wires) -> list[str]:
    """List the nodes that the caller wrote, source first."""
    found: dict[str, None] = {}
    waiting = [(wires.output, False)]
    while waiting:
        name, done = waiting.pop()
        if done:
            found[name] = None
        elif name not in found:
            waiting.append((name, True))
            waiting.extend((source, False) for source in reversed(hidden_inputs(wires, name)[0]))
    return list(found)


def hidden_inputs(wires: Wires, name: str) -> tuple[list[str], bool]:
    """Give the datasets that a stage reads as its author sees it, and whether others are hidden."""
    node = wires.nodes[name]
    sources = wires.datasets(name)
    if kind(node) == "FlatMap" and is_generator(wires, node):
        return [], True
    if _reader(wires, name) and sources and kind(wires.nodes[sources[0]]) == "TensorSlice":
        return [], True
    if kind(node) == "DirectedInterleave" and _sampled(wires, name):
        return [source.split(":")[0] for source in arguments(node)["data_input_datasets"]], True
    if kind(node) in ("Unbatch", "Rebatch") and sources and _normalizes(wires, sources[0]):
        return wires.datasets(sources[0]), True
    return sources, False


def _normalizes(wires: Wires, name: str) -> bool:
    """Say whether a map only packs elements for the stage above it, by TensorFlow's own doing."""
    node = wires.nodes[name]
    function = function_of(wires, node, {}) if kind(node) == "Map" else None
    return function is not None and function.name == "normalize" and not function.ops


def _sampled(wires: Wires, name: str) -> bool:
    """Say whether a random number chooses the next dataset."""
    selector = argument(wires.nodes[name], "selector_input_dataset")
    return selector is not None and any(
        kind(wires.nodes[part]) == "Random" for part in wires.reached(selector.split(":")[0])
    )


def _reader(wires: Wires, name: str) -> str:
    """Give the operation that reads the files, where a stage is what a dataset of files is made of."""
    node = wires.nodes[name]
    if kind(node) not in ("FlatMap", "Interleave", "ParallelInterleave") or "f" not in node.attr:
        return ""
    called = node.attr["f"].func.name
    function = wires.functions.get(called)
    if function is None or written_name(called) != "read_one_file":
        return ""
    return next((plain(inner.op) for inner in function.node_def if plain(inner.op) in READERS), "")


def read_nodes(
    wires: Wires, ids: dict[str, int], callables: dict[str, Any], cache_files: dict[str, str]
) -> tuple[Node, ...]:
    """Describe every stage; caches are named by the caller's own files."""
    return tuple(_read(wires, name, ids, callables, cache_files.get(name, "")) for name in stages(wires))


def _read(wires: Wires, name: str, ids: dict[str, int], callables: dict[str, Any], cache_file: str) -> Node:
    node = wires.nodes[name]
    what = kind(node)
    reader = _reader(wires, name)
    opaque = what.startswith("DataService")
    function = None if reader or opaque else function_of(wires, node, callables)
    inputs, _ = hidden_inputs(wires, name)
    generator = what == "FlatMap" and is_generator(wires, node)
    if generator and function is not None and node.attr["f"].func.name not in callables:
        function = replace(function, name="…")
    files = _files(wires, name) if reader or (function is not None and function.reads_files) else None
    role = next((role for role, kinds in _SIZED.items() if what in kinds), "")
    drop = wires.value(name, "drop_remainder")
    described = Node(
        id=ids[name],
        op="GeneratorDataset" if generator else reader or plain(node.op),
        label="",
        inputs=tuple(ids[source] for source in inputs),
        function=function,
        size=wires.value(name, role) if role else None,
        parallelism=wires.value(name, "num_parallel_calls"),
        cycle=wires.value(name, "cycle_length"),
        deterministic=_deterministic(node),
        drop_remainder=bool(drop),
        files=files,
        compression=_compression(wires, node),
        cache_file=cache_file,
        random=_random(wires, name),
        cardinality=cardinality(replace(wires, output=name)),
        element_bytes=_element_bytes(node),
        opaque="the tf.data service runs it elsewhere" if opaque else "",
    )
    return replace(described, label=_label(wires, name, described, reader))


def _deterministic(node: Any) -> str:
    if "deterministic" in node.attr:
        return _text(node.attr["deterministic"].s)
    return ""


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _random(wires: Wires, name: str) -> bool:
    node = wires.nodes[name]
    what = kind(node)
    if what in ("Shuffle", "ShuffleAndRepeat"):
        again = "reshuffle_each_iteration" not in node.attr or node.attr["reshuffle_each_iteration"].b
        return bool(again) or not (wires.value(name, "seed") or wires.value(name, "seed2"))
    if what == "Random":
        return True
    return what == "DirectedInterleave" and _sampled(wires, name)


def _element_bytes(node: Any) -> int | None:
    tf = tensorflow()
    total = 0
    try:
        types, shapes = Wires.structure(Wires({"": node}, {}, "", None, None), "")
    except CannotEdit:
        return None
    for number, shape in zip(types, shapes, strict=False):
        dtype = tf.as_dtype(number)
        if shape.unknown_rank or any(dim.size < 0 for dim in shape.dim) or not dtype.is_numpy_compatible:
            return None
        if dtype == tf.string or dtype.size is None:
            return None
        total += math.prod(dim.size for dim in shape.dim) * int(dtype.size)
    return total


def _compression(wires: Wires, node: Any) -> str:
    """Find the compression that a reader is told, in the stage itself or as a constant in its function."""
    if plain(node.op) in READERS:
        source = argument(node, "compression_type")
        return _const_text(wires.node(source)) if source else ""
    waiting = [node.attr["f"].func.name] if "f" in node.attr else []
    seen: set[str] = set()
    while waiting:
        called = waiting.pop()
        function = wires.functions.get(called)
        if function is None or called in seen:
            continue
        seen.add(called)
        inner = {part.name: part for part in function.node_def}
        for part in function.node_def:
            if plain(part.op) in READERS:
                source = (argument(part, "compression_type") or "").split(":")[0]
                if source in inner and (found := _const_text(inner[source])):
                    return found
                if source not in inner and (found := _captured_text(wires, node, function, source)):
                    return found
            waiting.extend(value.func.name for value in part.attr.values() if value.HasField("func"))
    return ""


def _captured_text(wires: Wires, node: Any, function: Any, name: str) -> str:
    """Follow an argument of a stage's function that is captured from outside to its constant."""
    captured = arguments(node).get("other_arguments", [])
    names = [arg.name for arg in function.signature.input_arg]
    if name not in names or not captured:
        return ""
    at = names.index(name) - (len(names) - len(captured))
    return _const_text(wires.node(captured[at])) if at >= 0 else ""


def _const_text(node: Any) -> str:
    return _text(constant(node))


def _file_names(wires: Wires, name: str, top: bool = True) -> list[bytes] | None:
    """Find the names of the files that a stage is given, where they are constants."""
    node = wires.nodes[name]
    reads = plain(node.op) in READERS
    if reads or (kind(node) == "TensorSlice" and not top):
        for source in node.input[:1] if reads else node.input:
            const = wires.node(source)
            string = tensorflow().string.as_datatype_enum
            if const.op == "Const" and const.attr["value"].tensor.dtype == string:
                return texts(const)
        return None
    if top or kind(node) in _PASSING:
        for below in wires.datasets(name):
            if found := _file_names(wires, below, top=False):
                return found
    return None


def _files(wires: Wires, name: str) -> tuple[int, int] | None:
    names = _file_names(wires, name)
    if not names:
        return None
    some = names[:: max(1, len(names) // _LOOKED_AT)]
    total = 0
    try:
        for path in some:
            total += os.stat(path).st_size
    except (OSError, ValueError):  # gone, or in a place that only TensorFlow can read
        return None
    return len(names), round(total * len(names) / len(some))


def _label(wires: Wires, name: str, node: Node, reader: str) -> str:
    what = kind(wires.nodes[name])
    if node.op == "GeneratorDataset":
        return f"from_generator({node.function.name if node.function else '…'})"
    if reader or node.op in READERS:
        return f"{node.op}({_counted(wires, name)})"
    if what == "TensorSlice" and _is_files(wires, name):
        return f"list_files({_counted(wires, name)})"
    if what == "DirectedInterleave":
        word = "sample_from_datasets" if node.random else "choose_from_datasets"
        count = len(arguments(wires.nodes[name])["data_input_datasets"])
        return f"{word}({count} datasets)"
    word = _WORDS.get(what) or _snake(what)
    return f"{word}({', '.join(_said(what, word, node))})"


def _said(what: str, word: str, node: Node) -> list[str]:
    """List the arguments of a stage that are worth a word."""
    if what in ("TensorSlice", "Tensor", "Range", "SparseTensorSlice"):
        return ["…"]
    said = []
    if node.function is not None:
        said.append(_function_word(node.function))
    if node.size is not None:
        unsaid = {"repeat": "", "prefetch": "tf.data.AUTOTUNE"}
        said.append(unsaid.get(word, str(node.size)) if node.size == -1 else str(node.size))
    if node.cache_file:
        said.append(repr(node.cache_file))
    if node.parallelism is not None:
        number = "tf.data.AUTOTUNE" if node.parallelism == -1 else str(node.parallelism)
        said.append(f"num_parallel_calls={number}")
    if node.drop_remainder and what != "Window":
        said.append("drop_remainder=True")
    if what in ("Zip", "Concatenate"):
        said.append(f"{len(node.inputs)} datasets")
    return [text for text in said if text]


def _function_word(function: Function) -> str:
    return function.name or "…"


def _snake(what: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in what).lstrip("_")


def _is_files(wires: Wires, name: str) -> bool:
    node = wires.nodes[name]
    return "is_files" in node.attr and bool(node.attr["is_files"].b)


def _counted(wires: Wires, name: str) -> str:
    """Say how many files there are, from the constant that names them."""
    node = wires.nodes[name]
    at = name
    if kind(node) != "TensorSlice" and plain(node.op) not in READERS:
        below = wires.datasets(name)
        if not below or kind(wires.nodes[below[0]]) != "TensorSlice":
            return "…"
        at = below[0]
    const = wires.node(wires.nodes[at].input[0])
    if const.op != "Const":
        return "…"
    count = math.prod(dim.size for dim in const.attr["value"].tensor.tensor_shape.dim)
    return f"{count} file{'' if count == 1 else 's'}"

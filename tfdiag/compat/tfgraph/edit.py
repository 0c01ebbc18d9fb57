"""Edits of a graph: each takes wires and gives others, or says why it can't."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tfdiag.compat.tensorflow import tensorflow
from tfdiag.compat.tfgraph.clones import without_shapes
from tfdiag.compat.tfgraph.wires import (
    CannotEdit,
    Wires,
    argument,
    arguments,
    copy_of,
    op_definition,
    plain,
    structure,
)

__all__ = [
    "AUTOTUNE",
    "append",
    "cache_after",
    "full_caches",
    "interleave",
    "kind",
    "parallel",
    "remove",
    "retyped",
    "set_size",
    "swap",
    "tune",
]

AUTOTUNE = -1
_KEEPING = ("Shuffle", "Take", "Skip", "Shard", "Prefetch", "Repeat", "Cache", "ShuffleAndRepeat")
"""Stages that hand on the elements that they get, in whatever order and number."""
_COUNTING = ("Take", "Skip", "Shard", "Filter")
"""Stages that mean another thing where elements are others."""
_MAPS = ("Map", "ParallelMap")
_BATCHES = ("Batch", "ParallelBatch")
_SIZES = ("batch_size", "buffer_size", "size", "count")


def kind(node: Any) -> str:
    """Give the name of a dataset operation without what all of them have in it."""
    return plain(node.op).removesuffix("Dataset")


def retyped(node: Any, op: str, sources: dict[str, list[str]], **changed: Any) -> Any:
    """Make another operation of a node: its attributes are kept as far as the other one has them."""
    definition = op_definition(op)
    if definition is None:
        raise CannotEdit(f"this TensorFlow has no {op}")
    made = tensorflow().compat.v1.NodeDef(name=node.name, op=op, device=node.device)
    for arg in definition.input_arg:
        made.input.extend(sources[arg.name])
    known = {attr.name: attr for attr in definition.attr}
    for name, value in node.attr.items():
        if name in known or name.startswith("_"):
            made.attr[name].CopyFrom(value)
    for name, value in changed.items():
        if isinstance(value, bytes):
            made.attr[name].s = value
        else:
            made.attr[name].CopyFrom(value)
    return made


def _order(deterministic: bool | None) -> dict[str, Any]:
    return {} if deterministic is None else {"deterministic": b"true" if deterministic else b"false"}


def parallel(wires: Wires, name: str, calls: int, deterministic: bool | None) -> Wires:
    """Call the function of a stage for several elements at a time."""
    node = wires.nodes[name]
    what = kind(node)
    if what in ("FlatMap", "Interleave"):
        return interleave(wires, name, None, calls, deterministic)
    if what == "Map":
        wires, number = wires.with_constant(calls, tensorflow().int64)
        sources = {**arguments(node), "num_parallel_calls": [number]}
        return wires.having(retyped(node, "ParallelMapDatasetV2", sources, **_order(deterministic)))
    if argument(node, "num_parallel_calls") is None:
        raise CannotEdit(f"{_name(node)} has no function to call for several elements at a time")
    wires = wires.with_value(name, "num_parallel_calls", calls)
    if deterministic is not None:
        changed = copy_of(wires.nodes[name])
        if "deterministic" not in changed.attr:
            raise CannotEdit(f"{_name(node)} has no say in the order of its elements")
        changed.attr["deterministic"].s = _order(deterministic)["deterministic"]
        wires = wires.having(changed)
    return wires


def interleave(wires: Wires, name: str, cycle: int | None, calls: int, deterministic: bool | None) -> Wires:
    """Read several inner datasets at a time; a cycle of None keeps the number that the caller wrote."""
    tf = tensorflow()
    node = wires.nodes[name]
    if kind(node) not in ("FlatMap", "Interleave", "ParallelInterleave"):
        raise CannotEdit(f"{_name(node)} makes no datasets that could be read several at a time")
    sources = arguments(node)
    numbers = {"num_parallel_calls": calls, "buffer_output_elements": AUTOTUNE}
    numbers["prefetch_input_elements"] = AUTOTUNE
    if cycle is not None or not sources.get("cycle_length"):
        numbers["cycle_length"] = AUTOTUNE if cycle is None else cycle
    if not sources.get("block_length"):
        numbers["block_length"] = 1
    for role, value in numbers.items():
        wires, number = wires.with_constant(value, tf.int64)
        sources[role] = [number]
    return wires.having(retyped(node, "ParallelInterleaveDatasetV4", sources, **_order(deterministic)))


def append(wires: Wires, name: str, op: str, **numbers: int | bool) -> tuple[Wires, str]:
    """Put a stage above another, with these numbers as arguments; gives its name too."""
    tf = tensorflow()
    sources = {"input_dataset": [name]}
    for role, value in numbers.items():
        wires, number = wires.with_constant(value, tf.bool if isinstance(value, bool) else tf.int64)
        sources[role] = [number]
    like = tf.compat.v1.NodeDef(name=wires.fresh(op))
    types, shapes = wires.structure(name)
    if op == "WindowDataset":  # each component becomes a dataset
        types = (tf.variant.as_datatype_enum,) * len(types)
        shapes = (tf.TensorShape(()).as_proto(),) * len(types)
    like.attr["output_types"].list.type.extend(types)
    like.attr["output_shapes"].list.shape.extend(shapes)
    made = retyped(like, op, sources)
    return wires.above(name, made), made.name


def cache_after(wires: Wires, name: str) -> Wires:
    """Keep what a stage makes in memory."""
    tf = tensorflow()
    wires, filename = wires.with_constant("", tf.string)
    memory = tf.compat.v1.NodeDef(name=wires.fresh("DummyMemoryCache"), op="DummyMemoryCache")
    wires = wires.having(memory)
    like = tf.compat.v1.NodeDef(name=wires.fresh("CacheDataset"))
    types, shapes = wires.structure(name)
    like.attr["output_types"].list.type.extend(types)
    like.attr["output_shapes"].list.shape.extend(shapes)
    sources = {"input_dataset": [name], "filename": [filename], "cache": [memory.name]}
    return wires.above(name, retyped(like, "CacheDatasetV2", sources))


def full_caches(wires: Wires, elements: int, but: Collection[str] = ()) -> Wires:
    """Let every cache hold so many elements at most and give them again and again."""
    for name in wires.reached(wires.output):
        if kind(wires.nodes[name]) != "Cache" or name in but:
            continue
        below = wires.datasets(name)[0]
        wires, taken = append(wires, below, "TakeDataset", count=elements)
        # Others may read the same dataset, which goes on as it was for them.
        readers = [other for other in wires.nodes if other != name and taken in _bare_inputs(wires, other)]
        wires = wires.having(*(_reading(wires.nodes[other], taken, below) for other in readers))
        wires, _ = append(wires, name, "RepeatDataset", count=-1)
    return wires


def _bare_inputs(wires: Wires, name: str) -> list[str]:
    return [source.split(":")[0] for source in wires.nodes[name].input]


def _reading(node: Any, old: str, new: str) -> Any:
    changed = copy_of(node)
    for at, source in enumerate(node.input):
        if source.split(":")[0] == old:
            changed.input[at] = new
    return changed


def remove(wires: Wires, name: str) -> Wires:
    """Take a stage out."""
    node = wires.nodes[name]
    below = _only_input(wires, name)
    if wires.structure(below) != wires.structure(name):
        raise CannotEdit(f"without {_name(node)} the elements would be others")
    return wires.rewired(name, below)


def tune(wires: Wires, name: str) -> Wires:
    """Let the runtime choose how many calls a stage makes at a time."""
    node = wires.nodes[name]
    if kind(node) == "ParallelInterleave" and argument(node, "num_parallel_calls") is None:
        return interleave(wires, name, None, AUTOTUNE, None)
    if argument(node, "num_parallel_calls") is None:
        raise CannotEdit(f"{_name(node)} has no number of parallel calls")
    return wires.with_value(name, "num_parallel_calls", AUTOTUNE)


def set_size(wires: Wires, name: str, size: int) -> Wires:
    """Give a stage another batch size, buffer size or count."""
    node = wires.nodes[name]
    roles = arguments(node)
    role = next((role for role in _SIZES if role in roles), None)
    if role is None or len(roles[role]) != 1:
        raise CannotEdit(f"{_name(node)} has no size")
    changed = wires.with_value(name, role, size)
    if role != "batch_size":
        return changed
    old = wires.structure(name)
    new_node = copy_of(changed.nodes[name])
    for shape in new_node.attr["output_shapes"].list.shape:
        if not shape.unknown_rank and shape.dim[0].size >= 0:
            shape.dim[0].size = size
    changed = changed.having(new_node)
    return changed if structure(new_node) == old else _reshaped(changed, name)


def _reshaped(wires: Wires, name: str) -> Wires:
    """Hand a stage's new shapes on to those above it."""
    for reader in wires.reached(wires.output):
        if name not in _bare_inputs(wires, reader):
            continue
        node = wires.nodes[reader]
        if kind(node) not in _KEEPING:
            raise CannotEdit(f"{_name(node)} was traced for batches of a fixed size")
        wires = _reshaped(wires.having(_structured(node, wires.structure(name))), reader)
    return wires


def swap(wires: Wires, name: str) -> Wires:
    """Move a stage below its input."""
    upper = wires.nodes[name]
    below = _only_input(wires, name)
    lower = wires.nodes[below]
    base = _only_input(wires, below)
    if sum(below in _bare_inputs(wires, other) for other in wires.reached(wires.output)) > 1:
        raise CannotEdit(f"{_name(lower)} is read by other stages too")
    up, low = kind(upper), kind(lower)
    wanted = wires.structure(base)
    if up in _BATCHES and low in _MAPS:
        wires, upper, lower = _batch_below_map(wires, upper, lower, wanted)
    elif up in _COUNTING and low not in (*_MAPS, *_KEEPING):
        raise CannotEdit(f"{_name(upper)} counts or chooses elements, of which {_name(lower)} makes others")
    elif up == "Filter" and wires.structure(below) != wanted:
        raise CannotEdit(f"the predicate of {_name(upper)} takes what {_name(lower)} makes of the elements")
    elif up in (*_KEEPING, "Filter"):
        upper, lower = _structured(upper, wanted), copy_of(lower)
    elif up in _MAPS and low in (*_KEEPING, "Filter"):
        if low == "Filter" and structure(upper) != wanted:
            raise CannotEdit(f"the predicate of {_name(lower)} takes the elements as they are now")
        upper, lower = copy_of(upper), _structured(lower, structure(upper))
    else:
        raise CannotEdit(f"{_name(upper)} can't go below {_name(lower)}: it takes what that one makes")
    upper.input[0], lower.input[0] = base, upper.name
    # Who read the upper one reads the lower one now.
    return wires.rewired(name, below, but=(below,)).having(upper, lower)


def _batch_below_map(wires: Wires, upper: Any, lower: Any, wanted: Any) -> tuple[Wires, Any, Any]:
    """Give batch and map for the order in which the function gets batches."""
    variant = tensorflow().variant.as_datatype_enum
    if variant in wanted[0] or variant in structure(lower)[0]:
        raise CannotEdit(
            "elements that are ragged, sparse or datasets are packed, and batches of them differently"
        )
    made = structure(upper)
    first = next((shape.dim[0].size for shape in made[1] if not shape.unknown_rank), -1)
    shapes = []
    for shape in wanted[1]:
        batched = copy_of(shape)
        if not shape.unknown_rank:
            del batched.dim[:]
            batched.dim.add(size=first)
            batched.dim.extend(shape.dim)
        shapes.append(batched)
    wires, function = without_shapes(wires, lower.attr["f"].func.name)
    lower = _structured(lower, made)
    lower.attr["f"].func.name = function
    return wires, _structured(upper, (wanted[0], tuple(shapes))), lower


def _structured(node: Any, wanted: Any) -> Any:
    """Copy a node for elements of other types and shapes."""
    changed = copy_of(node)
    types = "output_types" if "output_types" in node.attr else "Toutput_types"
    del changed.attr[types].list.type[:]
    changed.attr[types].list.type.extend(wanted[0])
    del changed.attr["output_shapes"].list.shape[:]
    changed.attr["output_shapes"].list.shape.extend(wanted[1])
    return changed


def _only_input(wires: Wires, name: str) -> str:
    sources = wires.datasets(name)
    if len(sources) != 1:
        number = "no input" if not sources else f"{len(sources)} inputs"
        raise CannotEdit(f"{_name(wires.nodes[name])} has {number}")
    return sources[0]


_WORDS = {"ParallelMap": "map", "ParallelBatch": "batch", "ParallelInterleave": "interleave"}


def _name(node: Any) -> str:
    """Name a stage in a message."""
    what = kind(node)
    return _WORDS.get(what, "".join("_" + c.lower() if c.isupper() else c for c in what).lstrip("_"))

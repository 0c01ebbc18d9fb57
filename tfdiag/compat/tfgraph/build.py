"""From a dataset to its graph and back, with state of its own."""

from __future__ import annotations

import copy
import glob
import importlib
import os
from typing import Any

import numpy as np

from tfdiag.compat.tensorflow import tensorflow
from tfdiag.compat.tfgraph.wires import CannotEdit, Wires, constant
from tfdiag.model.pipeline import Options

__all__ = [
    "GraphUnavailable",
    "cardinality",
    "changed_options",
    "dataset_of",
    "options_of",
    "own_state",
    "read_graph",
    "structure_of",
]

_SEEDED = ("ShuffleDatasetV3", "ShuffleAndRepeatDatasetV2", "RandomDatasetV2")
_CACHED = ("CacheDatasetV2",)
_SNAPSHOTS = ("SnapshotDataset", "SnapshotDatasetV2")


class GraphUnavailable(Exception):
    """Raised when a dataset can't be written as a graph; the message says why."""


def read_graph(dataset: Any, cache_folder: str) -> tuple[Wires, dict[str, str]]:
    """Write a dataset as a graph that shares no state with it; also the caller's own files by cache."""
    tf = tensorflow()
    try:
        serialized = tf.raw_ops.DatasetToGraphV2(
            input_dataset=dataset._variant_tensor,
            external_state_policy=0,
            strip_device_assignment=False,
        )
        graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
        files = _cache_files(graph)
        own_state(graph, cache_folder)
        wires = Wires.of(graph)
        if any(node.op == "Const" and _is_variant(node) for node in graph.node):
            # Ragged and sparse elements come back from such constants, other objects don't.
            _variant(wires)
    except StopIteration:
        raise GraphUnavailable("its graph has no output") from None
    except Exception as error:
        if isinstance(
            error, (AttributeError, ImportError, OSError, ValueError, TypeError, tf.errors.OpError)
        ) or (type(error).__module__.startswith("google.protobuf")):
            raise GraphUnavailable(first_line(error)) from error
        raise
    return wires, files


def _is_variant(node: Any) -> bool:
    return bool(node.attr["value"].tensor.dtype == tensorflow().variant.as_datatype_enum)


def first_line(error: Exception) -> str:
    """Say in one line what went wrong."""
    text = getattr(error, "message", None) or str(error)
    return (str(text).splitlines() or [type(error).__name__])[0]


def dataset_of(wires: Wires, spec: Any | None, options: Any) -> Any:
    """Make a dataset of a graph; without a spec its elements are flat."""
    tf = tensorflow()
    try:
        variant = _variant(wires)
        wrapper = importlib.import_module("tensorflow.python.data.ops.dataset_ops")._VariantDataset
        return wrapper(variant, _flat_spec(wires) if spec is None else spec).with_options(options)
    except (ImportError, AttributeError, ValueError, TypeError, tf.errors.OpError) as error:
        raise CannotEdit(first_line(error)) from error


def _variant(wires: Wires) -> Any:
    # As an object: text that NumPy converts by itself is copied several times, and this may be all the data.
    graph = tensorflow().constant(np.array(wires.serialized(), dtype=object))
    return tensorflow().raw_ops.DatasetFromGraph(graph_def=graph)


def structure_of(wires: Wires) -> Any:
    """Give types and shapes of what a graph hands out; None where they are not known."""
    try:
        return wires.structure(wires.output)
    except CannotEdit:
        return None


def packs(wires: Wires) -> bool:
    """Say whether elements are packed in variants, whose structure a graph does not tell."""
    known = structure_of(wires)
    return known is None or tensorflow().variant.as_datatype_enum in known[0]


def _flat_spec(wires: Wires) -> Any:
    tf = tensorflow()
    types, shapes = wires.structure(wires.output)
    flat = [tf.TensorSpec(tf.TensorShape(s), tf.as_dtype(t)) for t, s in zip(types, shapes, strict=True)]
    return flat[0] if len(flat) == 1 else tuple(flat)


def shapeless_spec(wires: Wires) -> Any:
    """Give the spec of flat elements of any shape."""
    tf = tensorflow()
    types, _ = wires.structure(wires.output)
    flat = [tf.TensorSpec(None, tf.as_dtype(each)) for each in types]
    return flat[0] if len(flat) == 1 else tuple(flat)


def cardinality(wires: Wires) -> int | None:
    """Ask TensorFlow for the number of elements: -1 for infinite, None for unknown."""
    tf = tensorflow()
    changed = []
    for name in wires.reached(wires.output):
        node = wires.nodes[name]
        if node.op in ("TensorSliceDataset", "TensorDataset"):
            data = wires.node(node.input[0])
            if data.op == "Const":
                dims = data.attr["value"].tensor.tensor_shape.dim
                changed.append((name, dims[0].size if node.op == "TensorSliceDataset" else 1))
    for name, count in changed:
        wires = _counting(wires, name, count)
    try:
        variant = _variant(wires)
        count = int(tf.raw_ops.DatasetCardinality(input_dataset=variant))
    except (ValueError, tf.errors.OpError):
        return None
    if count == tf.data.INFINITE_CARDINALITY:
        return -1
    return None if count < 0 else count


def _counting(wires: Wires, name: str, count: int) -> Wires:
    """Let a source only count, which is all that cardinality asks of it, without the caller's data."""
    tf = tensorflow()
    sources = []
    for value in (0, count, 1):
        wires, source = wires.with_constant(value, tf.int64)
        sources.append(source)
    node = tf.compat.v1.NodeDef(name=name, op="RangeDataset", input=sources)
    node.attr["output_types"].list.type.append(tf.int64.as_datatype_enum)
    node.attr["output_shapes"].list.shape.add()
    return wires.having(node)


def options_of(options: Any) -> Options:
    """Read the options that decide how a dataset runs."""
    optimization = options.experimental_optimization
    return Options(
        autotune=options.autotune.enabled is not False,
        default_optimizations=optimization.apply_default_optimizations is not False,
        inject_prefetch=optimization.inject_prefetch is not False,
        deterministic=options.deterministic is not False,
        threads=int(options.threading.private_threadpool_size or 0),
    )


def changed_options(options: Any, wanted: Options) -> Any:
    """Give a dataset's options with those changed that are wanted otherwise."""
    now = options_of(options)
    if wanted == now:
        return options
    # Merging options would do, but warns the caller of each one that changes.
    changed = copy.deepcopy(options)
    try:
        changed._set_mutable(True)
    except AttributeError:
        raise CannotEdit("this TensorFlow's options can't be changed") from None
    if wanted.autotune != now.autotune:
        changed.autotune.enabled = wanted.autotune
    if wanted.default_optimizations != now.default_optimizations:
        changed.experimental_optimization.apply_default_optimizations = wanted.default_optimizations
    if wanted.inject_prefetch != now.inject_prefetch:
        changed.experimental_optimization.inject_prefetch = wanted.inject_prefetch
    if wanted.deterministic != now.deterministic:
        changed.deterministic = wanted.deterministic
    if wanted.threads != now.threads:
        changed.threading.private_threadpool_size = wanted.threads
    return changed


def _cache_files(graph: Any) -> dict[str, str]:
    nodes = {node.name: node for node in graph.node}
    caches = [node for node in graph.node if node.op in (*_CACHED, "CacheDataset")]
    named = {node.name: constant(nodes[node.input[1].split(":")[0]]) for node in caches}
    return {name: value.decode(errors="replace") for name, value in named.items() if value}


def own_state(graph: Any, cache_folder: str) -> None:
    """Give each shuffle its own seeds and each cache its own memory or files."""
    caches = 0
    for scope in [graph.node, *(function.node_def for function in graph.library.function)]:
        nodes = {node.name: node for node in scope}
        for node in scope:
            if node.op in _SEEDED:
                _replace_resource(nodes, node, "DummySeedGenerator")
            elif node.op in _CACHED:
                _replace_resource(nodes, node, "DummyMemoryCache")
            if node.op in (*_CACHED, "CacheDataset"):
                _redirect_cache(nodes, node, cache_folder, f"cache-{caches}")
                caches += 1
            elif node.op in _SNAPSHOTS:
                _redirect_snapshot(nodes, node, cache_folder)


def _replace_resource(nodes: dict[str, Any], node: Any, op: str) -> None:
    handle = nodes.get(node.input[-1].split(":")[0])
    if handle is not None and handle.op == "Const":
        handle.op = op
        for attribute in list(handle.attr):
            del handle.attr[attribute]


def _redirect_cache(nodes: dict[str, Any], node: Any, folder: str, own: str) -> None:
    """Send a file cache to a private folder (to memory without one), unless it is complete and only read."""
    name = nodes.get(node.input[1].split(":")[0])
    if name is None or name.op != "Const":
        raise ValueError("it has a file cache whose name is computed")
    values = name.attr["value"].tensor.string_val
    if values and values[0] and not os.path.exists(values[0].decode() + ".index"):
        values[0] = os.path.join(folder, own).encode() if folder else b""


def _redirect_snapshot(nodes: dict[str, Any], node: Any, folder: str) -> None:
    """Send a snapshot to a private folder, unless there is a complete one, which is only read."""
    name = nodes.get(node.input[1].split(":")[0])
    if name is None or name.op != "Const":
        raise ValueError("it has a snapshot whose folder is computed")
    values = name.attr["value"].tensor.string_val
    if not values or _is_complete(values[0].decode(errors="replace")):
        return
    if not folder:
        raise ValueError("it has a snapshot that is not complete, and reading it would write that")
    values[0] = os.path.join(folder, "snapshot").encode()


def _is_complete(path: str) -> bool:
    """Say whether a folder has a snapshot that was written to its end."""
    record = importlib.import_module("tensorflow.core.protobuf.snapshot_pb2").SnapshotMetadataRecord
    for found in glob.glob(os.path.join(glob.escape(path), "*", "snapshot.metadata")):
        with open(found, "rb") as file:
            if record.FromString(file.read()).finalized:
                return True
    return False

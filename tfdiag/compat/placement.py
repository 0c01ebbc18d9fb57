"""The door to where TensorFlow runs the ops of a step: its graph as it was traced, and as it was cut up.

A function's graph is cut into one part for each device when it is first run, and TensorFlow keeps the parts
to itself; it hands them out only while it collects graphs. So the traced step is called once more from within
a function of our own, which is cut up anew. Nothing is traced again, and no cache of the caller's is cleared.

Private names and where they were seen, with what happens when they are gone:

- `Function._list_all_concrete_functions` (2.13 to 2.21): without it there is no graph, and
  placement is `Missing`.
- `context().enable_graph_collection`, `.export_run_metadata`, `.disable_graph_collection` (2.13 to 2.21),
  `RunMetadata.function_graphs` (2.1 to 2.21): devices of ops are `Missing`, the traced graph is there.
- `summary_ops_v2._current_trace_context` (2.13 to 2.21): a caller who collects graphs with
  `tf.summary.trace_on` is not noticed, and loses what was collected.
- `script_ops._py_funcs` (2.13 to 2.21): Python functions have no name.
- `tensorflow.python.framework.kernels` (2.13 to 2.21): why an op is on the CPU is not known.
- The ops `_Send`, `_Recv`, `_HostSend`, `_HostRecv` and their `tensor_name` (2.1 to 2.21): copies are
  not seen.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tfdiag.compat.tensorflow import tensorflow
from tfdiag.compat.tfgraph.python import name_of, where_is
from tfdiag.compat.tfgraph.wires import CALLS, inner_functions
from tfdiag.model.quantity import Missing

__all__ = [
    "Cut",
    "GraphNode",
    "HeldVariable",
    "accelerators",
    "cut_up",
    "has_kernel",
    "layer_names",
    "nodes_of",
    "optimizer_name",
    "python_function",
    "step_function",
    "takes_iterator",
    "variables_of",
]

_THEIRS = os.path.join("tensorflow", "python")
_LOOKED_THROUGH = 200
"""Values in closures until the search for the step's function is given up."""
_UNKNOWN_DIMENSION = -1
_STRING = 7
"""`DT_STRING` in TensorFlow's types.proto."""
_PYTHON = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
_CALLING = frozenset(
    (*CALLS, "StatelessCase", "XlaLaunch", "XlaLaunchV2", "MapDefun", "RemoteCall", "SymbolicGradient")
)
"""Ops that call functions of the graph."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a graph, as far as placement goes."""

    name: str
    op: str
    device: str = ""
    inputs: tuple[str, ...] = ()
    types: dict[str, str] = field(default_factory=dict)
    """Its type attributes, by name."""
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    """Of its outputs, -1 for an unknown dimension, where the graph tells."""
    function: str = ""
    """The function of the library that it is part of, empty in the graph itself."""
    calls: tuple[str, ...] = ()
    """Functions that it calls."""
    token: str = ""
    """What stands for a Python function."""
    wire: str = ""
    """The tensor that it sends or receives."""
    sender: str = ""
    receiver: str = ""
    xla: bool = False
    """XLA compiles what it calls."""
    empty: bool = False
    """A constant without elements: such a one only stands for an order of ops."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A step's graph as TensorFlow cut it up: one list of nodes for each part."""

    parts: tuple[tuple[GraphNode, ...], ...]


@dataclass(frozen=True, slots=True)
class HeldVariable:
    """A variable that a step uses."""

    name: str
    device: str
    dtype: str
    bytes: int


def accelerators() -> tuple[str, ...]:
    """List the devices beside the CPU that TensorFlow uses."""
    found = tensorflow().config.list_logical_devices()
    return tuple(str(device.name) for device in found if device.device_type != "CPU")


def step_function(step: Any) -> Any | None:
    """Find the traced graph that a train function runs, the outermost one; None where there is none."""
    seen: set[int] = set()
    waiting = [step]
    while waiting and len(seen) < _LOOKED_THROUGH:
        value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        listing = getattr(value, "_list_all_concrete_functions", None)
        if listing is not None:
            traced = list(listing())
            if traced:
                return traced[-1]  # traced last: for the most general shapes
            continue
        waiting.extend(_within(value))
    return None


def _within(value: Any) -> Iterator[Any]:
    for name in ("__wrapped__", "__func__", "func"):
        inner = getattr(value, name, None)
        if callable(inner):
            yield inner
    for cell in getattr(value, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            if callable(cell.cell_contents):
                yield cell.cell_contents


def nodes_of(concrete: Any, *, shapes: bool) -> tuple[GraphNode, ...]:
    """List the nodes of a traced graph and of all functions in it; shapes take time to find out."""
    return _nodes(concrete.graph.as_graph_def(add_shapes=shapes), _node if shapes else _quick_node)


def _nodes(graph: Any, convert: Callable[[Any, str], GraphNode]) -> tuple[GraphNode, ...]:
    found = [convert(node, "") for node in graph.node]
    for function in graph.library.function:
        name = str(function.signature.name)
        found.extend(convert(node, name) for node in function.node_def)
    return tuple(found)


def _quick_node(node: Any, function: str) -> GraphNode:
    """Take of a node only what tells Python and text: large steps have ten thousands of them."""
    op, attributes = node.op, node.attr
    if op in _CALLING or op in _PYTHON:
        return _node(node, function)
    for name in ("T", "dtype"):
        if name in attributes and attributes[name].type == _STRING:
            return _node(node, function)
    return GraphNode(node.name, op, node.device, function=function)


def _node(node: Any, function: str) -> GraphNode:
    kinds = {name: value.WhichOneof("value") for name, value in node.attr.items()}
    types = {name: _type_name(node.attr[name].type) for name, kind in kinds.items() if kind == "type"}

    def text(name: str) -> str:
        return node.attr[name].s.decode(errors="replace") if kinds.get(name) == "s" else ""

    return GraphNode(
        name=str(node.name),
        op=str(node.op),
        device=str(node.device),
        inputs=tuple(node.input),
        types=types,
        shapes=tuple(map(_shape, node.attr["_output_shapes"].list.shape))
        if "_output_shapes" in kinds
        else (),
        function=function,
        calls=tuple(inner_functions(node)),
        token=text("token"),
        wire=text("tensor_name"),
        sender=text("send_device"),
        receiver=text("recv_device"),
        xla=kinds.get("_XlaMustCompile") == "b" and bool(node.attr["_XlaMustCompile"].b),
        empty=node.op == "Const" and any(dim.size == 0 for dim in node.attr["value"].tensor.tensor_shape.dim),
    )


@functools.cache
def _type_name(number: int) -> str:
    try:
        return str(tensorflow().dtypes.as_dtype(number).name)
    except TypeError:  # a type that this Python does not know
        return f"type {number}"


def _shape(shape: Any) -> tuple[int, ...] | None:
    if shape.unknown_rank:
        return None
    return tuple(int(dim.size) if dim.size >= 0 else _UNKNOWN_DIMENSION for dim in shape.dim)


def cut_up(concrete: Any, arguments: Callable[[], tuple[Any, ...]]) -> Cut | Missing:
    """Run a traced graph once, from within a function of our own, and give the parts that it was cut into."""
    tf = tensorflow()
    try:
        context = importlib.import_module("tensorflow.python.eager.context").context()
        enable, disable = context.enable_graph_collection, context.disable_graph_collection
        export = context.export_run_metadata
    except (ImportError, AttributeError) as error:
        return Missing(f"this TensorFlow does not hand out its partitioned graphs: {error}")
    if _collected_by_the_caller():
        return Missing("the caller collects graphs with tf.summary.trace_on")
    around = tf.function(lambda *given: concrete(*given), autograph=False)  # noqa: PLW0108  # one with a name
    given = arguments()
    enable()
    try:
        around(*given)
        metadata = export()
    finally:
        disable()
    parts = [
        _nodes(part, _node)
        for graphs in getattr(metadata, "function_graphs", ())
        for part in graphs.partition_graphs
    ]
    return Cut(tuple(parts)) if parts else Missing("TensorFlow handed out no partitioned graph")


def _collected_by_the_caller() -> bool:
    try:
        module = importlib.import_module("tensorflow.python.ops.summary_ops_v2")
    except ImportError:
        return False
    return getattr(module, "_current_trace_context", None) is not None


def variables_of(concrete: Any) -> tuple[HeldVariable, ...]:
    """List the variables that a traced graph uses."""
    found = {}
    for variable in concrete.variables:
        size = variable.shape.num_elements() or 0
        found[id(variable)] = HeldVariable(
            str(variable.name), str(variable.device), str(variable.dtype.name), size * variable.dtype.size
        )
    return tuple(found.values())


def python_function(token: str) -> tuple[str, str]:
    """Give name and place of the Python function behind a node, empty where they are not known."""
    try:
        registry = importlib.import_module("tensorflow.python.ops.script_ops")._py_funcs
        function = registry.get(token)
    except (ImportError, AttributeError):
        return "", ""
    function = getattr(function, "_func", function)
    if function is None:
        return "", ""
    where = where_is(function)
    # The gradient of a Python function is one of TensorFlow's own.
    return ("", "") if _THEIRS in where else (name_of(function), where)


@functools.lru_cache(maxsize=1024)
def _kernels(op: str) -> tuple[Any, ...] | None:
    try:
        module = importlib.import_module("tensorflow.python.framework.kernels")
        return tuple(module.get_registered_kernels_for_op(op).kernel)
    except (ImportError, AttributeError):
        return None


def has_kernel(op: str, types: dict[str, str]) -> str | None:
    """Say whether an accelerator can run an op: "yes", "no", "not for this type", or None if nobody knows."""
    known = _kernels(op)
    if not known:
        return None
    able = [kernel for kernel in known if kernel.device_type not in ("CPU", "XLA_CPU_JIT", "XLA_GPU_JIT")]
    if not able:
        return "no"
    for kernel in able:
        if all(
            constraint.name not in types
            or types[constraint.name] in map(_type_name, constraint.allowed_values.list.type)
            for constraint in kernel.constraint
        ):
            return "yes"
    return "not for this type"


def layer_names(model: Any) -> tuple[str, ...]:
    """List the names of all layers in a model; without Keras' own walk only those of the outer ones."""
    walk = getattr(model, "_flatten_layers", None)
    try:
        layers = list(walk(include_self=False)) if walk is not None else list(model.layers)
    except (AttributeError, TypeError, ValueError):
        layers = list(getattr(model, "layers", ()))
    return tuple(str(layer.name) for layer in layers if getattr(layer, "name", None))


def optimizer_name(model: Any) -> str:
    """Give the name under which the optimizer's ops run, empty where there is none."""
    return str(getattr(getattr(model, "optimizer", None), "name", "") or "")


def takes_iterator(concrete: Any) -> bool:
    """Say whether a traced graph takes its batch from an iterator, rather than being given it."""
    arguments, _ = concrete.structured_input_signature
    return any(type(spec).__name__.endswith("IteratorSpec") for spec in tensorflow().nest.flatten(arguments))

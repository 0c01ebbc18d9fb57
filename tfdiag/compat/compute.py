"""The door to what a step computes: the heavy ops of its traced graph, and what the model's layers hold.

Private names and where they were seen, with what happens when they are gone:

- `model._flatten_layers` (Keras 3.3 to 3.15, tf_keras 2.16 to 2.21): only the outer layers are seen.
- `model.unrolled_steps_per_execution` (Keras 3.6 to 3.15): a loop over steps is taken to make one each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfdiag.compat.tensorflow import tensorflow

__all__ = [
    "HEAVY", "Kernel", "WorkGraph", "WorkNode", "capability", "fixed_batch_size", "kernels",
    "stateful_layers", "tensor_float_32", "unrolled_steps", "work_graph",
]  # fmt: skip

HEAVY = frozenset(
    (
        "MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum",
        "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
        "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter",
        "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2",
        "SparseTensorDenseMatMul", "CudnnRNN", "CudnnRNNV2", "CudnnRNNV3", "CudnnRNNBackpropV2",
        "CudnnRNNBackpropV3",
    )
)  # fmt: skip
_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_BATCHES = ("IteratorGetNext", "IteratorGetNextAsOptional", "OptionalGetValue", "OptionalFromValue")
_FIRST_OUTPUTS = frozenset(("output", "y", "z", "x_backprop", "values", "backprops", "product"))
_SECOND_OUTPUTS = frozenset(("backprop",))
"""Of cross-entropies, whose first output is the loss."""

Shape = tuple[int, ...] | None
"""-1 for an unknown dimension; None where not even their number is known."""


@dataclass(frozen=True, slots=True)
class WorkNode:
    """A heavy op, or one that calls functions with some in them."""

    name: str
    op: str
    dtype: str = ""
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()
    equation: str = ""
    calls: tuple[str, ...] = ()
    """Functions that it calls; of a loop only the body."""
    kind: str = ""
    """`loop` or `branches`, empty for any other op."""
    trips: int | None = None
    """How often a loop goes round, where the graph tells."""


@dataclass(frozen=True, slots=True)
class WorkGraph:
    """The heavy ops of a graph and of the functions in it."""

    nodes: dict[str, tuple[WorkNode, ...]]
    """By function; the graph itself has no name."""
    steps: frozenset[str]
    """Functions that take batches: a loop over them is one over steps."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a layer multiplies with."""

    layer: str
    kind: str
    shape: tuple[int, ...]


def work_graph(concrete: Any) -> WorkGraph:
    """Read the heavy ops of a traced graph, with the shapes that were known while it was traced."""
    graph = concrete.graph.as_graph_def(add_shapes=True)
    outputs = [tensor.op.name for tensor in concrete.graph.outputs]
    outputs += [operation.name for operation in getattr(concrete.graph, "control_outputs", ())]
    nodes = {"": _nodes_of(graph.node, {}, outputs)}
    steps = set()
    for function in graph.library.function:
        arguments = [argument.name for argument in function.signature.input_arg]
        given = function.attr["_input_shapes"].list.shape if "_input_shapes" in function.attr else ()
        shapes: dict[str, tuple[Shape, ...]] = {
            name: (_shape(shape),) for name, shape in zip(arguments, given, strict=False)
        }
        name = str(function.signature.name)
        results = [*function.ret.values(), *function.control_ret.values()]
        nodes[name] = _nodes_of(function.node_def, shapes, results)
        if any(node.op in _BATCHES for node in function.node_def):
            steps.add(name)
    return WorkGraph(nodes, frozenset(steps))


def _nodes_of(nodes: Any, shapes: dict[str, tuple[Shape, ...]], results: list[str]) -> tuple[WorkNode, ...]:
    by_name = {node.name: node for node in nodes}
    used = _used(by_name, results)
    wanted = [node for node in nodes if node.name in used and (node.op in HEAVY or _calls(node))]

    def shape_of(reference: str) -> Shape:
        name, _, rest = reference.partition(":")
        if name in shapes:
            return shapes[name][0]
        node = by_name.get(name)
        return None if node is None else _output(_shapes(node), rest)

    found = []
    for node in wanted:
        calls = _calls(node)
        loop = node.op in _LOOPS
        found.append(
            WorkNode(
                name=str(node.name),
                op=str(node.op),
                dtype=_type_name(node.attr["T"].type) if "T" in node.attr else "",
                inputs=() if calls else tuple(shape_of(one) for one in node.input if not one.startswith("^")),
                outputs=() if calls else _shapes(node),
                equation=node.attr["equation"].s.decode() if "equation" in node.attr else "",
                calls=(str(node.attr["body"].func.name),) if loop else calls,
                kind="loop" if loop else "branches" if node.op in _BRANCHES else "",
                trips=_trips(node, by_name) if loop else None,
            )
        )
    return tuple(found)


def _used(by_name: dict[str, Any], results: list[str]) -> set[str]:
    """Give the nodes that results depend on: TensorFlow leaves out the others before it runs a graph.

    Gradients that nobody asked for are among those: of the images, for instance.
    """
    used: set[str] = set()
    waiting = [_name(result) for result in results]
    while waiting:
        name = waiting.pop()
        if name in used or name not in by_name:
            continue
        used.add(name)
        waiting += [_name(source) for source in by_name[name].input]
    return used


def _name(reference: str) -> str:
    return reference.removeprefix("^").partition(":")[0]


def _calls(node: Any) -> tuple[str, ...]:
    """Give the functions that a node calls: those among its attributes."""
    found = []
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            found.append(str(value.func.name))
        elif kind == "list" and value.list.func:
            found += [str(each.name) for each in value.list.func]
    return tuple(found)


def _shapes(node: Any) -> tuple[Shape, ...]:
    return tuple(map(_shape, node.attr["_output_shapes"].list.shape)) if "_output_shapes" in node.attr else ()


def _output(shapes: tuple[Shape, ...], rest: str) -> Shape:
    """Choose an output by how a graph (`1`) or a function (`output:1`) refers to it; None where unsure."""
    name, _, index = rest.rpartition(":")
    place = int(index or 0) + (name in _SECOND_OUTPUTS)
    if len(shapes) > 1 and name and name not in _FIRST_OUTPUTS | _SECOND_OUTPUTS:
        return None
    return shapes[place] if place < len(shapes) else None


def _trips(node: Any, by_name: dict[str, Any]) -> int | None:
    """Give how often a loop goes round at most, where that is a constant: its second input says it."""
    if len(node.input) < 2:
        return None
    value = _constant(node.input[1], by_name)
    return None if value is None or value < 0 else value


def _constant(reference: str, by_name: dict[str, Any]) -> int | None:
    """Work out a number that the graph holds; Keras takes the largest of one length."""
    node = by_name.get(_name(reference))
    if node is None:
        return None
    if node.op in ("Identity", "Cast", "Max", "Min"):
        return _constant(node.input[0], by_name)
    if node.op != "Const":
        return None
    value = tensorflow().make_ndarray(node.attr["value"].tensor)
    return int(value.reshape(-1)[0]) if value.size == 1 and value.dtype.kind in "iu" else None


def _shape(shape: Any) -> Shape:
    if shape.unknown_rank:
        return None
    return tuple(int(dim.size) for dim in shape.dim)


def _type_name(number: int) -> str:
    try:
        return str(tensorflow().dtypes.as_dtype(number).name)
    except TypeError:  # a type that this Python does not know
        return f"type {number}"


def _layers(model: Any) -> list[Any]:
    walk = getattr(model, "_flatten_layers", None)
    try:
        return list(walk(include_self=False)) if walk is not None else list(model.layers)
    except (AttributeError, TypeError, ValueError):
        return list(getattr(model, "layers", ()))


def fixed_batch_size(model: Any) -> int | None:
    """Give the number of rows that a model's inputs insist on, None where any will do."""
    try:
        inputs: Any = model.inputs
        sizes = [tensor.shape[0] for tensor in tensorflow().nest.flatten(inputs) if tensor is not None]
    except (AttributeError, ValueError, TypeError, IndexError):  # not built, or not made of layers
        return None
    return next((int(size) for size in sizes if size is not None), None)


def stateful_layers(model: Any) -> list[str]:
    """Name the layers that carry their state from one batch to the next."""
    return [str(layer.name) for layer in _layers(model) if getattr(layer, "stateful", False) is True]


def kernels(model: Any) -> tuple[Kernel, ...]:
    """List the layers that have a kernel."""
    found = []
    for layer in _layers(model):
        try:
            shape = tuple(int(size) for size in layer.kernel.shape)
        except (AttributeError, TypeError, ValueError):  # it has none, or not yet
            continue
        found.append(Kernel(str(layer.name), type(layer).__name__, shape))
    return tuple(found)


def unrolled_steps(model: Any) -> int:
    """Give how many steps one turn of the loop over steps makes."""
    value = getattr(model, "unrolled_steps_per_execution", 1)
    return value if isinstance(value, int) and value > 0 else 1


def capability(device: str) -> float | None:
    """Give the compute capability of a device, None for one that has none."""
    if "GPU" not in device:
        return None
    tf = tensorflow()
    index = device.rpartition(":")[2]
    for physical in tf.config.list_physical_devices("GPU"):
        if str(physical.name).rpartition(":")[2] != index:
            continue
        try:
            major, minor = tf.config.experimental.get_device_details(physical)["compute_capability"]
            return float(f"{int(major)}.{int(minor)}")
        except (KeyError, TypeError, ValueError, RuntimeError):
            return None
    return None


def tensor_float_32() -> bool | None:
    """Say whether TensorFlow may compute float32 products in TensorFloat-32."""
    try:
        return bool(tensorflow().config.experimental.tensor_float_32_execution_enabled())
    except AttributeError:
        return None

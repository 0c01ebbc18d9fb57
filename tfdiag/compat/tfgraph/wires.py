"""A dataset's graph as named nodes: looked at and copied here, never changed in place.

Parts of the graph may hold the caller's whole data as constants, so an edit shares every node that it
does not touch, and only `build` puts a graph together.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tfdiag.compat.tensorflow import tensorflow

__all__ = [
    "CALLS",
    "CannotEdit",
    "Wires",
    "argument",
    "arguments",
    "attribute",
    "bare",
    "constant",
    "constant_node",
    "copy_of",
    "inner_functions",
    "op_definition",
    "plain",
    "structure",
    "texts",
]

Structure = tuple[tuple[int, ...], tuple[Any, ...]]
"""Types and shapes (protos) of the components of one element."""

CALLS = ("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile", "Case")
"""Operations that are as stateful as the functions that they call."""

_NODE_FIELD = b"\x0a"
"""The tag of `GraphDef.node` in its serialised form: field 1, a message."""

_STRINGS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")


class CannotEdit(Exception):
    """Raised when a graph can't be changed as asked; the message says why in the user's words."""


@dataclass(frozen=True)
class Wires:
    """Nodes by name with the functions that they call; `output` is the dataset that is handed out."""

    nodes: Mapping[str, Any]
    functions: Mapping[str, Any]
    output: str
    rest: Any = field(repr=False)
    """The graph without its nodes and functions: versions and gradients."""
    returned: Any = field(repr=False)
    """The node that returns the output."""

    @classmethod
    def of(cls, graph: Any) -> Wires:
        """Take a graph apart, without the nodes that only hold options."""
        nodes = {node.name: node for node in graph.node}
        returned = next(node for node in graph.node if node.op == "_Retval")
        del nodes[returned.name]
        rest = type(graph)(versions=graph.versions)
        rest.library.gradient.extend(graph.library.gradient)
        functions = {function.signature.name: function for function in graph.library.function}
        wires = cls(nodes, functions, bare(returned.input[0]), rest, returned)
        for name in [name for name, node in nodes.items() if plain(node.op) == "OptionsDataset"]:
            wires = wires.bypassed(name)
        return wires

    def serialized(self) -> bytes:
        """Write the graph, with what the output needs.

        Nodes are written one by one (a message is the sum of its parts), so that large constants are not
        copied into a graph first.
        """
        rest = copy_of(self.rest)
        rest.library.function.extend(self.functions.values())
        returned = copy_of(self.returned)
        returned.input[0] = self.output
        rest.node.append(returned)
        written = [rest.SerializeToString()]
        for name in self.reached(self.output):
            node = self.nodes[name].SerializeToString()
            written += [_NODE_FIELD, _varint(len(node)), node]
        return b"".join(written)

    def reached(self, name: str) -> list[str]:
        """List the nodes that a node needs, each after those that it needs itself."""
        found: dict[str, None] = {}
        waiting = [(name, False)]
        while waiting:
            at, done = waiting.pop()
            if done:
                found[at] = None
            elif at not in found:
                waiting.append((at, True))
                waiting.extend((bare(source), False) for source in reversed(self.nodes[at].input))
        return list(found)

    def node(self, name: str) -> Any:
        """Give a node; it must not be changed."""
        return self.nodes[bare(name)]

    def datasets(self, name: str) -> list[str]:
        """List the datasets that a node reads from (not those that its function captures)."""
        node = self.nodes[name]
        return [
            bare(source)
            for role, sources in arguments(node).items()
            if "dataset" in role
            for source in sources
            if "Dataset" in self.node(source).op
        ]

    def value(self, name: str, role: str) -> Any:
        """Give the value of a scalar argument; None where it is computed or there is no such argument."""
        source = argument(self.nodes[name], role)
        return None if source is None else constant(self.node(source))

    def structure(self, name: str) -> Structure:
        """Give types and shapes of a node's elements."""
        return structure(self.nodes[name])

    def fresh(self, word: str) -> str:
        """Find a name that no node has."""
        number = len(self.nodes)
        while f"{word}/tfdiag_{number}" in self.nodes:
            number += 1
        return f"{word}/tfdiag_{number}"

    def having(self, *nodes: Any, output: str | None = None) -> Wires:
        """Put nodes in, in the place of those with the same names."""
        together = {**self.nodes, **{node.name: node for node in nodes}}
        return replace(self, nodes=together, output=self.output if output is None else output)

    def with_constant(self, value: Any, dtype: Any) -> tuple[Wires, str]:
        """Put a constant in."""
        node = constant_node(self.fresh("Const"), value, dtype)
        return self.having(node), node.name

    def with_value(self, name: str, role: str, value: int) -> Wires:
        """Give a scalar argument of a node another value."""
        node = self.nodes[name]
        kind = next(arg.type for arg in op_definition(node.op).input_arg if arg.name == role)
        wires, constant_name = self.with_constant(value, tensorflow().as_dtype(kind))
        changed = copy_of(node)
        at = 0
        for other, sources in arguments(node).items():
            if other == role:
                changed.input[at] = constant_name
            at += len(sources)
        return wires.having(changed)

    def rewired(self, old: str, new: str, but: tuple[str, ...] = ()) -> Wires:
        """Let all who read `old` read `new`."""
        changed = []
        for node in self.nodes.values():
            if node.name in but or not any(bare(source) == old for source in node.input):
                continue
            other = copy_of(node)
            for at, source in enumerate(node.input):
                if bare(source) == old:
                    other.input[at] = new
            changed.append(other)
        return self.having(*changed, output=new if self.output == old else self.output)

    def bypassed(self, name: str) -> Wires:
        """Let all who read a node read its input instead."""
        return self.rewired(name, bare(self.nodes[name].input[0]))

    def above(self, name: str, node: Any) -> Wires:
        """Put a node between another one, which it reads, and all who read that one."""
        return self.rewired(name, node.name, but=(node.name,)).having(node)


def _varint(number: int) -> bytes:
    """Write a number as protocol buffers do."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*written, number))


def bare(source: str) -> str:
    """Give the name of the node behind an input."""
    return source.lstrip("^").split(":")[0]


def plain(op: str) -> str:
    """Give the name of an operation without its version and age."""
    return re.sub(r"V\d+$", "", op).removeprefix("Legacy").removeprefix("Experimental")


def copy_of(node: Any) -> Any:
    """Copy a proto."""
    copied = type(node)()
    copied.CopyFrom(node)
    return copied


def attribute(node: Any, name: str) -> Any:
    """Give an attribute, or None; asking a proto's map for a missing key would add it."""
    return node.attr.get(name)


def op_definition(op: str) -> Any:
    """Give what TensorFlow knows of an operation, None where it does not know it."""
    try:
        registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
        return registry.get(op)
    except (ImportError, AttributeError):
        return None


def arguments(node: Any) -> dict[str, list[str]]:
    """Say which inputs of a node belong to which of its arguments."""
    definition = op_definition(node.op)
    sources = [source for source in node.input if not source.startswith("^")]
    found: dict[str, list[str]] = {}
    at = 0
    for arg in definition.input_arg if definition is not None else ():
        count = 1
        if arg.type_list_attr:
            types = attribute(node, arg.type_list_attr)
            count = len(types.list.type) if types is not None else 0
        elif arg.number_attr:
            number = attribute(node, arg.number_attr)
            count = int(number.i) if number is not None else 0
        found[arg.name] = sources[at : at + count]
        at += count
    return found


def argument(node: Any, role: str) -> str | None:
    """Give the input that is a node's single argument of this name."""
    sources = arguments(node).get(role, [])
    return sources[0] if len(sources) == 1 else None


def constant(node: Any) -> Any:
    """Give the value of a scalar constant as Python has it; None for all else."""
    value = attribute(node, "value") if node.op == "Const" else None
    if value is None or value.tensor.dtype in (20, 21):  # resources and variants have no values
        return None
    if math.prod(dim.size for dim in value.tensor.tensor_shape.dim) != 1:
        return None
    if value.tensor.dtype == tensorflow().string.as_datatype_enum:
        return texts(node)[0]
    return tensorflow().make_ndarray(value.tensor).reshape(-1)[0].item()


def constant_node(name: str, value: Any, dtype: Any) -> Any:
    """Make a constant."""
    tf = tensorflow()
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
    return node


def texts(node: Any) -> list[bytes]:
    """List the strings in a constant, which may be packed in a form that only TensorFlow reads."""
    tf = tensorflow()
    found = tf.io.parse_tensor(node.attr["value"].tensor.SerializeToString(), tf.string)
    return [bytes(text) for text in tf.reshape(found, (-1,)).numpy()]


def structure(node: Any) -> Structure:
    """Give types and shapes of the elements of a dataset."""
    types = attribute(node, "output_types") or attribute(node, "Toutput_types")
    shapes = attribute(node, "output_shapes")
    if types is not None and shapes is not None:
        return tuple(types.list.type), tuple(shapes.list.shape)
    if plain(node.op) in _STRINGS:
        tf = tensorflow()
        return (tf.string.as_datatype_enum,), (tf.TensorShape(()).as_proto(),)
    raise CannotEdit(f"the elements of {plain(node.op)} have no known structure")


def inner_functions(node: Any) -> Iterator[str]:
    """List the names of the functions that a node calls."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (function.name for function in value.list.func)

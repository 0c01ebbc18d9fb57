"""What crosses devices in a step: which tensor, how large, and what for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tfdiag.collect.walked import Known, Walked, normal, on_cpu, short
from tfdiag.compat.placement import GraphNode
from tfdiag.model.placement import Copy
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["Crossing", "Part", "copies_of", "crossings_of", "is_variable_op", "sources_of"]

_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "half": 2,
}  # fmt: skip


@dataclass(slots=True)
class Part:
    """What one device runs."""

    nodes: dict[str, GraphNode]
    readers: dict[str, list[GraphNode]] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[GraphNode]) -> Part:
        """Take the nodes of the part itself, without those of functions."""
        part = cls({node.name: node for node in nodes if not node.function})
        for node in part.nodes.values():
            for source in sources_of(node):
                part.readers.setdefault(source, []).append(node)
        return part

    @property
    def device(self) -> str:
        """Give the device that runs it."""
        counted = Counter(node.device for node in self.nodes.values() if node.device)
        return counted.most_common(1)[0][0] if counted else ""

    def upstream(self, name: str) -> set[str]:
        """Give the nodes that a node is made of, itself among them."""
        return self._reached(name, lambda at: sources_of(self.nodes[at]) if at in self.nodes else ())

    def downstream(self, name: str) -> set[str]:
        """Give the nodes that are made of a node, itself among them."""
        return self._reached(name, lambda at: [reader.name for reader in self.readers.get(at, ())])

    @staticmethod
    def _reached(name: str, following: Callable[[str], Iterable[str]]) -> set[str]:
        seen, waiting = {name}, [name]
        while waiting:
            for other in following(waiting.pop()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return seen


def sources_of(node: GraphNode) -> list[str]:
    """Name what a node takes values from; whether it runs at all is no value."""
    sources = [source.split(":")[0] for source in node.inputs if not source.startswith("^")]
    if node.op in ("Switch", "_SwitchN"):
        return sources[:1]
    return sources[1:] if node.op in ("If", "StatelessIf", "Case", "StatelessCase") else sources


@dataclass(frozen=True, slots=True)
class Crossing:
    """A tensor that a part sends to another one."""

    source: GraphNode
    output: int
    sender: Part
    target: Part
    received: GraphNode
    dtype: str
    real: bool
    """It lies in the memory of an accelerator on one side: bytes cross the bus."""


def crossings_of(parts: Sequence[Part]) -> Iterator[Crossing]:
    """Find what one part sends to another."""
    received = {
        node.wire: (part, node)
        for part in parts
        for node in part.nodes.values()
        if node.op in ("_Recv", "_HostRecv")
    }
    for part in parts:
        for node in part.nodes.values():
            if node.op not in ("_Send", "_HostSend") or node.wire not in received:
                continue
            target, receiver = received[node.wire]
            if target is part or not sources_of(node):
                continue
            name, _, output = node.inputs[0].partition(":")
            source = part.nodes.get(name)
            dtype = receiver.types.get("tensor_type") or node.types.get("T", "")
            # An edge that only says what comes first is made a tensor without elements.
            if source is None or source.empty or receiver.name not in target.readers:
                continue
            real = any(
                one.op in ("_Send", "_Recv") and not on_cpu(one.device) for one in (node, receiver)
            ) and dtype not in ("resource", "string")
            yield Crossing(source, int(output or 0), part, target, receiver, dtype, real)


def is_variable_op(op: str) -> bool:
    """Say whether an op reads or writes a variable."""
    return "VariableOp" in op or op.startswith(("Resource", "AssignVariable"))


def _purpose(
    crossing: Crossing, real: frozenset[str]
) -> Literal["input", "output", "variable", "inside", "peer"]:
    """Say what a tensor crosses for, by what the CPU does with it."""
    if on_cpu(crossing.sender.device):
        host, reached = crossing.sender, crossing.sender.upstream(crossing.source.name)
        back = any(_crosses(host, name, ("_Recv", "_HostRecv"), real) for name in reached)
        through: Literal["input", "output"] = "input"
    elif on_cpu(crossing.target.device):
        host, reached = crossing.target, crossing.target.downstream(crossing.received.name)
        back = any(_crosses(host, name, ("_Send", "_HostSend"), real) for name in reached)
        through = "output"
    else:
        return "peer"
    if back:
        return "inside"
    used = any(is_variable_op(host.nodes[name].op) for name in reached if name in host.nodes)
    return "variable" if used else through


def _crosses(part: Part, name: str, ops: tuple[str, ...], real: frozenset[str]) -> bool:
    node = part.nodes.get(name)
    return node is not None and node.op in ops and node.wire in real


def copies_of(
    crossings: Iterable[Crossing], traced: Mapping[tuple[str, str], Walked], known: Known
) -> list[Copy]:
    """Describe the tensors whose bytes cross the bus."""
    crossing_bus = [crossing for crossing in crossings if crossing.real]
    real = frozenset(crossing.received.wire for crossing in crossing_bus)
    return [_copy(crossing, real, traced, known) for crossing in crossing_bus]


def _copy(
    crossing: Crossing, real: frozenset[str], traced: Mapping[tuple[str, str], Walked], known: Known
) -> Copy:
    source, target = crossing.sender.device, crossing.target.device
    at = traced.get((normal(crossing.source.name), crossing.source.op))
    shape = None
    if at is not None and crossing.output < len(at.node.shapes):
        shape = at.node.shapes[crossing.output]
    readers = [reader.name for reader in crossing.target.readers.get(crossing.received.name, ())]
    return Copy(
        tensor=f"{normal(crossing.source.name)}:{crossing.output}",
        op=crossing.source.op,
        reader=normal(readers[0]) if readers else "",
        source=short(source),
        target=short(target),
        direction=_direction(source, target),
        dtype=crossing.dtype,
        shape="" if shape is None else f"({', '.join('?' if n < 0 else str(n) for n in shape)})",
        bytes=_size(shape, crossing.dtype, known.batch),
        purpose=_purpose(crossing, real),
        layer=known.names.layer(crossing.source.name)
        or next(filter(None, map(known.names.layer, readers)), ""),
        in_loop=at is not None and at.in_loop,
    )


def _direction(source: str, target: str) -> Literal["host to device", "device to host", "device to device"]:
    if on_cpu(source):
        return "host to device"
    return "device to host" if on_cpu(target) else "device to device"


def _size(shape: tuple[int, ...] | None, dtype: str, batch: int | None) -> Maybe:
    if shape is None or dtype not in _BYTES:
        return Missing("the graph does not know the shape")
    elements, guessed = 1, False
    for position, size in enumerate(shape):
        if size < 0 and (position or batch is None):
            return Missing("the graph does not know the shape")
        guessed = guessed or size < 0
        elements *= (batch or 0) if size < 0 else size
    source = "shape in the graph, with the batch's size" if guessed else "shape in the graph"
    return Quantity(
        float(elements * _BYTES[dtype]), "B", origin="estimated" if guessed else "measured", source=source
    )

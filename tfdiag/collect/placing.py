"""From the nodes of a step's graph to where its ops run: pure, so that it can be tested without a device."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tfdiag.compat.placement import GraphNode, HeldVariable
from tfdiag.model.placement import Copy, DeviceOps, Kind, PlacedOp, Placement, Reason, Variables
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["Known", "Names", "main_device", "marks", "normal", "place", "short", "text_layers", "walk"]

_PYTHON = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
_TEXT = (
    "String", "StaticRegex", "Regex", "Unicode", "AsString", "ReduceJoin", "UnsortedSegmentJoin", "Substr",
    "LookupTable", "HashTable", "MutableHashTable", "MutableDenseHashTable", "AnonymousHashTable",
    "AnonymousMutable", "EditDistance", "DecodeBase64", "EncodeBase64", "DecodeCSV", "DecodeJSON",
    "ParseExample",
)  # fmt: skip
_NOT_TEXT = ("StringFormat", "Print", "Assert", "Write", "Save", "Restore", "Merge")
"""Ops that take strings but process no text: messages, logs and files."""
_CALLS = (
    "PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "Case",
    "StatelessCase",
)  # fmt: skip
_COPIES = ("_Send", "_Recv", "_HostSend", "_HostRecv")
_PLUMBING = (
    *_CALLS, *_COPIES, "Const", "NoOp", "Identity", "IdentityN", "StopGradient", "Placeholder",
    "PlaceholderWithDefault", "_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Enter", "Exit", "Switch",
    "_SwitchN", "Merge", "NextIteration", "LoopCond", "ControlTrigger", "VarHandleOp", "FakeParam",
)  # fmt: skip
"""Nodes that only carry values from one op to the next."""
_INPUT = (
    "IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional", "OptionalGetValue",
    "OptionalHasValue", "OptionalFromValue", "OptionalNone", "MultiDeviceIteratorGetNextFromShard",
)  # fmt: skip
_SHAPES = (
    "Shape", "ShapeN", "Size", "Rank", "StridedSlice", "Pack", "ConcatV2", "Concat", "Range", "Prod", "Mul",
    "Add", "AddV2", "Sub", "FloorDiv", "FloorMod", "Maximum", "Minimum", "BroadcastGradientArgs",
    "BroadcastArgs", "GatherV2", "Reshape", "ExpandDims", "Squeeze", "Fill", "Cast", "Slice", "Less", "Equal",
    "Greater", "LogicalAnd", "DynamicStitch", "InvertPermutation", "ConcatOffset", "Select", "SelectV2",
)  # fmt: skip
"""With integers these work out shapes, which TensorFlow keeps in host memory on purpose."""
_SMALL = ("int32", "int64", "bool", "uint32", "uint64", "int8", "uint8", "int16", "uint16", "resource")
_NUMBERS = ("float", "bfloat", "complex", "double", "half")
_INLINED = re.compile(
    r"(?:StatefulPartitionedCall|PartitionedCall)(?:_\d+)?/|(?:body|cond|then|else|branch_?\d*)/_\d+/"
)
"""What inlining a function puts between a caller's name and a node's."""
_READS_VARIABLE = ("ReadVariableOp", "ResourceGather")
_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "half": 2,
}  # fmt: skip
_TYPES_KEPT = 12
_OPS_KEPT = 60
_COPIES_KEPT = 200


def normal(name: str) -> str:
    """Take out of a name what inlining put in; a graph and its inlined form then agree."""
    return _INLINED.sub("", name)


def short(device: str) -> str:
    """Shorten `/job:localhost/replica:0/task:0/device:GPU:0` to `/GPU:0`."""
    return "/" + device.rsplit("device:", maxsplit=1)[-1].lstrip("/") if device else ""


def _on_cpu(device: str) -> bool:
    return short(device).startswith("/CPU")


# Names


@dataclass(frozen=True, slots=True)
class Names:
    """What the caller's names for parts of the model are."""

    layers: frozenset[str] = frozenset()
    optimizer: str = ""
    scopes: dict[str, str] = field(default_factory=dict)
    """Layers by the names of their scopes, where a graph told which is whose."""

    def seen_in(self, paths: Iterable[str]) -> Names:
        """Find out which scope of a graph belongs to which layer.

        A scope that is opened again gets a number. So the scope `dense_1` may be that of the layer `dense` or
        of `dense_1`: it is that of the one which has no other.
        """
        segments = {segment for path in paths for segment in path.split("/")[:-1]}
        scopes, doubtful = {}, []
        for segment in sorted(segments):
            found = self._candidates(segment)
            if len(found) == 1:
                scopes[segment] = found[0]
            elif found:
                doubtful.append(segment)
        for segment in doubtful:
            whole, bare = self._candidates(segment)
            scopes[segment] = bare if bare not in scopes.values() else whole
        return replace(self, scopes=scopes)

    def _candidates(self, segment: str) -> list[str]:
        names = dict.fromkeys((segment, re.sub(r"_\d+$", "", segment)))
        return [name for name in names if name in self.layers]

    def layer(self, path: str) -> str:
        """Give the innermost layer in whose scope an op stands."""
        for segment in reversed(path.split("/")):
            if segment in self.scopes:
                return self.scopes[segment]
            if found := self._candidates(segment):
                return found[0]
        return ""

    def part(self, path: str) -> Literal["forward", "backward", "optimizer", "loss", "metrics", ""]:
        """Say which part of a step an op belongs to."""
        segments = [segment.lower() for segment in normal(path).split("/")]
        if any(segment.startswith(("gradient_tape", "gradients")) for segment in segments):
            return "backward"
        optimizer = self.optimizer.lower()
        if optimizer and any(re.sub(r"_\d+$", "", segment) == optimizer for segment in segments):
            return "optimizer"
        if self.layer(path):
            return "forward"
        if any("loss" in segment for segment in segments[:-1]):
            return "loss"
        return "metrics" if any("metric" in segment for segment in segments[:-1]) else ""


# The traced graph


@dataclass(frozen=True, slots=True)
class Walked:
    """A node that a step reaches."""

    node: GraphNode
    path: str
    """With the names of the nodes that call the functions in which it is."""
    in_loop: bool
    device: str
    """Its own, or that of the node that calls it."""


def walk(nodes: Iterable[GraphNode]) -> Iterator[Walked]:
    """Go through a graph and all functions that it calls."""
    functions: dict[str, list[GraphNode]] = {}
    for node in nodes:
        functions.setdefault(node.function, []).append(node)
    seen: set[tuple[str, bool]] = set()
    waiting = deque([("", "", False, "")])
    while waiting:
        function, prefix, in_loop, caller = waiting.popleft()
        if (function, in_loop) in seen:
            continue
        seen.add((function, in_loop))
        for node in functions.get(function, ()):
            path, device = prefix + node.name, node.device or caller
            yield Walked(node, path, in_loop, device)
            # The graph's own loop goes over steps: Keras makes several of them in a call.
            over_steps = not node.function and "/" not in node.name
            looping = in_loop or (node.op in ("While", "StatelessWhile") and not over_steps)
            waiting.extend((called, path + "/", looping, device) for called in node.calls)


def _kind(node: GraphNode) -> Literal["python", "text"] | None:
    if node.op in _PYTHON:
        return "python"
    if node.op.startswith(_TEXT) and not node.op.startswith(_NOT_TEXT):
        return "text"
    if (
        not _counts(node.op)
        or node.op in ("Shape", "ShapeN", "Size", "Rank")
        or node.op.startswith(_NOT_TEXT)
    ):
        return None
    return "text" if "string" in (node.types.get("T"), node.types.get("dtype")) else None


# The parts


@dataclass(slots=True)
class _Part:
    """What one device runs."""

    nodes: dict[str, GraphNode]
    readers: dict[str, list[GraphNode]] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[GraphNode]) -> _Part:
        part = cls({node.name: node for node in nodes if not node.function})
        for node in part.nodes.values():
            for source in _data(node):
                part.readers.setdefault(source, []).append(node)
        return part

    @property
    def device(self) -> str:
        counted = Counter(node.device for node in self.nodes.values() if node.device)
        return counted.most_common(1)[0][0] if counted else ""

    def upstream(self, name: str) -> set[str]:
        """Give the nodes that a node is made of, itself among them."""
        return self._reached(name, lambda at: _data(self.nodes[at]) if at in self.nodes else ())

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


def _data(node: GraphNode) -> list[str]:
    """Name what a node takes values from; whether it runs at all is no value."""
    sources = [source.split(":")[0] for source in node.inputs if not source.startswith("^")]
    if node.op in ("Switch", "_SwitchN"):
        return sources[:1]
    return sources[1:] if node.op in ("If", "StatelessIf", "Case", "StatelessCase") else sources


@dataclass(frozen=True, slots=True)
class Known:
    """What is known about the job beside its graph."""

    names: Names = field(default_factory=Names)
    variables: tuple[HeldVariable, ...] = ()
    batch: int | None = None
    """Elements of a batch, which the graph may not know."""
    has_kernel: Callable[[str, dict[str, str]], str | None] = lambda _op, _types: None
    function: Callable[[str], tuple[str, str]] = lambda _token: ("", "")
    """Name and place of a Python function by its token."""


def place(
    traced: Sequence[GraphNode], parts: Sequence[Sequence[GraphNode]], known: Known, cpu: str = "/CPU:0"
) -> Placement:
    """Say where the ops of a step run; without parts everything runs on the CPU."""
    walked = list(walk(traced))
    cut = [_Part.of(part) for part in parts]
    spread = [each for part in parts for each in walk(part)]
    homes = {(normal(each.path), each.node.op): each.device for each in spread}
    devices = _devices(
        ((each.node.op, each.device) for each in spread) if cut else ((each.node.op, cpu) for each in walked)
    )
    special = [(each, kind) for each in walked if (kind := _kind(each.node)) is not None]
    if special or cut:
        known = replace(known, names=known.names.seen_in(each.path for each in walked))
    named = [
        _placed(each, kind, homes.get((normal(each.path), each.node.op), cpu), known)
        for each, kind in special
    ]
    copies: list[Copy] = []
    if cut:
        traced_at = {(normal(each.path), each.node.op): each for each in walked}
        crossings = list(_crossings(cut))
        real = frozenset(crossing.received.wire for crossing in _copies(crossings))
        copies = [_copy(crossing, real, traced_at, known) for crossing in _copies(crossings)]
        if not _on_cpu(main_device(devices)):
            have = {(op.name, op.op) for op in named}
            hosted = _hosted(crossings, traced_at, known)
            named.extend(op for op in hosted if (op.name, op.op) not in have)
    return Placement(
        devices=devices,
        variables=_variables(known.variables),
        ops=tuple(named[:_OPS_KEPT]),
        copies=tuple(copies[:_COPIES_KEPT]),
        clusters=sum(
            each.node.xla or each.node.op in ("XlaLaunch", "XlaLaunchV2", "_XlaRun") for each in walked
        ),
    )


def main_device(devices: Iterable[DeviceOps]) -> str:
    """Give the device that has the most ops."""
    return max(devices, key=lambda each: each.ops, default=DeviceOps("/CPU:0", 0, {})).device


def _counts(op: str) -> bool:
    return op not in _PLUMBING and op not in _INPUT


def _devices(ops: Iterable[tuple[str, str]]) -> tuple[DeviceOps, ...]:
    """Count ops with their devices."""
    found: dict[str, Counter[str]] = {}
    for (op, device), count in Counter(ops).items():
        if _counts(op):
            found.setdefault(short(device), Counter())[op] += count
    return tuple(
        DeviceOps(device, sum(types.values()), dict(types.most_common(_TYPES_KEPT)))
        for device, types in sorted(found.items())
    )


def _variables(held: Iterable[HeldVariable]) -> tuple[Variables, ...]:
    found: dict[str, list[HeldVariable]] = {}
    for variable in held:
        if variable.dtype.startswith(_NUMBERS):
            found.setdefault(short(variable.device), []).append(variable)
    return tuple(
        Variables(
            device,
            len(each),
            sum(variable.bytes for variable in each),
            max(each, key=lambda variable: variable.bytes).name,
        )
        for device, each in sorted(found.items())
    )


def _dtype(node: GraphNode) -> str:
    for name in ("T", "dtype", "Tout", "DstT", "SrcT", "value_dtype", "tensor_type"):
        if name in node.types:
            return node.types[name]
    return ""


def _placed(each: Walked, kind: Any, device: str, known: Known) -> PlacedOp:
    function, where = known.function(each.node.token) if each.node.token else ("", "")
    return PlacedOp(
        name=normal(each.node.name),
        op=each.node.op,
        kind=kind,
        device=short(device),
        layer=known.names.layer(each.path),
        part=known.names.part(each.path),
        dtype=_dtype(each.node),
        reason=kind,
        function=function,
        where=where,
        in_loop=each.in_loop,
    )


# What crosses devices


@dataclass(frozen=True, slots=True)
class _Crossing:
    """A tensor that a part sends to another one."""

    source: GraphNode
    output: int
    sender: _Part
    target: _Part
    received: GraphNode
    dtype: str
    real: bool
    """It lies in the memory of an accelerator on one side: bytes cross the bus."""


def _crossings(parts: Sequence[_Part]) -> Iterator[_Crossing]:
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
            if target is part or not _data(node):
                continue
            name, _, output = node.inputs[0].partition(":")
            source = part.nodes.get(name)
            dtype = receiver.types.get("tensor_type") or node.types.get("T", "")
            # An edge that only says what comes first is made a tensor without elements.
            if source is None or source.empty or receiver.name not in target.readers:
                continue
            real = any(
                one.op in ("_Send", "_Recv") and not _on_cpu(one.device) for one in (node, receiver)
            ) and dtype not in ("resource", "string")
            yield _Crossing(source, int(output or 0), part, target, receiver, dtype, real)


def _is_variable_op(op: str) -> bool:
    return "VariableOp" in op or op.startswith(("Resource", "AssignVariable"))


def _purpose(
    crossing: _Crossing, real: frozenset[str]
) -> Literal["input", "output", "variable", "inside", "peer"]:
    """Say what a tensor crosses for, by what the CPU does with it."""
    if _on_cpu(crossing.sender.device):
        host, reached = crossing.sender, crossing.sender.upstream(crossing.source.name)
        back = any(_crosses(host, name, ("_Recv", "_HostRecv"), real) for name in reached)
        through: Literal["input", "output"] = "input"
    elif _on_cpu(crossing.target.device):
        host, reached = crossing.target, crossing.target.downstream(crossing.received.name)
        back = any(_crosses(host, name, ("_Send", "_HostSend"), real) for name in reached)
        through = "output"
    else:
        return "peer"
    if back:
        return "inside"
    used = any(_is_variable_op(host.nodes[name].op) for name in reached if name in host.nodes)
    return "variable" if used else through


def _crosses(part: _Part, name: str, ops: tuple[str, ...], real: frozenset[str]) -> bool:
    node = part.nodes.get(name)
    return node is not None and node.op in ops and node.wire in real


def _copies(crossings: Iterable[_Crossing]) -> list[_Crossing]:
    return [crossing for crossing in crossings if crossing.real]


def _copy(
    crossing: _Crossing, real: frozenset[str], traced: dict[tuple[str, str], Walked], known: Known
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
    if _on_cpu(source):
        return "host to device"
    return "device to host" if _on_cpu(target) else "device to device"


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


def _hosted(
    crossings: Sequence[_Crossing],
    traced: dict[tuple[str, str], Walked],
    known: Known,
) -> Iterator[PlacedOp]:
    """Give the ops on the CPU that what crosses devices goes through."""
    found: dict[str, GraphNode] = {}
    for crossing in _copies(crossings):
        if _on_cpu(crossing.sender.device):
            part, reached = crossing.sender, crossing.sender.upstream(crossing.source.name)
        elif _on_cpu(crossing.target.device):
            part, reached = crossing.target, crossing.target.downstream(crossing.received.name)
        else:
            continue
        found.update({name: part.nodes[name] for name in reached if name in part.nodes})
    for name, node in found.items():
        small = all(kind in _SMALL for kind in node.types.values())
        if not _counts(node.op) or (small and node.op in _SHAPES) or _is_variable_op(node.op):
            continue
        at = traced.get((normal(name), node.op))
        kind = _kind(node) or "host"
        yield PlacedOp(
            name=normal(name if at is None else at.node.name),
            op=node.op,
            kind=kind,
            device=short(node.device),
            layer=known.names.layer(name),
            part=known.names.part(name),
            dtype=_dtype(node),
            reason=_reason(node, at, part, known),
            in_loop=at is not None and at.in_loop,
        )


def _reason(node: GraphNode, at: Walked | None, part: _Part, known: Known) -> Reason:
    kind = _kind(node)
    if kind is not None:
        return kind
    if at is not None and "CPU" in at.device:
        return "pinned"
    able = known.has_kernel(node.op, node.types)
    if able == "no":
        return "no kernel"
    if able == "not for this type":
        return "no kernel for this type"
    sources = (part.nodes.get(source) for source in _data(node))
    if any(source is not None and "resource" in source.types.values() for source in sources):
        return "variable there"
    return "not known"


def marks(traced: Sequence[GraphNode], ops: Iterable[PlacedOp]) -> dict[tuple[str, str], PlacedOp]:
    """Give the names under which ops may stand in a trace: inlined into their callers, or not."""
    placed = {(op.name, op.op): op for op in ops}
    found = dict(placed)
    for each in walk(traced):
        at = (normal(each.path), each.node.op)
        op = placed.get((normal(each.node.name), each.node.op)) or placed.get(at)
        if op is not None:
            found[at] = op
    return found


def text_layers(
    traced: Sequence[GraphNode], ops: Iterable[PlacedOp], names: Names
) -> dict[tuple[str, str], Kind]:
    """Give the names of all ops in the layers that process text: who moves the layer moves all of them.

    A layer with variables does something else besides, which has to stay.
    """
    layers = {op.layer for op in ops if op.kind == "text" and op.layer}
    if not layers:
        return {}
    walked = list(walk(traced))
    names = names.seen_in(each.path for each in walked)
    within: dict[str, list[Walked]] = {}
    for each in walked:
        layer = names.layer(each.path)
        if layer in layers and names.part(each.path) == "forward":
            within.setdefault(layer, []).append(each)
    return {
        (normal(name), each.node.op): "text"
        for members in within.values()
        if not any(each.node.op.startswith(_READS_VARIABLE) for each in members)
        for each in members
        for name in (each.path, each.node.name)
    }

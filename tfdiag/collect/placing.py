"""From the nodes of a step's graph to where its ops run: pure, so that it can be tested without a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from tfdiag.collect.crossings import Crossing, Part, copies_of, crossings_of, is_variable_op, sources_of
from tfdiag.collect.walked import Known, Names, Walked, normal, on_cpu, short, walk
from tfdiag.compat.placement import GraphNode, HeldVariable
from tfdiag.model.placement import Copy, DeviceOps, Kind, PlacedOp, Placement, Reason, Variables

__all__ = ["main_device", "marks", "place", "text_layers"]

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
_READS_VARIABLE = ("ReadVariableOp", "ResourceGather")
_TYPES_KEPT = 12
_OPS_KEPT = 60
_COPIES_KEPT = 200


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


def place(
    traced: Sequence[GraphNode], parts: Sequence[Sequence[GraphNode]], known: Known, cpu: str = "/CPU:0"
) -> Placement:
    """Say where the ops of a step run; without parts everything runs on the CPU."""
    walked = list(walk(traced))
    cut = [Part.of(part) for part in parts]
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
        crossings = list(crossings_of(cut))
        copies = copies_of(crossings, traced_at, known)
        if not on_cpu(main_device(devices)):
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


def _hosted(
    crossings: Sequence[Crossing],
    traced: dict[tuple[str, str], Walked],
    known: Known,
) -> Iterator[PlacedOp]:
    """Give the ops on the CPU that what crosses devices goes through."""
    found: dict[str, GraphNode] = {}
    for crossing in crossings:
        if not crossing.real:
            continue
        if on_cpu(crossing.sender.device):
            part, reached = crossing.sender, crossing.sender.upstream(crossing.source.name)
        elif on_cpu(crossing.target.device):
            part, reached = crossing.target, crossing.target.downstream(crossing.received.name)
        else:
            continue
        found.update({name: part.nodes[name] for name in reached if name in part.nodes})
    for name, node in found.items():
        small = all(kind in _SMALL for kind in node.types.values())
        if not _counts(node.op) or (small and node.op in _SHAPES) or is_variable_op(node.op):
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


def _reason(node: GraphNode, at: Walked | None, part: Part, known: Known) -> Reason:
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
    sources = (part.nodes.get(source) for source in sources_of(node))
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

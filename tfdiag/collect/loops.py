"""From the nodes of a step's graph to its loops, fused kernels and ops over whole tables: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tfdiag.collect.walked import Names, Walked, normal, walk
from tfdiag.compat.placement import GraphNode
from tfdiag.model.layers import EmbeddingTable, Loop, LoopKind

__all__ = ["Parts", "parts_of"]

_LOOPS = ("While", "StatelessWhile")
_PYTHON = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
_CARRIES = (
    "ReadVariableOp", "Identity", "IdentityN", "Placeholder", "PlaceholderWithDefault", "_Arg", "_Retval",
    "VarHandleOp", "Const", "StopGradient", "PreventGradient", "NoOp", "While", "StatelessWhile", "If",
    "StatelessIf", "PartitionedCall", "StatefulPartitionedCall", "Case", "StatelessCase",
)  # fmt: skip
"""Ops that hand a tensor on without going over it."""
_WRITES = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_REDUCES = ("Any", "All", "Sum", "Mean", "Max", "Min", "Prod", "L2Loss", "EuclideanNorm")
_KINDS: tuple[tuple[str, LoopKind], ...] = (
    ("map", "map_fn"),
    ("scan", "scan"),
    ("foldl", "scan"),
    ("foldr", "scan"),
)
_NUMBER = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a step that can be timed, with what tells their ops in a trace."""

    loops: tuple[Loop, ...] = ()
    tables: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The names of ops that go over whole tables, by the table's layer."""
    fused: frozenset[str] = frozenset()
    """Layers in which there is a fused recurrent kernel."""
    names: Names = field(default_factory=Names)
    """What tells the layer of an op."""


def parts_of(
    traced: Iterable[GraphNode],
    names: Names,
    *,
    recurrent: Iterable[str] = (),
    tables: Sequence[EmbeddingTable] = (),
) -> Parts:
    """Find the loops of a step, and what goes over all rows of these tables."""
    walked = list(walk(traced))
    names = names.seen_in(each.path for each in walked)
    loops = tuple(_loops(walked, names, frozenset(recurrent)))
    return Parts(
        loops=loops,
        tables={
            table.layer: over for table in tables if (over := frozenset(_over(walked, table.rows, table.dim)))
        },
        fused=frozenset(names.layer(each.path) for each in walked if each.node.op.startswith("CudnnRNN")),
        names=names,
    )


def _loops(walked: Sequence[Walked], names: Names, recurrent: frozenset[str]) -> Iterator[Loop]:
    python = [normal(each.path) for each in walked if each.node.op in _PYTHON]
    for each in walked:
        if each.node.op not in _LOOPS or each.in_loop:
            continue
        if not each.node.function and "/" not in each.node.name:
            continue  # over steps: Keras makes several of them in a call
        name = normal(each.path)
        layer = names.layer(each.path)
        yield Loop(
            name=name,
            op=each.node.op,
            kind="recurrent" if layer in recurrent else _kind(name),
            layer=layer,
            part=names.part(each.path),
            calls_python=any(path.startswith(name + "/") for path in python),
        )


def _kind(name: str) -> LoopKind:
    segments = {_NUMBER.sub("", segment) for segment in name.split("/")}
    return next((kind for word, kind in _KINDS if word in segments), "while_loop")


def _over(walked: Sequence[Walked], rows: int, dim: int) -> Iterator[str]:
    """Give the names of ops whose results are as large as a table, and of those that write or sum up such."""
    mine: set[tuple[str, str]] = set()
    for each in walked:
        op = each.node.op
        if op.startswith(_CARRIES) or not each.node.shapes:
            continue
        # A gradient of single rows is spread over the table by this op; its size is known at run time only.
        spread = op == "UnsortedSegmentSum" and (-1, dim) in each.node.shapes
        if (rows, dim) in each.node.shapes or spread:
            mine.add((each.node.function, each.node.name))
            yield normal(each.path)
    for each in walked:
        op = each.node.op
        if op not in (*_WRITES, *_REDUCES) and not op.startswith("ResourceApply"):
            continue
        sources = {source.lstrip("^").split(":", 1)[0] for source in each.node.inputs}
        if any((each.node.function, source) in mine for source in sources):
            yield normal(each.path)

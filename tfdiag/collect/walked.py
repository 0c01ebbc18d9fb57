"""A step's graph with the caller's names: devices, layers, and the functions that it calls."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tfdiag.compat.placement import GraphNode, HeldVariable

__all__ = ["Known", "Names", "Walked", "normal", "on_cpu", "short", "walk"]

_INLINED = re.compile(
    r"(?:StatefulPartitionedCall|PartitionedCall)(?:_\d+)?/|(?:body|cond|then|else|branch_?\d*)/_\d+/"
)
"""What inlining a function puts between a caller's name and a node's."""


def normal(name: str) -> str:
    """Take out of a name what inlining put in; a graph and its inlined form then agree."""
    return _INLINED.sub("", name)


def short(device: str) -> str:
    """Shorten `/job:localhost/replica:0/task:0/device:GPU:0` to `/GPU:0`."""
    return "/" + device.rsplit("device:", maxsplit=1)[-1].lstrip("/") if device else ""


def on_cpu(device: str) -> bool:
    """Say whether a device is a CPU."""
    return short(device).startswith("/CPU")


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

    def layers_around(self, path: str) -> Iterator[str]:
        """Give the layers in whose scopes an op stands, the innermost first."""
        for segment in reversed(path.split("/")):
            if segment in self.scopes:
                yield self.scopes[segment]
            elif found := self._candidates(segment):
                yield found[0]

    def layer(self, path: str) -> str:
        """Give the innermost layer in whose scope an op stands."""
        return next(self.layers_around(path), "")

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

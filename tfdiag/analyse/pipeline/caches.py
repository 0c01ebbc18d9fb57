"""What caches spare: full ones, ones that are being filled, and ones that never will be."""

from __future__ import annotations

from collections.abc import Mapping

from tfdiag.analyse.pipeline.counts import count_per_batch
from tfdiag.analyse.pipeline.names import base_of, kind_of, label_of, matched_stages, source_first
from tfdiag.model.pipeline import Node, Pipeline, Stage
from tfdiag.model.quantity import Missing

__all__ = ["behind_full_caches", "filling", "never_full"]


def behind_full_caches(
    graph: tuple[Node, ...], matched: dict[int, Stage], order: list[Stage]
) -> frozenset[int]:
    """Give the nodes whose work a full cache spares; one that the runtime tells nothing of counts as full."""
    nodes = {node.id: node for node in graph}
    found: set[int] = set()
    for node in graph:
        if base_of(node.op) != "Cache" or _fills(matched.get(node.id), order) is True:
            continue
        below = _below_node(node, nodes)
        if not any(_endless(nodes[each]) for each in below):  # which never fills one
            found |= below
    return frozenset(found)


def never_full(graph: tuple[Node, ...], per_batch: Mapping[int, float]) -> frozenset[int]:
    """Give the caches that no pass ever completes: what fills them has no end, or is cut off above them."""
    nodes = {node.id: node for node in graph}
    return frozenset(
        node.id
        for node in graph
        if base_of(node.op) == "Cache"
        and (
            any(_endless(nodes[each]) for each in _below_node(node, nodes))
            or _cut_short(node, nodes, per_batch)
        )
    )


def _below_node(node: Node, nodes: dict[int, Node]) -> set[int]:
    found: set[int] = set()
    waiting = list(node.inputs)
    while waiting:
        found.add(waiting[-1])
        waiting.extend(nodes[waiting.pop()].inputs)
    return found


def _endless(node: Node) -> bool:
    return node.cardinality == -1 or (base_of(node.op) == "Repeat" and node.size == -1)


def _fills(cache: Stage | None, order: list[Stage]) -> bool | None:
    """Say whether a running cache is being filled: one that is read from has no source any more."""
    stages = {stage.id: stage for stage in order}
    while cache is not None:
        inside = [stages[i] for i in cache.inputs if i in stages]
        if not inside:
            return False
        if kind_of(inside[0].name) != "Cache":
            return True
        cache = inside[0]
    return None


def filling(pipeline: Pipeline | Missing, batches: int) -> str:
    """Name the cache that was being filled in its first pass all the time that was watched; empty if none.

    `batches` is how many were taken meanwhile.
    """
    if isinstance(pipeline, Missing) or not pipeline.stages or pipeline.output is None:
        return ""
    order = source_first({stage.id: stage for stage in pipeline.stages}, pipeline.output)
    caches = [stage for stage in order if kind_of(stage.name) == "Cache"]
    if not any(_fills(cache, order) for cache in caches) or _passes(order) > 1:
        return ""
    if pipeline.graph and not _may_be_first(pipeline, order, batches):
        return ""
    return label_of(caches[-1], pipeline)


def _may_be_first(pipeline: Pipeline, order: list[Stage], batches: int) -> bool:
    """Say whether a cache can be filled at all, and has not been gone through once already."""
    nodes = {node.id: node for node in pipeline.graph}
    before = {stage.id: stage for stage in pipeline.stages_before}
    per_batch = count_per_batch(pipeline.graph, matched_stages(pipeline.graph, order), before)
    for node in pipeline.graph:
        if base_of(node.op) != "Cache":
            continue
        if any(_endless(nodes[each]) for each in _below_node(node, nodes)):
            return False
        count = node.cardinality
        if count is None or count <= 0:
            continue
        if batches * per_batch[node.id] > count or _cut_short(node, nodes, per_batch):
            return False
    return True


def _cut_short(cache: Node, nodes: dict[int, Node], per_batch: Mapping[int, float]) -> bool:
    """Say whether a take behind a cache, before any repeat, never lets it come to its end."""
    # A cache that was put in hands on what its input does; where nobody knows how much, nothing is claimed.
    own = next((per_batch[each] for each in (cache.id, *cache.inputs) if each in per_batch), None)
    above = cache
    while behind := next((node for node in nodes.values() if above.id in node.inputs), None):
        if base_of(behind.op) == "Repeat":
            return False
        taken = per_batch.get(behind.id)
        if base_of(behind.op) == "Take" and (behind.size or 0) > 0 and own is not None and taken is not None:
            assert behind.size is not None
            each = own / max(1e-9, taken)
            if cache.cardinality is not None and behind.size * each < cache.cardinality:
                return True
        above = behind
    return False


def _passes(order: list[Stage]) -> float:
    """Give how many passes over the data a repeat has made, as far as its counts tell."""
    stages = {stage.id: stage for stage in order}
    for stage in order:
        if base_of(stage.name) in ("ForeverRepeat", "FiniteRepeat") and stage.inputs:
            inside = stages.get(stage.inputs[0])
            if inside is not None and inside.elements < stage.elements:
                return 2.0
    return 1.0

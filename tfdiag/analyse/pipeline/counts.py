"""How many elements of each stage go into a batch."""

from __future__ import annotations

from tfdiag.analyse.pipeline.names import base_of
from tfdiag.model.pipeline import Node, Stage

__all__ = ["count_per_batch", "count_running", "elements_of"]


def elements_of(stage: Stage, before: dict[int, Stage]) -> int:
    """Give the elements that a stage gave in its steady state."""
    earlier = before.get(stage.id)
    if earlier is not None and stage.elements - earlier.elements > 0:
        return stage.elements - earlier.elements
    return max(1, stage.elements)


def count_running(order: list[Stage], before: dict[int, Stage]) -> dict[int, float]:
    """Give how many elements of each running stage go into a batch.

    By ratios from stage to stage: below a repeat each pass has stages of its own, which know that pass only.
    """
    nodes = {stage.id: stage for stage in order}
    found = {order[-1].id: 1.0}
    for stage in reversed(order):
        count = found.setdefault(stage.id, 0.0)
        for each in stage.inputs:
            if each not in nodes:
                continue
            passing = base_of(stage.name) in ("ForeverRepeat", "FiniteRepeat")
            taken = 1.0 if passing else elements_of(nodes[each], before) / elements_of(stage, before)
            found[each] = found.get(each, 0.0) + count * taken
    return found


def count_per_batch(
    graph: tuple[Node, ...], matched: dict[int, Stage], before: dict[int, Stage]
) -> dict[int, float]:
    """Give how many elements of each node go into a batch."""
    found: dict[int, float] = {graph[-1].id: 1.0}
    nodes = {node.id: node for node in graph}
    for node in reversed(graph):
        count = found.setdefault(node.id, 0.0)
        for each in node.inputs:
            found[each] = found.get(each, 0.0) + count * _taken(node, nodes[each], matched, before)
    return found


def _taken(node: Node, source: Node, matched: dict[int, Stage], before: dict[int, Stage]) -> float:
    """Give how many elements of its input a node takes for one of its own."""
    base = base_of(node.op)
    if base in ("Batch", "ParallelBatch", "PaddedBatch", "Window") and node.size and node.size > 0:
        return float(node.size)
    if base == "Shard" and node.size:
        return float(node.size)
    if base in ("Map", "ParallelMap", "Shuffle", "Prefetch", "Repeat", "Cache", "Take", "Zip", "Options"):
        return 1.0
    one, other = matched.get(node.id), matched.get(source.id)
    if one is not None and other is not None:
        return elements_of(other, before) / elements_of(one, before)
    if node.cardinality and source.cardinality and node.cardinality > 0 and source.cardinality > 0:
        return source.cardinality / node.cardinality
    # Of several sources one at a time: nobody knows how often which.
    return 1.0 / len(node.inputs) if base in ("Concatenate", "DirectedInterleave") else 1.0

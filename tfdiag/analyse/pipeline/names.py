"""What stages are called: by the runtime, by the graph, and by the caller; which of them are the same."""

from __future__ import annotations

from tfdiag.model.pipeline import Node, Pipeline, Stage

__all__ = ["base_of", "kind_of", "label_of", "labels_of", "matched_stages", "source_first"]


def base_of(name: str) -> str:
    """Strip the version and the decorations that the runtime puts on names."""
    return (
        name.split("::", maxsplit=1)[0]
        .split("[", maxsplit=1)[0]
        .rstrip("V0123456789")
        .removesuffix("Dataset")
    )


def kind_of(name: str) -> str:
    """Give what kind of stage it is, whichever way it runs."""
    base = base_of(name)
    return {"MemoryCache": "Cache", "FileCache": "Cache", "MemoryCacheImpl": "Cache",
            "FileCacheImpl": "Cache", "FiniteTake": "Take",
            "FiniteSkip": "Skip", "FiniteRepeat": "Repeat", "ForeverRepeat": "Repeat",
            "ParallelMap": "Map", "ParallelBatch": "Batch", "ParallelInterleave": "Interleave",
            "MapAndBatch": "MapAndBatch"}.get(base, base)  # fmt: skip


_RUNS_AS = {("Batch", "MapAndBatch"), ("FlatMap", "Generator"), ("Generator", "FlatMap")}


_ADDED = ("Root", "Model", "Options", "MaxIntraOpParallelism", "PrivateThreadPool")


def matched_stages(graph: tuple[Node, ...], order: list[Stage]) -> dict[int, Stage]:
    """Say which stage of the runtime a node of the graph became; both are walked from the batch down."""
    if not graph or not order:
        return {}
    nodes = {node.id: node for node in graph}
    stages = {stage.id: stage for stage in order}
    found: dict[int, Stage] = {}

    def walk(node: Node | None, stage: Stage | None) -> None:
        while node is not None and stage is not None:
            kind, runs = kind_of(node.op), kind_of(stage.name)
            if kind == runs or (kind, runs) in _RUNS_AS:
                # TensorFlow makes from_generator of a flat_map over it; the inner one does the work.
                inner = [
                    stages[i] for i in stage.inputs if i in stages and kind_of(stages[i].name) == "Generator"
                ]
                found[node.id] = inner[0] if kind == "Generator" and inner else stage
                if base_of(stage.name) == "MapAndBatch" and len(node.inputs) == 1:
                    below = nodes[node.inputs[0]]
                    if kind_of(below.op) == "Map":
                        found[below.id] = stage
                        node = below
                if len(node.inputs) > 1:
                    for one, other in zip(node.inputs, stage.inputs, strict=False):
                        walk(nodes[one], stages.get(other))
                    return
                node = nodes[node.inputs[0]] if node.inputs else None
                stage = stages.get(stage.inputs[0]) if stage.inputs else None
            elif runs in _ADDED or (len(stage.inputs) == 1 and _below(stage, stages, kind)):
                stage = stages.get(stage.inputs[0]) if stage.inputs else None
            else:
                node = nodes[node.inputs[0]] if len(node.inputs) == 1 else None

    walk(graph[-1], order[-1])
    return found


def _below(stage: Stage, stages: dict[int, Stage], kind: str) -> bool:
    """Say whether a stage of this kind still comes further down."""
    while len(stage.inputs) == 1:
        stage = stages[stage.inputs[0]]
        if kind_of(stage.name) == kind or (kind, kind_of(stage.name)) in _RUNS_AS:
            return True
    return False


_WRITTEN_AS = {
    "Map": "map", "ParallelMap": "map", "MapAndBatch": "map", "Batch": "batch", "ParallelBatch": "batch",
    "PaddedBatch": "padded_batch", "Prefetch": "prefetch", "Shuffle": "shuffle",
    "TensorSlice": "from_tensor_slices", "Tensor": "from_tensors", "Generator": "from_generator",
    "FlatMap": "flat_map", "Filter": "filter", "Interleave": "interleave",
    "ParallelInterleave": "interleave", "FiniteRepeat": "repeat", "ForeverRepeat": "repeat",
    "FiniteTake": "take", "FiniteSkip": "skip", "MemoryCache": "cache", "Range": "range",
    "TFRecord": "TFRecordDataset", "TextLine": "TextLineDataset",
}  # fmt: skip


def labels_of(order: list[Stage], written: tuple[str, ...]) -> dict[int, str]:
    """Match stages with what the caller wrote, both from the source on; fused ones keep their name."""
    remaining = list(written)
    labels: dict[int, str] = {}
    for stage in order:
        word = _WRITTEN_AS.get(base_of(stage.name), "")
        label = word or stage.name
        for index, text in enumerate(remaining):
            if word and text.split("(")[0] == word:
                label = text
                del remaining[: index + 1]
                break
        labels[stage.id] = label
    return labels


def source_first(nodes: dict[int, Stage], output: int) -> list[Stage]:
    """Order stages from the sources to the batch."""
    order: list[Stage] = []
    seen: set[int] = set()
    waiting = [output]
    while waiting:
        identity = waiting.pop()
        if identity in seen or identity not in nodes:
            continue
        seen.add(identity)
        order.append(nodes[identity])
        waiting.extend(nodes[identity].inputs)
    return list(reversed(order))


def label_of(stage: Stage, pipeline: Pipeline) -> str:
    """Name a stage of the runtime as the caller would."""
    if pipeline.output is None:
        return stage.name
    order = source_first({each.id: each for each in pipeline.stages}, pipeline.output)
    for identity, each in matched_stages(pipeline.graph, order).items():
        if each.id == stage.id:
            return next(node.label for node in pipeline.graph if node.id == identity)
    return labels_of(order, pipeline.written).get(stage.id, stage.name)

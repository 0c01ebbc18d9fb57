"""The stages as the runtime's own model has them."""

from __future__ import annotations

from tfdiag.analyse.pipeline.counts import count_running, elements_of
from tfdiag.analyse.pipeline.model import StageTime
from tfdiag.analyse.pipeline.names import base_of, labels_of, matched_stages
from tfdiag.model.pipeline import Pipeline, Stage
from tfdiag.model.quantity import Quantity

__all__ = [
    "from_runtime",
    "is_advancing",
    "is_serial",
    "is_tunable",
    "last_stages",
    "parallelism_of",
    "processing",
    "works_ahead",
]


SERIAL_FUNCTIONS = ("Map", "Filter", "FlatMap", "Interleave")


def from_runtime(pipeline: Pipeline, order: list[Stage]) -> tuple[StageTime, ...]:
    """Give the stages of the runtime, with the costs that it counted."""
    if not order:
        return ()
    before = {stage.id: stage for stage in pipeline.stages_before}
    per_batch = count_running(order, before)
    labels = labels_of(order, pipeline.written)
    matched = matched_stages(pipeline.graph, order)
    by_stage = {stage.id: node for node, stage in matched.items()}
    nodes = {node.id: node for node in pipeline.graph}
    places = {stage.id: index for index, stage in enumerate(order)}
    found = []
    for stage in order:
        node = nodes.get(by_stage.get(stage.id, -1))
        seconds = processing(stage, before) / elements_of(stage, before) * per_batch[stage.id]
        found.append(
            StageTime(
                name=stage.name,
                label=node.label if node is not None else labels[stage.id],
                per_batch_s=seconds,
                low_s=seconds,
                high_s=seconds,
                parallelism=parallelism_of(stage),
                serial=is_serial(stage),
                id=node.id if node is not None else -1,
                inputs=tuple(places[i] for i in stage.inputs if i in places),
                per_batch=per_batch[stage.id],
                ratio=_ratio(stage, order, before),
                element_bytes=_element_bytes(stage),
                asynchronous=works_ahead(stage.name),
                tunable=is_tunable(stage),
                node=node,
                advancing=is_advancing(stage, before),
            )
        )
    return tuple(found)


def is_advancing(stage: Stage, before: dict[int, Stage]) -> bool | None:
    """Say whether a stage gave elements in the steady state."""
    earlier = before.get(stage.id)
    return None if earlier is None else stage.elements > earlier.elements


def processing(stage: Stage, before: dict[int, Stage]) -> float:
    """Give the time that the runtime counted in the steady state."""
    earlier = before.get(stage.id)
    if earlier is not None and stage.elements - earlier.elements > 0:
        return max(0.0, stage.processing_s - earlier.processing_s)
    return stage.processing_s


def _ratio(stage: Stage, order: list[Stage], before: dict[int, Stage]) -> float:
    nodes = {other.id: other for other in order}
    if len(stage.inputs) != 1 or stage.inputs[0] not in nodes:
        return 1.0
    return elements_of(nodes[stage.inputs[0]], before) / elements_of(stage, before)


def _element_bytes(stage: Stage) -> float | None:
    return stage.bytes_produced / stage.elements if stage.elements and stage.bytes_produced else None


def is_tunable(stage: Stage) -> bool:
    """Say whether the runtime chooses its parallelism."""
    return any(knob.name == "parallelism" and knob.tunable for knob in stage.parameters)


def parallelism_of(stage: Stage) -> float:
    """Give on how many threads it runs."""
    if isinstance(stage.parallelism, Quantity):
        return max(1.0, stage.parallelism.value)
    return 1.0


def is_serial(stage: Stage) -> bool:
    """Say whether its function works on one element after the other."""
    if base_of(stage.name) == "MapAndBatch":
        # The runtime fuses a map with the batch after it; a serial map stays serial inside.
        return parallelism_of(stage) == 1.0 and not is_tunable(stage)
    return base_of(stage.name) in SERIAL_FUNCTIONS


def works_ahead(name: str) -> bool:
    """Say whether a stage of this name works ahead of whoever reads from it."""
    return base_of(name).startswith(("Prefetch", "Parallel", "MapAndBatch", "DataService"))


_PASSING = ("Root", "Options", "FiniteTake", "Take", "ForeverRepeat", "Repeat", "MaxIntraOpParallelism",
            "PrivateThreadPool", "Model", "AssertCardinality", "MemoryCache")  # fmt: skip


def last_stages(nodes: dict[int, Stage], output: int) -> list[Stage]:
    """Give the stages at the end of the pipeline that hand batches on without working on them."""
    found: list[Stage] = []
    identity = output
    while identity in nodes and nodes[identity] not in found:
        stage = nodes[identity]
        found.append(stage)
        if base_of(stage.name) not in _PASSING or len(stage.inputs) != 1:
            break
        identity = stage.inputs[0]
    return found

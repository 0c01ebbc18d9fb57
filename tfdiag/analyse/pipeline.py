"""The input pipeline as a chain of stages with a time for each."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.model.pipeline import Pipeline, Stage
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["PipelineModel", "StageTime", "pipeline_model"]

_SERIAL_FUNCTIONS = ("Map", "Filter", "FlatMap", "Interleave")


@dataclass(frozen=True, slots=True)
class StageTime:
    """One stage, and what a batch costs in it."""

    name: str
    """The runtime's name."""
    label: str
    """As the caller wrote it, where that is known."""
    per_batch_s: float
    """Time that the stage needs for a batch, on all of its threads together."""
    parallelism: float
    serial: bool
    """A stage with a function that works on one element after the other."""


@dataclass(frozen=True, slots=True)
class PipelineModel:
    """The pipeline that runs."""

    stages: tuple[StageTime, ...]
    """Source first."""
    prefetches: bool
    """Its last stage works ahead of the consumer."""
    written: tuple[str, ...]
    python_functions: tuple[str, ...]
    from_model: bool
    """The stages are the runtime's own; otherwise only what the caller wrote is known."""

    @property
    def slowest(self) -> StageTime | None:
        """Give the stage that limits the rate."""
        return max(self.stages, key=lambda stage: stage.per_batch_s / stage.parallelism, default=None)


def pipeline_model(pipeline: Pipeline | Missing) -> PipelineModel | Missing:
    """Give the stages with their times."""
    if isinstance(pipeline, Missing):
        return pipeline
    if not pipeline.stages or pipeline.output is None:
        ends_ahead = bool(pipeline.written) and pipeline.written[-1].startswith("prefetch")
        return PipelineModel(
            stages=(),
            prefetches=ends_ahead or pipeline.prefetch_injected,
            written=pipeline.written,
            python_functions=pipeline.python_functions,
            from_model=False,
        )
    nodes = {stage.id: stage for stage in pipeline.stages}
    order = _source_first(nodes, pipeline.output)
    batches = max(1, nodes[pipeline.output].elements)
    labels = _labels(order, pipeline.written)
    return PipelineModel(
        stages=tuple(
            StageTime(
                name=stage.name,
                label=labels[stage.id],
                per_batch_s=stage.processing_s / batches,
                parallelism=_parallelism(stage),
                serial=_serial(stage),
            )
            for stage in order
        ),
        prefetches=any(_works_ahead(stage) for stage in _last_stages(nodes, pipeline.output)),
        written=pipeline.written,
        python_functions=pipeline.python_functions,
        from_model=True,
    )


def _base(name: str) -> str:
    """Strip the version and the decorations that the runtime puts on names."""
    return (
        name.split("::", maxsplit=1)[0]
        .split("[", maxsplit=1)[0]
        .rstrip("V0123456789")
        .removesuffix("Dataset")
    )


def _parallelism(stage: Stage) -> float:
    if isinstance(stage.parallelism, Quantity):
        return max(1.0, stage.parallelism.value)
    return 1.0


def _serial(stage: Stage) -> bool:
    if _base(stage.name) == "MapAndBatch":
        # The runtime fuses a map with the batch after it; a serial map stays serial inside.
        tunable = any(knob.name == "parallelism" and knob.tunable for knob in stage.parameters)
        return _parallelism(stage) == 1.0 and not tunable
    return _base(stage.name) in _SERIAL_FUNCTIONS


def _source_first(nodes: dict[int, Stage], output: int) -> list[Stage]:
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


def _last_stages(nodes: dict[int, Stage], output: int) -> list[Stage]:
    """Give the stages at the end of the pipeline that hand batches on without working on them."""
    found: list[Stage] = []
    identity = output
    while identity in nodes and nodes[identity] not in found:
        stage = nodes[identity]
        found.append(stage)
        if _base(stage.name) not in _PASSING or len(stage.inputs) != 1:
            break
        identity = stage.inputs[0]
    return found


_PASSING = ("Root", "Options", "FiniteTake", "Take", "ForeverRepeat", "Repeat", "MaxIntraOpParallelism",
            "PrivateThreadPool", "Model", "AssertCardinality", "MemoryCache")  # fmt: skip


def _works_ahead(stage: Stage) -> bool:
    return _base(stage.name).startswith(("Prefetch", "Parallel", "MapAndBatch", "DataService"))


_WRITTEN_AS = {
    "Map": "map", "ParallelMap": "map", "MapAndBatch": "map", "Batch": "batch", "ParallelBatch": "batch",
    "PaddedBatch": "padded_batch", "Prefetch": "prefetch", "Shuffle": "shuffle",
    "TensorSlice": "from_tensor_slices", "Tensor": "from_tensors", "Generator": "from_generator",
    "FlatMap": "flat_map", "Filter": "filter", "Interleave": "interleave",
    "ParallelInterleave": "interleave", "FiniteRepeat": "repeat", "ForeverRepeat": "repeat",
    "FiniteTake": "take", "FiniteSkip": "skip", "MemoryCache": "cache", "Range": "range",
    "TFRecord": "TFRecordDataset", "TextLine": "TextLineDataset",
}  # fmt: skip


def _labels(order: list[Stage], written: tuple[str, ...]) -> dict[int, str]:
    """Match stages with what the caller wrote, both from the source on; fused ones keep their name."""
    remaining = list(written)
    labels: dict[int, str] = {}
    for stage in order:
        word = _WRITTEN_AS.get(_base(stage.name), "")
        label = word or stage.name
        for index, text in enumerate(remaining):
            if word and text.split("(")[0] == word:
                label = text
                del remaining[: index + 1]
                break
        labels[stage.id] = label
    return labels

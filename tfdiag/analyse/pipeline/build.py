"""Brings the three views of a pipeline together."""

from __future__ import annotations

from tfdiag.analyse.pipeline.model import PipelineModel
from tfdiag.analyse.pipeline.names import source_first
from tfdiag.analyse.pipeline.running import from_runtime, last_stages, works_ahead
from tfdiag.analyse.pipeline.written import from_graph
from tfdiag.model.pipeline import Pipeline, Stage
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["pipeline_model"]


def pipeline_model(pipeline: Pipeline | Missing) -> PipelineModel | Missing:
    """Give the stages with their times."""
    if isinstance(pipeline, Missing):
        return pipeline
    running = bool(pipeline.stages) and pipeline.output is not None
    ends_ahead = bool(pipeline.written) and pipeline.written[-1].startswith("prefetch")
    prefetches = ends_ahead or pipeline.prefetch_injected
    order: list[Stage] = []
    if running:
        assert pipeline.output is not None
        nodes = {stage.id: stage for stage in pipeline.stages}
        order = source_first(nodes, pipeline.output)
        prefetches = any(works_ahead(stage.name) for stage in last_stages(nodes, pipeline.output))
    sampled = any(sample.kind == "prefix" for sample in pipeline.samples)
    stages = from_graph(pipeline, order) if sampled else from_runtime(pipeline, order)
    return PipelineModel(
        stages=stages,
        prefetches=prefetches,
        written=pipeline.written,
        python_functions=pipeline.python_functions,
        from_model=running,
        sampled=sampled,
        autotune=pipeline.autotune,
        cores=float(pipeline.sample_threads),
        overhead_s=pipeline.call_overhead_s.value if isinstance(pipeline.call_overhead_s, Quantity) else None,
    )

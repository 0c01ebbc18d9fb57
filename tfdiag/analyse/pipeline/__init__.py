"""The input pipeline as one tree of stages, each with what a batch costs in it.

What was written (the graph), what runs (the runtime's model) and what parts of it cost alone (samples) are
laid over each other: a stage has the name that the caller knows, the parallelism that the runtime gave it,
and the cost of a sample, or of the runtime's model where nothing was sampled.
"""

from __future__ import annotations

from tfdiag.analyse.pipeline.build import pipeline_model
from tfdiag.analyse.pipeline.caches import filling
from tfdiag.analyse.pipeline.model import PipelineModel, StageTime
from tfdiag.analyse.pipeline.names import base_of, label_of

__all__ = ["PipelineModel", "StageTime", "base_of", "filling", "label_of", "pipeline_model"]

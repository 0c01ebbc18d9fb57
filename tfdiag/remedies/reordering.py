"""Move a stage to a place where it spares work, and the elements stay what they are."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.model.pipeline import Edit
from tfdiag.remedies.pipeline_code import diff, written

__all__ = ["code_of_move", "spared", "swaps"]


def swaps(stage: StageTime, passed: list[StageTime]) -> tuple[Edit, ...]:
    """Give the move as data: one swap for each stage that is passed."""
    return tuple(Edit("swap", stage.id) for _ in passed)


def code_of_move(analysis: Analysis, stage: StageTime, lowest: StageTime) -> str:
    """Write the move of a stage below another one."""
    chain = written(analysis)
    word = stage.label.partition("(")[0]
    if stage.label not in chain or lowest.label not in chain:
        return f"- dataset.map(fn).{word}(…)\n+ dataset.{word}(…).map(fn)"
    old = len(chain) - 1 - chain[::-1].index(stage.label)
    new = chain.index(lowest.label)
    if new >= old:
        return f"- dataset.map(fn).{word}(…)\n+ dataset.{word}(…).map(fn)"
    without = [*chain[:old], *chain[old + 1 :]]
    return diff(chain, [*without[:new], stage.label, *without[new:]])


def spared(model: PipelineModel, stages: list[StageTime], factor: float) -> PipelineModel:
    """Let some stages do only a part of their work."""
    for stage in stages:
        model = model.changed(
            stage,
            per_batch_s=stage.per_batch_s * factor,
            cpu_per_batch_s=None if stage.cpu_per_batch_s is None else stage.cpu_per_batch_s * factor,
            per_batch=stage.per_batch * factor,
        )
    return model

"""Numbers that several checks hold against their thresholds."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.checks.registry import Undecided
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Evidence

__all__ = ["COST_SHARE", "input_wait", "pipeline", "share", "wait_evidence"]

COST_SHARE = 0.05
"""Below this share of the step nothing is worth a finding."""


def share(value: float, count: int | None = None, source: str = "of the mean step") -> Quantity:
    """Write a share of the step as a quantity."""
    return Quantity(value, "share", source=source, count=count)


def input_wait(analysis: Analysis) -> float:
    """Give the wait per step, or say why it is not known."""
    assert not isinstance(analysis.step, Missing)
    wait: Maybe = analysis.step.segments["input_wait"]
    if isinstance(wait, Missing):
        raise Undecided(f"the wait for input is not known: {wait.reason}")
    if wait.origin == "estimated" and analysis.share(wait.low or 0.0) < COST_SHARE <= analysis.share(
        wait.value
    ):
        raise Undecided("the wait for input is estimated, and its interval reaches down to nothing")
    return wait.value


def pipeline(analysis: Analysis) -> PipelineModel:
    """Give the pipeline, or say why it is not known."""
    if isinstance(analysis.pipeline, Missing):
        raise Undecided(f"the pipeline is not known: {analysis.pipeline.reason}")
    return analysis.pipeline


def wait_evidence(analysis: Analysis, threshold: float) -> Evidence:
    """Show the wait against the threshold that it crossed."""
    assert not isinstance(analysis.step, Missing)
    wait = analysis.step.segments["input_wait"]
    assert isinstance(wait, Quantity)
    limit = Quantity(threshold * analysis.step.mean_s, "s", origin="given")
    return Evidence("wait for input per step", wait, limit, "above")

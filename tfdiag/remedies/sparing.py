"""The gain of changes that only take work away, or spread it: at worst they bring nothing."""

from __future__ import annotations

from dataclasses import replace

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.remedies.gain import gain_of

__all__ = ["gain_of_sparing"]


def gain_of_sparing(analysis: Analysis, changed: PipelineModel, source: str) -> Maybe:
    """Predict the step with the changed pipeline; the rule is unsure of how much is gained."""
    gain = gain_of(analysis, changed, source)
    if isinstance(gain, Missing) or gain.low is None or gain.high is None:
        return gain
    return replace(
        gain, value=max(1.0, gain.value), low=max(1.0, gain.low), high=max(1.0, gain.value, gain.high)
    )

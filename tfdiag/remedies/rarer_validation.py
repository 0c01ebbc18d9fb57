"""Validate less often, or on less."""

from __future__ import annotations

import math

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest", "suggest_one_pass"]

_SHARE_LEFT = 0.1
"""The share of the training time that validation may keep."""


def suggest(analysis: Analysis, check: str, seconds: float) -> Suggestion:
    """Suggest the `validation_freq` at which validation takes a tenth of the time."""
    assert not isinstance(analysis.step, Missing)
    training = analysis.step.mean_s - seconds
    now = max(1, analysis.measurements.job.validation_freq)
    factor = max(2, math.ceil(seconds / max(1e-9, _SHARE_LEFT * training)))
    freq = now * factor
    return Suggestion(
        id=f"{check}/validation-freq",
        check=check,
        text=(
            f"Validate every {freq} epochs instead of every {f'{now} epochs' if now > 1 else 'epoch'}, or on "
            "fewer batches (validation_steps)."
        ),
        code=f"- model.fit(…, validation_freq={now})\n+ model.fit(…, validation_freq={freq})",
        predicted=gain_without(
            analysis,
            seconds * (1 - 1 / factor),
            at_least=0.9,
            at_most=1.05,
            source="the step less the validation that falls away",
        ),
        risk="Early stopping and learning-rate schedules that watch validation react later.",
        reason="not tried: fewer validations change when callbacks react",
    )


def suggest_one_pass(analysis: Analysis, check: str, seconds: float, passes: float) -> Suggestion:
    """Suggest to validate on each row once."""
    job = analysis.measurements.job
    steps, whole = job.validation_steps, job.validation_pass
    assert isinstance(steps, Quantity)
    assert isinstance(whole, Quantity)
    return Suggestion(
        id=f"{check}/one-pass",
        check=check,
        text=(
            f"validation_steps counts batches, not samples: {steps.value:.0f} of them are {passes:.1f} "
            f"passes over the validation data, one pass is {whole.value:.0f}."
        ),
        code=f"- model.fit(…, validation_steps={steps.value:.0f})\n"
        f"+ model.fit(…, validation_steps={whole.value:.0f})",
        predicted=gain_without(
            analysis,
            seconds * (1 - 1 / passes),
            at_least=0.9,
            at_most=1.05,
            source="the step less the passes that judge the same rows again",
        ),
        risk="None where all passes are over the same rows.",
        reason="not tried: fewer validation steps change what callbacks see",
    )

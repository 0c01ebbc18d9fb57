"""Validation takes a large part of the job's time.

What it measures
    The time of one whole validation, spread over the training steps between two of them. A validation
    that was cut short to keep within the budget is extrapolated from its steady rate, and the report says
    so.
Why it matters
    While the job validates it does not train. Often the validation set is far larger than a decision
    about stopping needs, or `validation_steps` was counted in samples instead of batches.
How to fix it
    Validate every few epochs (`validation_freq`), on fewer batches (`validation_steps`), or with a larger
    `validation_batch_size`; make epochs longer where they are short.
When to ignore it
    When epochs are short on purpose, and each has to be judged.
References
    https://keras.io/api/models/model_training_apis/#fit-method
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import rarer_validation

__all__ = ["CHECK"]

_SHARE = 0.25


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when validation takes its share of the time between two of them."""
    facts.watched(analysis)
    assert not isinstance(analysis.step, Missing)
    assert not isinstance(analysis.steady, Missing)
    live = analysis.measurements.live
    steps = analysis.measurements.job.validation_steps
    if not isinstance(live, Live) or not live.validations:
        if isinstance(steps, Quantity):
            raise Undecided("the job validates, but no validation was reached while it was watched")
        return
    if isinstance(analysis.steady.boundary, Missing):
        raise Undecided(f"validation was seen, but {analysis.steady.boundary.reason}")
    if isinstance(analysis.steady.calls_per_epoch, Missing):
        raise Undecided(
            "validation was seen, but not how often it runs: " + analysis.steady.calls_per_epoch.reason
        )
    seconds = analysis.host_item("validation")
    cost = analysis.share(seconds)
    if not analysis.crosses(cost, _SHARE):
        return
    item = next(item for item in analysis.step.host_items if item.name == "validation")
    evidence = [
        Evidence(
            "validation per training step",
            item.per_step,
            Quantity(_SHARE * analysis.step.mean_s, "s", origin="given"),
            "above",
        ),
        Evidence("training steps in an epoch", analysis.steady.calls_per_epoch.scaled(
            live.steps_per_call, "steps")),
    ]  # fmt: skip
    if isinstance(steps, Quantity):
        evidence.append(Evidence("validation steps", steps))
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Validation takes {cost:.0%} of the time",
            severity=severity_of(cost),
            cost=facts.share(cost, source="validation, spread over the steps"),
            evidence=tuple(evidence),
            where="validation_data",
            detail=item.note,
        ),
        (rarer_validation.suggest(analysis, CHECK.id, seconds),),
    )


CHECK = Check("validation-dominates", "Validation takes a large part", "host", __doc__, run)

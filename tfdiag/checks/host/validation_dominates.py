"""Validation takes a large part of the job's time.

What it measures
    The time of one whole validation, spread over the training steps between two of them. A validation
    that was cut short to keep within the budget is extrapolated from its steady rate, and the report says
    so. What it waits for its own input is told apart from its step by the runtime's counters. Steps right
    behind it find cold caches: what they take longer than others is counted with it. Where its steps are more
    than one pass over its data, it fires at a smaller share: the same rows are judged again and again, most
    often because `validation_steps` was counted in samples.
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
from tfdiag.checks import facts, hosted
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import rarer_validation

__all__ = ["CHECK"]

_SHARE = 0.25
_PASSES = 1.05
"""From so many passes over its data on validation judges rows twice."""


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
    passes = _passes(analysis)
    share = facts.COST_SHARE if passes > _PASSES else _SHARE
    if not analysis.crosses(analysis.share(seconds), share):
        return
    after = hosted.behind(analysis, seconds)
    cost = analysis.share(seconds + after)
    item = next(item for item in analysis.step.host_items if item.name == "validation")
    boundary = analysis.steady.boundary
    evidence = [
        Evidence(
            "validation per training step",
            item.per_step,
            Quantity(share * analysis.step.mean_s, "s", origin="given"),
            "above",
        ),
        Evidence("training steps in an epoch", analysis.steady.calls_per_epoch.scaled(
            live.steps_per_call, "steps")),
    ]  # fmt: skip
    if isinstance(steps, Quantity):
        evidence.append(Evidence("validation steps", steps))
    if passes > _PASSES:
        twice = Quantity(passes, "passes", source="steps of validation over those of one pass")
        evidence.append(
            Evidence("passes over its data", twice, Quantity(_PASSES, "passes", origin="given"), "above")
        )
    if boundary.validation_s > 0:
        evidence += [
            Evidence(f"of it {name}", item.per_step.scaled(part / boundary.validation_s))
            for name, part in boundary.validation_parts
            if part > 0
        ]
    evidence += hosted.behind_evidence(after)
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Validation takes {cost:.0%} of the time"
            + (f" and goes over its data {passes:.0f} times" if passes >= 1.5 else ""),
            severity=severity_of(cost),
            cost=facts.share(cost, source="validation, and what it makes slower, over the steps"),
            evidence=tuple(evidence),
            where="validation_data",
            detail=item.note,
        ),
        (
            *(
                [rarer_validation.suggest_one_pass(analysis, CHECK.id, seconds, passes)]
                if passes > _PASSES
                else []
            ),
            rarer_validation.suggest(analysis, CHECK.id, seconds),
        ),
    )


def _passes(analysis: Analysis) -> float:
    """Give how often a validation goes over its data, 0 where that is not known."""
    job = analysis.measurements.job
    steps, whole = job.validation_steps, job.validation_pass
    if isinstance(steps, Missing) or isinstance(whole, Missing) or whole.value <= 0:
        return 0.0
    return steps.value / whole.value


CHECK = Check("validation-dominates", "Validation takes a large part", "host", __doc__, run)

"""Epochs are so short that their start and end dominate.

What it measures
    The time between the last step of an epoch and the first step of the next, without validation and
    callbacks, spread over the steps of an epoch.
Why it matters
    At each end of an epoch Keras builds a new iterator and tears the old one down, which fills and drops its
    buffers; with tf.data's tuning on, tearing down alone can take some tenths of a second.
How to fix it
    Make epochs longer: repeat the dataset a few times within an epoch, or give `steps_per_epoch` with a
    dataset that repeats for ever.
When to ignore it
    When each pass has to be judged by itself.
References
    https://keras.io/api/models/model_training_apis/#fit-method
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import longer_epochs

__all__ = ["CHECK"]

_SHARE = 0.1


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the ends of epochs take a share of the step that is worth it."""
    facts.watched(analysis)
    assert not isinstance(analysis.step, Missing)
    assert not isinstance(analysis.steady, Missing)
    boundary, length = analysis.steady.boundary, analysis.steady.calls_per_epoch
    if isinstance(boundary, Missing) or isinstance(length, Missing) or not boundary.followed:
        live = analysis.measurements.live
        if (
            isinstance(length, Quantity)
            and not isinstance(live, Missing)
            and len(live.start_s) < length.value
        ):
            return  # an epoch that is longer than the whole run has no end that could matter
        raise Undecided("no epoch ended by itself while the job was watched")
    seconds = analysis.host_item("epoch")
    cost = analysis.share(seconds)
    if not analysis.crosses(cost, _SHARE):
        return
    if not analysis.crosses(analysis.share(analysis.surely_host_item("epoch")), _SHARE):
        raise Undecided(f"ends of epochs seen: {boundary.followed}, too few or too unlike to know their cost")
    steps = length.scaled(analysis.measurements.job.steps_per_execution, "steps")
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Between epochs of {steps.value:.0f} steps {cost:.0%} of the time is lost",
            severity=severity_of(cost),
            cost=facts.share(cost, source="between epochs, spread over their steps"),
            evidence=(
                Evidence(
                    "between epochs, per step",
                    Quantity(seconds, "s", source="between epochs", count=boundary.followed),
                    Quantity(_SHARE * analysis.step.mean_s, "s", origin="given"),
                    "above",
                ),
                Evidence("training steps in an epoch", steps),
            ),
            where="model.fit",
        ),
        (longer_epochs.suggest(analysis, CHECK.id, seconds, steps),),
    )


CHECK = Check("epoch-overhead", "Short epochs pay for their ends", "host", __doc__, run)

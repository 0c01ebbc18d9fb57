"""A step is mostly fixed cost: Python, dispatch, the training loop.

What it measures
    The cost of the same call with a step that does nothing, and of the training loop between calls, as a
    share of the mean step. Nothing of it depends on the size of the batch. Where the step was run at several
    batch sizes as well, the fixed cost that a line through them has is the most that it can be.
Why it matters
    A small model on small batches can spend most of its time on starting steps. A faster device does not
    help then; a GPU makes it worse.
How to fix it
    `model.compile(..., steps_per_execution=16)` makes several steps in one call. A bigger batch shares
    the fixed cost among more rows, at the price of fewer updates: the learning rate may need to change.
When to ignore it
    When batch callbacks have to run after each single step.
References
    https://keras.io/api/models/model_training_apis/#compile-method
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.checks.steps import MOSTLY_FIXED, fixed_cost, scaling_evidence
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import more_steps_per_call

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the fixed cost is a large share of the step."""
    assert not isinstance(analysis.step, Missing)
    job = analysis.measurements.job
    if job.run_eagerly or job.loop in ("custom", "unknown"):
        # An eager step has its own check; a caller's own loop has no setting to change.
        return
    known = fixed_cost(analysis)
    fixed = known.seconds
    cost = analysis.share(fixed)
    if not analysis.crosses(cost, MOSTLY_FIXED):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"{cost:.0%} of the step is fixed cost, whatever the batch holds",
            severity=severity_of(cost),
            cost=facts.share(cost, source="dispatch and training loop"),
            evidence=(
                Evidence(
                    "dispatch and training loop per step",
                    Quantity(fixed, "s", source="a call with an empty step, and between calls"),
                    Quantity(MOSTLY_FIXED * analysis.step.mean_s, "s", origin="given"),
                    "above",
                ),
                Evidence("dispatch", known.dispatch),
                Evidence("training loop", Quantity(known.loop, "s", source="between calls, less callbacks")),
                *scaling_evidence(analysis.scaling),
            ),
            where="model.compile",
        ),
        (
            more_steps_per_call.suggest(analysis, CHECK.id, fixed),
            more_steps_per_call.suggest_bigger_batch(analysis, CHECK.id, fixed),
        ),
    )


CHECK = Check("tiny-steps", "A step is mostly fixed cost", "launch", __doc__, run)

"""A step is mostly fixed cost: Python, dispatch, the training loop.

What it measures
    The cost of the same call with a step that does nothing, and of the training loop between calls, as a
    share of the mean step. Nothing of it depends on the size of the batch.
Why it matters
    A small model on small batches can spend most of its time on starting steps. A faster device does not
    help then; a GPU makes it worse.
How to fix it
    `model.compile(..., steps_per_execution=16)` makes several steps in one call. A bigger batch shares
    the fixed cost among more rows, at the price of fewer updates.
When to ignore it
    When batch callbacks have to run after each single step.
References
    https://keras.io/api/models/model_training_apis/#compile-method
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import more_steps_per_call

__all__ = ["CHECK"]

_SHARE = 0.25


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the fixed cost is a large share of the step."""
    assert not isinstance(analysis.step, Missing)
    job = analysis.measurements.job
    if job.run_eagerly or job.loop in ("custom", "unknown"):
        # An eager step has its own check; a caller's own loop has no setting to change.
        return
    launch = analysis.step.segments["launch"]
    if isinstance(launch, Missing):
        raise Undecided(launch.reason)
    loop = analysis.host_item("loop")
    launch = _fixed_part(analysis, launch)
    fixed = launch.value + loop
    cost = analysis.share(fixed)
    if not analysis.crosses(cost, _SHARE):
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
                    Quantity(_SHARE * analysis.step.mean_s, "s", origin="given"),
                    "above",
                ),
                Evidence("dispatch", launch),
                Evidence("training loop", Quantity(loop, "s", source="between calls, less callbacks")),
            ),
            where="model.compile",
        ),
        (
            more_steps_per_call.suggest(analysis, CHECK.id, fixed),
            more_steps_per_call.suggest_bigger_batch(analysis, CHECK.id, fixed),
        ),
    )


def _fixed_part(analysis: Analysis, launch: Quantity) -> Quantity:
    """Give what dispatch costs whatever the step does: on a device launches of kernels come on top."""
    if isinstance(analysis.device, Missing):
        return launch
    live, replay = analysis.measurements.live, analysis.replay
    if isinstance(live, Missing) or isinstance(replay, Missing) or isinstance(replay.empty, Missing):
        raise Undecided("how much of the dispatch is the same for each step is not known")
    empty = replay.empty.value / live.steps_per_call
    if empty >= launch.value:
        return launch
    return Quantity(
        empty, "s", source="the same call with a step that does nothing", count=replay.empty.count
    )


CHECK = Check("tiny-steps", "A step is mostly fixed cost", "launch", __doc__, run)

"""What a step costs however few rows its batch has, for the checks that hold it against the step."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.scaling import BatchScaling
from tfdiag.checks.registry import Undecided
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence

__all__ = ["MOSTLY_FIXED", "FixedCost", "fixed_cost", "is_tiny", "scaling_evidence"]

MOSTLY_FIXED = 0.25
"""From this share of the step on, calling the step is a problem of its own."""


@dataclass(frozen=True, slots=True)
class FixedCost:
    """Seconds per step that go into starting it."""

    dispatch: Quantity
    loop: float

    @property
    def seconds(self) -> float:
        """Give both together."""
        return self.dispatch.value + self.loop


def fixed_cost(analysis: Analysis) -> FixedCost:
    """Give what starting a step costs, or say why it is not known.

    Where the step was run at several batch sizes, its fixed cost there is the most that it can be.
    """
    assert not isinstance(analysis.step, Missing)
    launch = analysis.step.segments["launch"]
    if isinstance(launch, Missing):
        raise Undecided(launch.reason)
    launch = _fixed_part(analysis, launch)
    scaling = analysis.scaling
    if not isinstance(scaling, Missing):
        # On busy cores a step's threads wait for their turn, which a trace takes for dispatch.
        launch = min(launch, scaling.at_nothing(), key=lambda each: each.value)
    return FixedCost(launch, analysis.host_item("loop"))


def is_tiny(analysis: Analysis) -> bool:
    """Say whether starting the step is a large share of it; not where that is not known."""
    job = analysis.measurements.job
    if job.run_eagerly or job.loop in ("custom", "unknown"):
        return False
    try:
        return analysis.crosses(analysis.share(fixed_cost(analysis).seconds), MOSTLY_FIXED)
    except Undecided:
        return False


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


def scaling_evidence(scaling: BatchScaling | Missing) -> list[Evidence]:
    """Show fixed cost and cost per row, with how well a line through the sizes fits, where that is known."""
    if isinstance(scaling, Missing):
        return []
    if isinstance(scaling.fixed, Missing) or isinstance(scaling.per_row, Missing):
        return []
    return [
        Evidence("fixed cost of a step, by its batch's size", scaling.fixed),
        Evidence("cost of each row", scaling.per_row),
        Evidence(
            "how well a line fits the sizes (R²)",
            Quantity(scaling.r_squared, "", source=f"{len(scaling.steps)} sizes", count=scaling.rounds),
        ),
    ]

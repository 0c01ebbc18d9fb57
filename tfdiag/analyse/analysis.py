"""Everything that checks look at, worked out once."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.analyse.breakdown import (
    InputFacts,
    ReplayFacts,
    bounds_of,
    break_down,
    input_facts,
    replay_facts,
)
from tfdiag.analyse.compute import Arithmetic, arithmetic
from tfdiag.analyse.device import DeviceFacts, device_facts, traced_step
from tfdiag.analyse.pipeline import PipelineModel, filling, pipeline_model
from tfdiag.analyse.scaling import BatchScaling, batch_scaling
from tfdiag.analyse.steady import Boundary, Steady, steady_state
from tfdiag.analyse.verdict import contention, crosses, judge, unsure_of
from tfdiag.model.measurements import Measurements
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Bounds, Step, Verdict

__all__ = ["Analysis", "analyse"]


@dataclass(frozen=True, slots=True)
class Analysis:
    """Measurements and what follows from them."""

    measurements: Measurements
    steady: Steady | Missing
    step: Step | Missing
    replay: ReplayFacts | Missing
    input_alone: InputFacts | Missing
    pipeline: PipelineModel | Missing
    bounds: Bounds
    verdict: Verdict
    filling: str = ""
    """The cache that was being filled for the first time all the while; empty if there is none."""
    device: DeviceFacts | Missing = Missing("the device was not traced")
    contended_s: float = 0.0
    """Seconds of a step by which the input's own work holds it up, beside what it waits."""
    scaling: BatchScaling | Missing = Missing("the step was not run at several batch sizes")
    arithmetic: Arithmetic | Missing = Missing("the operations of the step were not counted")

    def share(self, seconds: float) -> float:
        """Give seconds per step as a share of the mean step."""
        if isinstance(self.step, Missing) or self.step.mean_s <= 0:
            return 0.0
        return seconds / self.step.mean_s

    def crosses(self, share: float, threshold: float) -> bool:
        """Say whether a share of the step is above a threshold beyond this run's noise."""
        return not isinstance(self.step, Missing) and crosses(self.step, share, threshold)

    def segment(self, name: str) -> float:
        """Give the seconds of a segment, 0 where it is missing: for sums, not for judgements."""
        if isinstance(self.step, Missing):
            return 0.0
        value = self.step.segments[name]
        return value.value if isinstance(value, Quantity) else 0.0

    def between_epochs(self) -> tuple[float, float]:
        """Give what a step bears of epochs' ends and of their first batches: no input works ahead there."""
        steady, live = self.steady, self.measurements.live
        if isinstance(steady, Missing) or isinstance(live, Missing):
            return 0.0, 0.0
        if isinstance(steady.boundary, Missing) or isinstance(steady.calls_per_epoch, Missing):
            return 0.0, 0.0
        steps = max(1.0, steady.calls_per_epoch.value) * live.steps_per_call
        return steady.boundary.total_s / steps, steady.boundary.restart_s / steps

    def lasting_ends(self) -> float:
        """Give what of epochs' ends has nothing to do with the input: validation, callbacks, metrics."""
        ends, _ = self.between_epochs()
        if ends <= 0 or isinstance(self.steady, Missing) or isinstance(self.steady.boundary, Missing):
            return 0.0
        boundary = self.steady.boundary
        hooks = sum(seconds for _, _, seconds in boundary.callbacks)
        lasting = boundary.validation_s + hooks + boundary.metrics_s
        return ends * min(1.0, lasting / boundary.total_s)

    def host_item(self, name: str) -> float:
        """Give the seconds of one part of the host segment."""
        if isinstance(self.step, Missing):
            return 0.0
        return sum(item.per_step.value for item in self.step.host_items if item.name == name)

    def surely_host_item(self, name: str) -> float:
        """Give what that part takes at least, where it was seen too rarely to know."""
        return self.host_item(name) - (0.0 if isinstance(self.step, Missing) else unsure_of(self.step, name))


def analyse(measurements: Measurements) -> Analysis:
    """Work out everything that can be said about a run."""
    live = measurements.live
    steady: Steady | Missing = live if isinstance(live, Missing) else steady_state(live, measurements.job)
    replay = replay_facts(measurements.replay)
    alone = input_facts(measurements.input_alone)
    step: Step | Missing = (
        _traced(measurements, steady)
        if isinstance(steady, Missing)
        else break_down(measurements, steady, replay)
    )
    passed = isinstance(steady, Steady) and isinstance(steady.boundary, Boundary) and steady.boundary.followed
    batches = 0 if isinstance(live, Missing) else len(live.start_s) * live.steps_per_call
    fills = "" if passed else filling(measurements.pipeline, batches)
    contended = 0.0 if isinstance(step, Missing) else contention(step, alone)
    return Analysis(
        measurements=measurements,
        steady=steady,
        step=step,
        replay=replay,
        input_alone=alone,
        pipeline=pipeline_model(measurements.pipeline),
        bounds=bounds_of(measurements, steady, step, replay, alone),
        verdict=judge(measurements, step, fills, contended, alone),
        filling=fills,
        contended_s=contended,
        device=device_facts(measurements.device, 1 if isinstance(live, Missing) else live.steps_per_call),
        scaling=batch_scaling(measurements.scaling),
        arithmetic=arithmetic(
            measurements.compute, step if isinstance(step, Missing) else step.segments["device_compute"]
        ),
    )


def _traced(measurements: Measurements, missing: Missing) -> Step | Missing:
    """Give the step as a trace alone tells it, where nothing was run."""
    if measurements.job.loop != "unknown" or isinstance(measurements.device, Missing):
        return missing
    return traced_step(measurements.device)

"""Numbers that several checks hold against their thresholds."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.device import DeviceFacts
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import Load, feed
from tfdiag.checks.registry import Undecided
from tfdiag.model.device import Copies
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Evidence

__all__ = [
    "COST_SHARE", "Bottleneck", "bottleneck", "bytes_evidence", "copy_evidence", "device", "input_wait",
    "mean", "pipeline", "segment", "share", "stage_evidence", "wait_evidence", "waits", "watched",
]  # fmt: skip

COST_SHARE = 0.05
"""Below this share of the step nothing is worth a finding."""
_EXPLAINED = 0.5
"""The part of a batch's time that the known stages must make where others have no time."""


def share(value: float, count: int | None = None, source: str = "of the mean step") -> Quantity:
    """Write a share of the step as a quantity."""
    return Quantity(value, "share", source=source, count=count)


def input_wait(analysis: Analysis) -> float:
    """Give the wait per step, or say why it is not known."""
    assert not isinstance(analysis.step, Missing)
    wait: Maybe = analysis.step.segments["input_wait"]
    if isinstance(wait, Missing):
        raise Undecided(f"the wait for input is not known: {wait.reason}")
    if analysis.filling:
        raise Undecided(
            f"{analysis.filling} was being filled all the while: what the input takes after that was not seen"
        )
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


def waits(analysis: Analysis) -> float:
    """Give the share of the step that its input costs it, 0 where it is not worth a finding.

    That is the wait, and what the input takes from the step by working beside it, where that is much.
    """
    cost = analysis.share(input_wait(analysis) + analysis.contended_s)
    return cost if analysis.crosses(cost, COST_SHARE) else 0.0


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The stage that the step waits for most."""

    model: PipelineModel
    stage: StageTime
    load: Load
    """What it is a part of: everything that the same thread does for a batch."""

    @property
    def part(self) -> float:
        """Give the stage's part of that work."""
        whole = sum(stage.per_batch_s for stage in self.load.stages)
        return self.stage.per_batch_s / whole if whole > 0 else 1.0


def bottleneck(analysis: Analysis) -> Bottleneck:
    """Give the stage that the step waits for, or say why it is not known."""
    model = pipeline(analysis)
    if not model.known:
        raise Undecided(
            "the stages of this pipeline have no times: tf.data keeps no model of it, and nothing was sampled"
        )
    load = feed(model).limit
    untimed = [stage.label for stage in model.stages if not stage.timed]
    alone = analysis.input_alone
    if untimed and not isinstance(alone, Missing) and load.seconds < _EXPLAINED * alone.batch.value:
        raise Undecided(
            f"the budget left {', '.join(untimed)} without a time, and the others don't explain it"
        )
    busy = [stage for stage in load.stages if stage.per_batch_s > 0]
    if not busy:
        raise Undecided("no stage of the pipeline took any time")
    return Bottleneck(model, max(busy, key=lambda stage: stage.per_batch_s), load)


def stage_evidence(stage: StageTime) -> Evidence:
    """Show what a stage costs for a batch."""
    source = "this stage alone, on one thread" if stage.sampled else "tf.data model"
    return Evidence(
        f"time of {stage.label} for a batch",
        Quantity(stage.per_batch_s, "s", stage.low_s, stage.high_s, source=source)
        if stage.low_s <= stage.per_batch_s <= stage.high_s
        else Quantity(stage.per_batch_s, "s", source=source),
    )


def wait_evidence(analysis: Analysis, threshold: float) -> Evidence:
    """Show the wait against the threshold that it crossed."""
    assert not isinstance(analysis.step, Missing)
    wait = analysis.step.segments["input_wait"]
    assert isinstance(wait, Quantity)
    limit = Quantity(threshold * analysis.step.mean_s, "s", origin="given")
    if analysis.contended_s > 0:
        lost = Quantity(
            wait.value + analysis.contended_s,
            "s",
            source=f"{wait.source}; the live step less its wait and the replay without input",
        )
        return Evidence("wait for input and for what its work takes from the step", lost, limit, "above")
    return Evidence("wait for input per step", wait, limit, "above")


def watched(analysis: Analysis) -> None:
    """Make sure that a job was run and looked at, and not a trace alone."""
    if isinstance(analysis.measurements.live, Missing):
        raise Undecided(analysis.measurements.live.reason)


def mean(analysis: Analysis) -> float:
    """Give the mean step."""
    assert not isinstance(analysis.step, Missing)
    return analysis.step.mean_s


def device(analysis: Analysis) -> DeviceFacts | None:
    """Give what was traced of the device, None where there is none, or say why nothing was traced."""
    if isinstance(analysis.device, Missing):
        if all(each.kind == "CPU" for each in analysis.measurements.environment.devices):
            return None
        raise Undecided(analysis.device.reason)
    return analysis.device


def segment(analysis: Analysis, name: str) -> float:
    """Give the seconds of a segment, or say why they are not known."""
    assert not isinstance(analysis.step, Missing)
    value = analysis.step.segments[name]
    if isinstance(value, Missing):
        raise Undecided(f"{name} is not known: {value.reason}")
    return value.value


def copy_evidence(analysis: Analysis, threshold: float) -> Evidence:
    """Show for how long the device does nothing but wait for copies, against the threshold."""
    return Evidence(
        "the device waits for copies to it, per step",
        Quantity(segment(analysis, "host_to_device"), "s", source="device trace"),
        Quantity(threshold * mean(analysis), "s", origin="given"),
        "above",
    )


def bytes_evidence(traced: DeviceFacts, copies: Copies) -> list[Evidence]:
    """Show how much crosses the bus in a step and how fast, where the trace tells."""
    if isinstance(copies.bytes, Missing) or isinstance(copies.bandwidth, Missing):
        return []
    return [
        Evidence("bytes to the device per step", copies.bytes.scaled(traced.per_step(1.0))),
        Evidence("bandwidth", copies.bandwidth),
    ]

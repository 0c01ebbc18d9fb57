"""Speed-ups against what can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, analysed, chain, sampled
from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.analyse.prediction import with_cache, with_prefetch
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.remedies.gain import (
    computing_share,
    gain_of,
    gain_with_input_at,
    gain_without,
    hidden_by,
    pace_with,
    spanning,
    speedup,
)


def three(gain: Maybe) -> tuple[float, float, float]:
    """Give low, value and high of a gain."""
    assert isinstance(gain, Quantity)
    assert gain.unit == "x"
    assert gain.origin == "estimated"
    assert gain.low is not None
    assert gain.high is not None
    return gain.low, gain.value, gain.high


STEP: dict[str, Any] = {"wait": 60 * MS, "compute": 39 * MS, "dispatch": 1 * MS}
"""A step of 100 ms, of which 60 ms are waits."""


def test_speedup_is_the_mean_over_what_is_left():
    """Times turn into speed-ups, the slow end into the low one."""
    assert three(speedup(analysed(**STEP), 50 * MS, 40 * MS, 80 * MS, "")) == pytest.approx((1.25, 2, 2.5))


def test_speedup_keeps_its_ends_in_order():
    """Ends on the wrong side of the value are moved to it."""
    found = three(speedup(analysed(**STEP), 50 * MS, 60 * MS, 40 * MS, ""))
    assert found == pytest.approx((2, 2, 2))


def test_without_gives_what_goes_away():
    """Half of the step gone is twice as fast; the interval comes from how much of it really goes."""
    found = gain_without(analysed(**STEP), 50 * MS, at_least=0.8, at_most=1.1, source="")
    assert three(found) == pytest.approx((100 / 60, 2, 100 / 45))


def test_what_stays_does_not_melt_away():
    """Five per cent more than 98 ms of 100 is more than the step; what stays is still half of 2 ms."""
    found = gain_without(analysed(**STEP), 98 * MS, at_least=0.9, at_most=1.05, source="")
    assert three(found) == pytest.approx((100 / 11.8, 50, 100))


def test_input_behind_the_step_is_hidden():
    """An input that is faster than the rest of the step costs nothing once it works ahead."""
    assert three(gain_with_input_at(analysed(**STEP), 20 * MS, 1.5, "")) == pytest.approx((2.5, 2.5, 2.5))


def test_input_before_the_step_sets_the_pace():
    """An input that is slower than the rest decides, with its spread; it may be a tenth faster."""
    found = three(gain_with_input_at(analysed(**STEP), 50 * MS, 1.25, ""))
    assert found == pytest.approx((100 / 62.5, 2, 100 / 45))
    best = three(gain_with_input_at(analysed(**STEP), 50 * MS, 1.25, "", best_s=25 * MS))
    assert best == pytest.approx((100 / 62.5, 2, 2.5))


def test_a_slower_input_gains_nothing():
    """A prediction never makes the step slower than it is."""
    found = three(gain_with_input_at(analysed(**STEP), 300 * MS, 2.0, "", best_s=150 * MS))
    assert found == pytest.approx((1, 1, 1))


def test_processor_time_is_the_floor():
    """Input and step that compute all the time share the cores, whatever overlaps."""
    busy = {"input_alone": 60 * MS, "input_cpu": 1.0, "replay_cpu": 1.0}
    one = three(gain_with_input_at(analysed(**STEP, **busy, cores=1), 10 * MS, 1.2, ""))
    assert one == pytest.approx((1, 1, 2.5))
    two = three(gain_with_input_at(analysed(**STEP, **busy, cores=2), 10 * MS, 1.2, ""))
    assert two == pytest.approx((2, 2, 2.5))


def test_the_floor_is_per_step():
    """The replay's processor time is that of a call, which makes several steps."""
    busy = {"input_alone": 15 * MS, "input_cpu": 1.0, "replay_cpu": 1.0}
    found = three(gain_with_input_at(analysed(**STEP, **busy, cores=1, steps_per_call=4), 1 * MS, 1.2, ""))
    assert found == pytest.approx((1, 1, 2.5))
    found = three(gain_with_input_at(analysed(**STEP, **busy, cores=2, steps_per_call=4), 1 * MS, 1.2, ""))
    assert found == pytest.approx((2, 2, 2.5))


def test_without_a_step_there_is_no_gain():
    """Every prediction is missing then, for the step's own reason."""
    short = analysed(calls_per_epoch=2)
    assert isinstance(short.step, Missing)
    assert speedup(short, 1.0, 1.0, 1.0, "") == short.step
    assert gain_without(short, 1.0, at_least=1, at_most=1, source="") == short.step
    assert gain_with_input_at(short, 1.0, 1.0, "") == short.step


@pytest.mark.parametrize(("cpu", "share"), [(0.2, 0.2), (1.0, 1.0), (3.0, 1.0)])
def test_the_input_computes_for_a_part_of_its_time(cpu: float, share: float):
    """Processor time over time, and never more than all of it."""
    assert computing_share(analysed(**STEP, input_alone=30 * MS, input_cpu=cpu)) == pytest.approx(share)


def test_an_input_that_was_not_read_alone_may_do_either():
    """Half is the guess where nothing was measured."""
    assert computing_share(analysed(**STEP)) == 0.5


def test_spanning_takes_the_outer_ends():
    """The value stays, the interval reaches as far as any of them."""
    one, other = Quantity(2.0, "x", 1.8, 2.2), Quantity(3.0, "x", 2.9, 3.1)
    assert spanning(one, other, Missing("nobody knows")) == Quantity(2.0, "x", 1.8, 3.1)
    assert spanning(one, Quantity(1.5, "x")) == Quantity(2.0, "x", 1.5, 2.2)
    assert spanning(Missing("gone"), one) == Missing("gone")


def test_a_prefetch_hides_what_the_step_has_room_for():
    """40 ms of the step hide 40 of the 60 ms that the input takes; the rule says the same of half a wait."""
    of = chain(("Range", 0.0), ("Map", 60 * MS), ("BatchV2", 0.0))
    analysis = analysed(**STEP, pipeline=of)
    assert isinstance(analysis.pipeline, PipelineModel)
    assert hidden_by(analysis, with_prefetch(analysis.pipeline)) == pytest.approx(40 / 60)
    assert hidden_by(analysis, analysis.pipeline) == 0
    assert hidden_by(analysed(calls_per_epoch=2), analysis.pipeline) == 0


def test_a_changed_pipeline_is_no_slower_than_it_is():
    """The interval of a prediction ends at what the job takes already."""
    of = chain(("Range", 0.0), ("Map", 60 * MS), ("BatchV2", 0.0))
    analysis = analysed(**STEP, pipeline=of)
    assert isinstance(analysis.pipeline, PipelineModel)
    assert three(gain_of(analysis, analysis.pipeline, "")) == pytest.approx((1, 1, 1.1))


def short(**ends: Any) -> Analysis:
    """Give a job of 100 ms a step, of which 60 wait for a map, with 20 ms of epochs' ends on top."""
    parts = (
        Part("TensorSlice", "from_tensor_slices(…)", node={"cardinality": 500}),
        Part("Map", "map(decode)", 10 * MS, 0.5, {"cardinality": 500}),
        Part("Batch", "batch(10)", node={"size": 10}),
    )
    fed = sampled(*parts, prefetch_injected=True)
    return analysed(**STEP, epochs=6, calls_per_epoch=50, pipeline=fed, **ends)


def ends_after_a_cache(analysis: Analysis) -> float:
    """Give the seconds of a step that its epochs' ends are predicted to take with everything cached."""
    model = analysis.pipeline
    assert isinstance(model, PipelineModel)
    cached = with_cache(model, next(stage for stage in model.stages if stage.label == "map(decode)"))
    with_ends = pace_with(analysis, cached).seconds
    return with_ends - pace_with(short(), cached).seconds


def test_the_end_of_an_epoch_gets_shorter_with_it():
    """An iterator that is younger is taken down sooner: ends keep their share of the epoch."""
    assert ends_after_a_cache(short(between_epochs=1.0)) == pytest.approx(20 * MS * 0.4, rel=0.05)


def test_what_has_nothing_to_do_with_the_input_stays():
    """Validation and callbacks at the ends of epochs take what they took."""
    assert ends_after_a_cache(short(validation=1.0)) == pytest.approx(20 * MS, rel=0.05)
    assert ends_after_a_cache(short(epoch_callbacks={"Saves": 1.0})) == pytest.approx(20 * MS, rel=0.05)

"""What the steady state of a run of known make-up comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, Cut, Synthetic
from tfdiag.analyse.steady import Boundary, Steady, steady_state
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.stats import Estimate


def state(**parts: Any) -> Steady | Missing:
    """Give the steady state of a job."""
    measured = Synthetic(**parts).measurements()
    assert isinstance(measured.live, Live)
    return steady_state(measured.live, measured.job)


def steady(**parts: Any) -> Steady:
    """Give the steady state of a job that has one."""
    found = state(**parts)
    assert isinstance(found, Steady)
    return found


def boundary(**parts: Any) -> Boundary:
    """Give what lies between the epochs of a job that has some."""
    found = steady(**parts).boundary
    assert isinstance(found, Boundary)
    return found


def test_means_are_per_call():
    """Period, call, wait and what lies between are the given ones, and the first call is not among them."""
    found = steady(wait=4 * MS, compute=5 * MS, dispatch=1 * MS, loop=0.5 * MS, callbacks={"Log": 1.5 * MS})
    assert found.period.value == pytest.approx(12 * MS)
    assert found.median.value == pytest.approx(12 * MS)
    assert found.duration.value == pytest.approx(10 * MS)
    assert isinstance(found.wait, Estimate)
    assert found.wait.value == pytest.approx(4 * MS)
    assert found.between.value == pytest.approx(2 * MS)
    assert found.first >= 1


def test_the_first_call_stands_beside():
    """Tracing in the first call is a cost of its own: the call less a steady one."""
    found = steady(wait=2 * MS, compute=9 * MS, first_call=3.0)
    assert isinstance(found.first_call, Quantity)
    assert found.first_call.value == pytest.approx(3.012)
    assert isinstance(found.compile_once, Quantity)
    assert found.compile_once.value == pytest.approx(3.0, rel=0.01)
    assert found.compile_s == 0


def test_without_a_trace_nothing_was_compiled():
    """A first call that did not trace says nothing about compilation."""
    assert isinstance(steady(first_call=0.0).compile_once, Missing)


def test_dropped_calls_take_the_first_one_with_them():
    """Once old calls are dropped, the first call is not known, and indices still fit."""
    whole = Synthetic(retraces=tuple(range(110, 200, 10)), retrace=50 * MS).measurements()
    assert isinstance(whole.live, Live)
    kept = replace(
        whole.live,
        start_s=whole.live.start_s[50:],
        duration_s=whole.live.duration_s[50:],
        wait_s=whole.live.wait_s[50:],
        traced=tuple(call for call in whole.live.traced if call >= 50),
        first_call_index=50,
    )
    found = steady_state(kept, whole.job)
    assert isinstance(found, Steady)
    assert isinstance(found.first_call, Missing)
    assert isinstance(found.compile_once, Missing)
    assert found.traces == 9
    assert found.compile_s == pytest.approx(9 * 50 * MS / found.calls)


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_too_few_calls_are_no_steady_state(calls: int):
    """Up to three calls give no two steady ones, and the reason says how many there were."""
    found = state(calls_per_epoch=calls)
    assert isinstance(found, Missing)
    assert str(calls if calls < 3 else 1) in found.reason


def test_four_calls_are_enough():
    """Two steady calls are the least to judge by."""
    assert steady(calls_per_epoch=4).calls == 2


def test_the_reason_says_why_there_are_so_few():
    """A run that was cut short says so where its steps are missed."""
    found = state(calls_per_epoch=2, live={"cut": "the budget ran out"})
    assert isinstance(found, Missing)
    assert "the budget ran out" in found.reason


def test_waits_of_half_the_calls_are_enough():
    """Waits that are known for half of the steady calls stand for all; for fewer they are missing."""
    whole = Synthetic(wait=3 * MS, noise=0.01).measurements()
    assert isinstance(whole.live, Live)

    def with_waits(every: int) -> Estimate | Missing:
        assert isinstance(whole.live, Live)
        waits = tuple(wait if i % every == 0 else float("nan") for i, wait in enumerate(whole.live.wait_s))
        found = steady_state(replace(whole.live, wait_s=waits), whole.job)
        assert isinstance(found, Steady)
        return found.wait

    half = with_waits(2)
    assert isinstance(half, Estimate)
    assert half.value == pytest.approx(3 * MS, rel=0.01)
    assert with_waits(3) == Missing("the waits of too few calls are known")


def test_a_missing_wait_says_why():
    """What the runtime did not tell is missing with its reason, never zero."""
    found = steady(wait=3 * MS, waits=False).wait
    assert found == Missing("the runtime keeps no model of this pipeline")


def test_two_retraces_are_single_events():
    """Two traces after the warm-up are told, but left out of the mean, as no condition of the job."""
    found = steady(retraces=(120, 150), retrace=40 * MS)
    assert (found.traces, found.compile_s) == (2, 0)
    assert found.period.value == pytest.approx(11 * MS)


def test_retraces_that_go_on_are_part_of_the_step():
    """Three and more traces in the steady state cost their time in the mean."""
    found = steady(retraces=(110, 130, 150, 170), retrace=40 * MS)
    assert found.traces == 4
    assert found.compile_s == pytest.approx(4 * 40 * MS / found.calls)
    assert found.period.value == pytest.approx(11 * MS + found.compile_s)


@pytest.mark.parametrize("every", [2, 3, 10])
def test_retraces_of_most_calls_are_told_from_the_others(every: int):
    """However many calls trace, what they take longer than those that don't is compilation."""
    often = tuple(call for call in range(1, 200) if call % every)
    found = steady(retraces=often, retrace=40 * MS, noise=0.001)
    assert found.compile_s == pytest.approx(40 * MS * (1 - 1 / every), rel=0.05)


def test_the_steady_state_begins_behind_an_early_trace():
    """A second trace soon after the first is warm-up, however fast."""
    found = steady(retraces=(30,), retrace=0.5 * MS, noise=0.02)
    assert found.first > 30


def test_callbacks_are_spread_over_calls():
    """Each method of each callback has its time for a call, and is counted."""
    shares = {share.callback: share for share in steady(callbacks={"A": 2 * MS, "B": 3 * MS}).callbacks}
    assert shares["A"].per_call_s == pytest.approx(2 * MS)
    assert shares["B"].per_call_s == pytest.approx(3 * MS)
    assert shares["A"].method == "on_train_batch_end"
    assert shares["A"].count >= 100


def test_callbacks_of_the_warm_up_do_not_count():
    """What a callback does at first, before the steady state, is not spread over all calls."""
    made = Synthetic(callbacks={"A": 2 * MS}).measurements()
    assert isinstance(made.live, Live)
    first, *others = made.live.callbacks
    slow_start = (replace(first, total_s=first.total_s + 5.0), *others)
    found = steady_state(replace(made.live, callbacks=slow_start), made.job)
    assert isinstance(found, Steady)
    (share,) = found.callbacks
    assert share.per_call_s == pytest.approx(2 * MS)


def test_a_single_block_of_callbacks_is_used():
    """A run of one block has no steady one; it stands for the job all the same."""
    (share,) = steady(calls_per_epoch=30, callbacks={"A": 2 * MS}).callbacks
    assert share.per_call_s == pytest.approx(2 * MS)


def test_the_length_of_an_epoch_is_known_or_seen():
    """The job's own number counts, per call; without one, the median of the epochs seen."""
    known = steady(calls_per_epoch=50, epochs=3, steps_per_call=4).calls_per_epoch
    assert isinstance(known, Quantity)
    assert (known.value, known.unit) == (50, "calls")
    seen = steady(calls_per_epoch=40, epochs=4, epoch_known=False).calls_per_epoch
    assert isinstance(seen, Quantity)
    assert (seen.value, seen.count) == (40, 3)
    assert isinstance(steady(epoch_known=False).calls_per_epoch, Missing)


def test_outliers_are_counted_and_kept():
    """A late slow call is an outlier, and in the mean."""
    found = steady(noise=0.01, extra={150: 0.2, 160: 0.2})
    assert found.outliers == 2
    assert found.period.value == pytest.approx(11 * MS + 0.4 / found.calls, rel=0.01)


def test_no_end_of_an_epoch_no_boundary():
    """A run within its first epoch says nothing of what lies between epochs."""
    assert isinstance(steady(ends=False).boundary, Missing)


def test_between_epochs_is_the_gap_less_a_usual_one():
    """Callbacks, validation and the rest between two epochs add up to the given gap."""
    found = boundary(
        epochs=5,
        calls_per_epoch=40,
        loop=1 * MS,
        callbacks={"Batch": 2 * MS},
        epoch_callbacks={"Save": 30 * MS},
        between_epochs=7 * MS,
        validation=200 * MS,
    )
    assert (found.epochs, found.followed) == (5, 4)
    assert found.total_s == pytest.approx(237 * MS)
    assert found.validation_s == pytest.approx(200 * MS)
    assert found.callbacks == (("Save", "on_epoch_end", pytest.approx(30 * MS)),)
    assert found.restart_s == pytest.approx(0, abs=1e-9)


def test_an_end_without_a_next_epoch_tells_its_callbacks_only():
    """After a single epoch its callbacks and validation count, and nothing is made up for the rest."""
    found = boundary(epoch_callbacks={"Save": 30 * MS}, between_epochs=99.0, validation=200 * MS)
    assert (found.epochs, found.followed) == (1, 0)
    assert found.total_s == pytest.approx(230 * MS)


def test_the_first_batch_of_an_epoch_waits_longer():
    """What the first call of an epoch takes longer counts once an epoch, and not in the steady calls."""
    found = steady(wait=2 * MS, epochs=10, calls_per_epoch=20, restart=50 * MS)
    assert isinstance(found.boundary, Boundary)
    assert found.boundary.restart_s == pytest.approx(50 * MS)
    assert found.period.value == pytest.approx(13 * MS)
    assert isinstance(found.wait, Estimate)
    assert found.wait.value == pytest.approx(2 * MS)


@pytest.mark.parametrize("length", [1, 2])
def test_short_epochs_stand_for_themselves(length: int):
    """Where an epoch has one or two calls, all of them count, without what lies between epochs."""
    found = steady(
        wait=2 * MS,
        callbacks={"Batch": 1 * MS},
        epochs=60,
        calls_per_epoch=length,
        restart=4 * MS,
        epoch_callbacks={"Save": 30 * MS},
        validation=50 * MS,
    )
    assert found.duration.value == pytest.approx((13 + 4 / length) * MS, rel=0.02)
    assert found.period.value == pytest.approx((14 + 4 / length) * MS, rel=0.02)
    assert isinstance(found.boundary, Boundary)
    assert found.boundary.total_s == pytest.approx(80 * MS)
    assert found.boundary.validation_s == pytest.approx(50 * MS)
    assert found.boundary.restart_s == 0


def test_rare_validations_are_spread_over_all_epochs():
    """With validation_freq=3 a third of a validation falls on each epoch, and the rest is not mistaken."""
    found = boundary(
        epochs=9, calls_per_epoch=30, validation=90 * MS, validation_freq=3, between_epochs=5 * MS
    )
    assert found.validation_s == pytest.approx(30 * MS)
    # Two of the three validations lie in the eight gaps that were seen.
    assert found.total_s == pytest.approx(35 * MS)


def test_the_first_validation_traces():
    """Only later validations count, once there are some; between epochs nothing of the first one is left."""
    found = boundary(epochs=4, calls_per_epoch=30, validation=60 * MS, validation_first=2.0)
    assert found.validation_s == pytest.approx(60 * MS)
    assert found.total_s == pytest.approx(60 * MS)
    alone = boundary(calls_per_epoch=30, validation=60 * MS, validation_first=2.0)
    assert alone.validation_s == pytest.approx(2.0)


def test_a_cut_validation_is_extrapolated():
    """A validation that was cut short is as long as its steps at the rate seen, plus what is fixed."""
    cut = Cut(calls=10, of_steps=400, call_s=3 * MS)
    found = boundary(validation_cut=cut, steps_per_call=2)
    assert found.validation_s == pytest.approx(200 * 3 * MS + 5 * MS)
    assert found.validation_note == "cut short after 10 of 200 calls and extrapolated"
    rare = boundary(validation_cut=cut, steps_per_call=2, validation_freq=2, epochs=2)
    assert rare.validation_s == pytest.approx((200 * 3 * MS + 5 * MS) / 2)


@pytest.mark.parametrize("cut", [Cut(10, None, 3 * MS), Cut(2, 400, 3 * MS, rate_known=False)])
def test_a_cut_validation_of_unknown_length_is_a_lower_end(cut: Cut):
    """Without length or rate, the time seen counts, and the note says that it is the least."""
    found = boundary(validation_cut=cut)
    assert found.validation_s == pytest.approx(cut.calls * 3 * MS + 5 * MS)
    assert found.validation_note == "cut short: at least this long"

"""What is written down of a loop: calls, waits, callbacks, events, and when it looks."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.fakes import FakeClock, TickingClock
from tfdiag.collect import recorder as subject
from tfdiag.collect.recorder import Recorder
from tfdiag.collect.worker import EndOfRun
from tfdiag.compat.tfdata import RunningStages
from tfdiag.model.measurements import CallbackTime
from tfdiag.model.pipeline import Stage
from tfdiag.model.quantity import Missing, Quantity


class FakePipeline:
    """An iterator whose waits are known, with the runtime's memory of 100 gaps."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.missing = ""
        self.gone = False
        self.taken = 0
        self._gaps: list[float] = []
        self._last = math.nan

    def take(self, wait: float) -> None:
        """Take a batch that has to be waited for."""
        if self.taken:
            self._gaps.append(self.clock() - self._last)
        self.clock.advance(wait)
        self._last = self.clock()
        self.taken += 1

    def run_out(self) -> None:
        """Ask for a batch when there is none: the runtime counts the gap before that too."""
        self._gaps.append(self.clock() - self._last)
        self._last = self.clock()

    def gaps(self, iterator: Any) -> tuple[int, list[float]] | None:
        """Answer as `ModelReader` does."""
        return (self.taken, self._gaps[-100:]) if iterator is self else None

    def stages(self, iterator: Any) -> RunningStages:
        """Answer as `ModelReader` does."""
        taken = self.taken
        return RunningStages(taken, 0, lambda: (Stage(taken, "Root"),))


@pytest.fixture
def clock() -> FakeClock:
    """Give a clock that stands still."""
    return FakeClock()


@pytest.fixture
def piped(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Give what makes a recorder of a fake pipeline, and a train function with known waits."""
    monkeypatch.setattr(subject, "is_iterator", lambda value: isinstance(value, FakePipeline))

    def make(per_call: int = 1, **kwargs: Any) -> tuple[Recorder, FakePipeline, Callable[..., None]]:
        recorder, pipeline = Recorder(clock, steps_per_call=per_call, **kwargs), FakePipeline(clock)
        recorder._reader = pipeline  # type: ignore[assignment]

        def train(iterator: FakePipeline) -> None:
            for wait in waits_of_call:
                iterator.take(wait)
                clock.advance(0.5 + 0.001 * iterator.taken)  # the step; no gap is like another

        wrapped = recorder.instrument(train, None)
        waits_of_call: list[float] = []

        def call(*waits: float) -> None:
            waits_of_call[:] = waits
            wrapped(pipeline)
            clock.advance(0.25 + 0.01 * len(recorder.calls))

        return recorder, pipeline, call

    return make


@pytest.mark.parametrize("per_call", [1, 2, 3, 7])
@pytest.mark.parametrize("calls", [2, 4, 5, 13])
def test_each_call_has_the_waits_of_its_own_batches(piped: Any, per_call: int, calls: int) -> None:
    """The wait of a call is that of the batches it took, whatever their number; the last is not known."""
    recorder, pipeline, call = piped(per_call)
    expected = []
    for k in range(calls):
        waits = [0.1 * (k + 1) + 0.01 * j for j in range(per_call)]
        call(*waits)
        expected.append(sum(waits))
    recorder.look(pipeline)
    assert recorder.waits[:-1] == pytest.approx(expected[:-1])
    assert math.isnan(recorder.waits[-1])


@pytest.mark.parametrize("per_call", [1, 2, 3, 10, 49])
def test_looks_in_between_lose_no_wait(piped: Any, per_call: int) -> None:
    """Looks come often enough for the runtime's memory of 100 gaps, whatever the steps of a call."""
    recorder, pipeline, call = piped(per_call)
    for k in range(260):
        call(*[0.001 * (k + 1) / per_call] * per_call)
    recorder.look(pipeline)
    waits = recorder.waits
    assert len(waits) == 260
    assert [round(1000 * wait) for wait in waits[:-1]] == list(range(1, 260))


def test_steps_too_many_for_the_runtimes_memory_are_said(piped: Any) -> None:
    """A call with more batches than the runtime remembers gaps of has no wait, and the reason."""
    recorder, pipeline, call = piped(101)
    for _ in range(6):
        call(*[0.01] * 101)
    recorder.look(pipeline)
    assert all(math.isnan(wait) for wait in recorder.waits)
    assert "too few gaps" in recorder.live().wait_missing


def test_waits_of_an_epoch_stay_when_the_next_has_another_iterator(piped: Any, clock: FakeClock) -> None:
    """A new iterator's gaps belong to the calls since it began."""
    recorder, first, call = piped()
    for wait in (0.1, 0.2, 0.3):
        call(wait)
    recorder.look(first)
    second = FakePipeline(clock)

    def train(iterator: FakePipeline) -> None:
        iterator.take(0.7)

    recorder._reader = second  # type: ignore[assignment]
    step = recorder.instrument(train, None)
    for _ in range(3):
        step(second)
        clock.advance(1.0)
    recorder.look(second)
    known = [round(wait, 6) for wait in recorder.waits if not math.isnan(wait)]
    assert known == [0.1, 0.2, 0.7, 0.7]
    assert [math.isnan(wait) for wait in recorder.waits] == [False, False, True, False, False, True]


@pytest.mark.parametrize("calls", [5, 60, 130])
def test_asking_past_the_end_moves_no_wait(piped: Any, clock: FakeClock, calls: int) -> None:
    """The gap before a batch that never came is not taken for one between two batches."""
    recorder, pipeline, call = piped()
    for k in range(calls):
        call(0.01 * (k + 1))

    def over(iterator: FakePipeline) -> None:
        iterator.run_out()
        raise StopIteration

    with pytest.raises(StopIteration):
        recorder.instrument(over, None)(pipeline)
    recorder.look(pipeline)
    seen = [round(100 * wait) for wait in recorder.waits[:-1]]
    assert seen == list(range(1, calls))


def test_a_last_call_with_fewer_batches_moves_no_wait(piped: Any) -> None:
    """The end of the data inside a call of many steps leaves the waits of the calls before in place."""
    recorder, pipeline, call = piped(3)
    for k in range(4):
        call(0.1 * (k + 1), 0.1, 0.1)
    call(0.9)
    pipeline.run_out()
    recorder.look(pipeline)
    assert recorder.waits[:4] == pytest.approx([0.3, 0.4, 0.5, 0.6])


def test_waits_are_not_cut_off_at_zero(piped: Any, clock: FakeClock) -> None:
    """Noise of the clocks goes both ways, or it would add up to a wait."""
    recorder, pipeline, call = piped()
    for _ in range(3):
        call(0.0)
    pipeline._gaps[:] = [gap + 0.001 for gap in pipeline._gaps]
    recorder.look(pipeline)
    assert recorder.waits[:2] == pytest.approx([-0.001, -0.001])


def test_the_stages_of_a_steady_run_are_kept(piped: Any) -> None:
    """The first look reads the stages, and those of calls after the fortieth replace them."""
    recorder, _, call = piped()
    for _ in range(4):
        call(0.1)
    assert recorder.stages.output == 4
    for _ in range(40):
        call(0.1)
    assert recorder.stages.output == 40


def test_looks_are_many_at_first_and_rare_later(piped: Any) -> None:
    """Looks happen after 4, 10, 20 and 40 calls, then every 90: rare enough to cost nothing."""
    looks: list[int] = []
    recorder, _, call = piped(on_look=lambda r: looks.append(len(r.calls)))
    for _ in range(200):
        call(0.1)
    assert looks == [4, 10, 20, 40, 130]
    assert recorder.failed_call is None


def test_a_look_comes_at_once_when_time_is_up(piped: Any, clock: FakeClock) -> None:
    """From `stop_at` on every call is looked at, so that somebody can end the run."""
    looks: list[int] = []
    recorder, _, call = piped(on_look=lambda r: looks.append(len(r.calls)))
    call(0.1)
    recorder.hot.stop_at = clock() + 1.0
    call(0.1)
    assert looks == []
    call(0.1)
    assert looks == [3]


def test_an_aborted_run_is_unwound_after_the_call(piped: Any) -> None:
    """`abort` raises what no `except Exception` eats, after the call has been written down."""
    recorder, _, call = piped()
    call(0.1)
    recorder.abort = True
    recorder.hot.stop_at = -math.inf
    with pytest.raises(EndOfRun):
        call(0.1)
    assert len(recorder.calls) == 2
    assert not issubclass(EndOfRun, Exception)
    assert recorder.failed_call is None


def test_what_looks_cost_is_added_up(clock: FakeClock) -> None:
    """The time in looks, with what is decided in them, is known."""
    recorder = Recorder(clock, on_look=lambda _: clock.advance(0.2))
    recorder.look()
    recorder.look()
    assert recorder.looks_s == pytest.approx(0.4)


def test_the_time_of_each_call_is_kept(clock: FakeClock) -> None:
    """A call has its begin and end, and gives what the train function gave."""
    recorder = Recorder(clock)

    def train(iterator: Any) -> str:
        clock.advance(0.5)
        return f"logs of {iterator}"

    step = recorder.instrument(train, None)
    assert step("it") == "logs of it"
    clock.advance(0.25)
    step("it")
    assert recorder.calls == [(100.0, 100.5), (100.75, 101.25)]
    assert list(recorder.periods()) == [0.75]


def test_a_failed_call_is_counted_from_the_first(clock: FakeClock) -> None:
    """The index of a call that raised is kept, and the call is not among those that ended."""
    recorder = Recorder(clock)
    step = recorder.instrument(clock.taking(0.1), None)
    step(None)
    step(None)

    def broken(_: Any) -> None:
        raise ValueError("batch 2")

    with pytest.raises(ValueError, match="batch 2"):
        recorder.instrument(broken, None)(None)
    assert recorder.failed_call == 2
    assert len(recorder.calls) == 2


def test_the_end_of_the_data_is_no_failed_call(clock: FakeClock) -> None:
    """An epoch that ends inside the train function must not be blamed for what fails later."""
    recorder = Recorder(clock)
    for error in (StopIteration(), tf.errors.OutOfRangeError(None, None, "End of sequence")):

        def over(_: Any, error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)):
            recorder.instrument(over, None)(None)
        assert recorder.failed_call is None


def test_calls_that_traced_are_marked(clock: FakeClock) -> None:
    """A call after which the tracing count is higher is marked, also in the middle of a run."""
    traces = {"count": 0}
    recorder = Recorder(clock)
    plan = {0: 1.0, 5: 0.9, 6: 0.02, 9: 3.0}

    def train(_: Any) -> None:
        k = len(recorder.calls)
        clock.advance(plan.get(k, 0.01))
        traces["count"] += k in (0, 5, 9)

    step = recorder.instrument(train, lambda: traces["count"])
    for _ in range(12):
        step(None)
    assert recorder.traced == [0, 5, 9]


def test_traces_from_before_are_not_this_runs(clock: FakeClock) -> None:
    """A train function that was traced in an earlier fit has not been traced in this one."""
    recorder = Recorder(clock)
    step = recorder.instrument(clock.taking(0.1), lambda: 3)
    step(None)
    assert recorder.traced == []


def test_a_call_that_never_ended_is_not_among_the_traced(clock: FakeClock) -> None:
    """A step that traced and did not come back has no time of its own, so nothing may refer to it."""
    recorder = Recorder(clock)

    def train(_: Any) -> None:
        recorder.traces(0.5)
        if len(recorder.calls) == 2:
            raise RuntimeError("unwound")
        clock.advance(1.0)

    step = recorder.instrument(train, None)
    step(None)
    step(None)
    with pytest.raises(RuntimeError):
        step(None)

    live = recorder.live()
    assert live.traced == (0, 1)
    assert live.trace_s == (0.5, 0.5)


def test_callback_times_are_kept_by_block(clock: FakeClock) -> None:
    """Between two looks the times of a callback's method add up to one row; the open block shows too."""
    recorder = Recorder(clock)
    step = recorder.instrument(clock.taking(0.01), None)
    slow = recorder.time_callback("Slow", "on_train_batch_end", clock.taking(0.5))
    for _ in range(4):
        step(None)
        slow()
    step(None)
    slow()
    assert recorder.callbacks == [CallbackTime("Slow", "on_train_batch_end", 0, 4, 3, 1.5)]
    assert recorder.live().callbacks[1] == CallbackTime("Slow", "on_train_batch_end", 4, 1, 2, 1.0)
    assert len(recorder.callbacks) == 1


def test_a_callback_that_raises_is_timed(clock: FakeClock) -> None:
    """The time until a callback raised is its time, and its error goes on."""
    recorder = Recorder(clock)

    def fail() -> None:
        clock.advance(0.3)
        raise KeyError

    with pytest.raises(KeyError):
        recorder.time_callback("Bad", "on_epoch_end", fail)()
    assert recorder.live().callbacks == (CallbackTime("Bad", "on_epoch_end", 0, 0, 1, pytest.approx(0.3)),)


def test_a_callback_on_another_thread_does_not_end_a_look(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras runs batch hooks on a thread of its own; one that comes in the middle of a look does no harm."""
    recorder = Recorder(clock)
    other = recorder.time_callback("Other", "on_train_batch_end", clock.taking(0.1))
    recorder.time_callback("First", "on_train_batch_end", clock.taking(0.1))()
    recorder.time_callback("Second", "on_train_batch_end", clock.taking(0.1))()

    def interrupted(*args: Any) -> CallbackTime:
        other()
        return CallbackTime(*args)

    monkeypatch.setattr(subject, "CallbackTime", interrupted)
    recorder.instrument(clock.taking(0.1), None)(None)
    recorder.look()
    assert [row.callback for row in recorder.callbacks] == ["First", "Second"]


def test_epochs_without_a_step_are_counted(clock: FakeClock) -> None:
    """An epoch in which no call was made is known, or fit would go through such epochs for ever."""
    recorder = Recorder(clock)
    step = recorder.instrument(clock.taking(0.1), None)
    for calls in (2, 0, 1, 0):
        recorder.event("epoch_begin")
        for _ in range(calls):
            step(None)
        recorder.event("epoch_end")
    assert recorder.empty_epochs == 2
    assert [event.call for event in recorder.events] == [0, 2, 2, 2, 2, 3, 3, 3]


def test_events_say_when_and_after_how_many_calls(clock: FakeClock) -> None:
    """An event has its moment and the calls made by then."""
    recorder = Recorder(clock)
    recorder.event("train_begin")
    recorder.instrument(clock.taking(0.5), None)(None)
    recorder.event("train_end")
    events = [(event.kind, event.at_s, event.call) for event in recorder.events]
    assert events == [("train_begin", 100.0, 0), ("train_end", 100.5, 1)]


def test_old_calls_are_dropped(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; what is kept is consistent, and indices still count from the first call."""
    monkeypatch.setattr(subject, "_KEEP", 100)
    recorder, traces = Recorder(clock), {"count": 0}
    callback = recorder.time_callback("C", "on_train_batch_end", clock.taking(0.001))

    def train(_: Any) -> None:
        k = recorder.dropped + len(recorder.calls)
        traced = k in (0, 400)
        traces["count"] += traced
        clock.advance(5.0 if traced else 0.1)

    step = recorder.instrument(train, lambda: traces["count"])
    for k in range(450):
        if k % 50 == 0:
            recorder.event("epoch_begin")
        step(None)
        callback()
    assert recorder.dropped == 200
    live = recorder.live()
    assert live.first_call_index == 200
    assert len(live.start_s) == len(live.duration_s) == len(live.wait_s) == 250
    assert live.traced == (400,)
    assert live.duration_s[200] == pytest.approx(5.0)
    assert min(event.call for event in live.events) == 200
    assert min(row.first_call for row in live.callbacks) >= 200
    assert len(recorder.calls) <= 300


def test_events_are_bounded(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs without end take no memory without end; the newest events stay."""
    monkeypatch.setattr(subject, "_KEEP", 100)
    recorder = Recorder(clock)
    for _ in range(500):
        clock.advance(1.0)
        recorder.event("epoch_begin")
    assert len(recorder.events) <= 100
    assert recorder.events[-1].at_s == 600.0


def test_validation_is_timed(clock: FakeClock) -> None:
    """A validation has its span, its calls, and the rate that a pass without an end would go on at."""
    recorder = Recorder(clock)
    recorder.test_begins()
    clock.advance(0.5)
    plan = iter([3.0, 0.1, 0.1, 0.1, 0.1])
    step = recorder.instrument_test(lambda _: clock.advance(next(plan)), lambda: None)
    for _ in range(5):
        step(None)
        clock.advance(0.1)
    recorder.test_ends()
    (run,) = recorder.validations
    assert (run.begin_s, run.calls, run.complete) == (100.0, 5, True)
    assert run.end_s == pytest.approx(104.4)
    assert run.in_calls_s == pytest.approx(3.4)
    assert isinstance(run.steady_call_s, Quantity)
    assert run.steady_call_s.value == pytest.approx(0.2)
    assert [event.kind for event in recorder.events] == ["test_begin", "test_end"]


def test_a_short_validation_has_no_rate(clock: FakeClock) -> None:
    """Two calls say nothing about a rate, and the report says so."""
    recorder = Recorder(clock)
    recorder.test_begins()
    step = recorder.instrument_test(clock.taking(0.1), lambda: None)
    step(None)
    step(None)
    recorder.test_ends()
    assert recorder.validations[0].steady_call_s == Missing("fewer than three calls of the test function")


def test_validation_is_cut_when_time_is_up(clock: FakeClock) -> None:
    """From `test_stop_at` on the validation is asked to end, and is not called complete."""
    recorder, stops = Recorder(clock), []
    recorder.test_stop_at = 100.25
    recorder.test_begins()
    step = recorder.instrument_test(clock.taking(0.1), lambda: stops.append(clock()))
    for _ in range(3):
        step(None)
    recorder.test_ends()
    assert stops == pytest.approx([100.3])
    assert not recorder.validations[0].complete
    recorder.test_stop_at = math.inf
    recorder.test_begins()
    recorder.test_ends()
    assert recorder.validations[1].complete


def test_an_aborted_validation_is_unwound(clock: FakeClock) -> None:
    """`abort` ends a validation as it ends training, and what it read is let go of when all is taken off."""

    class Batches:
        """What a validation iterates over."""

    recorder, batches = Recorder(clock), Batches()
    recorder.test_begins()
    recorder.abort = True
    with pytest.raises(EndOfRun):
        recorder.instrument_test(clock.taking(0.1), lambda: None)(batches)
    gone = weakref.ref(batches)
    del batches
    recorder.let_go()
    assert gone() is None


def test_live_is_plain_and_the_recorder_goes_on(clock: FakeClock) -> None:
    """What is given is a picture of the moment, as long in each series; a missing wait has its reason."""
    recorder = Recorder(clock, steps_per_call=4)
    step = recorder.instrument(clock.taking(0.5), None)
    step(None)
    recorder.nan_loss, recorder.cut = True, "the budget ended"
    live = recorder.live()
    step(None)
    assert live.start_s == (100.0,)
    assert live.duration_s == (0.5,)
    assert len(live.wait_s) == 1 and math.isnan(live.wait_s[0])
    assert live.wait_missing == "fewer than two batches were taken from one iterator"
    assert (live.steps_per_call, live.nan_loss, live.cut) == (4, True, "the budget ended")
    assert len(recorder.live().start_s) == 2


def test_waits_that_a_loop_measures_itself_are_taken(clock: FakeClock) -> None:
    """A loop of the caller's own tells its waits, one a call."""
    recorder, waited = Recorder(clock), []

    def call(_: Any) -> None:
        waited.append(0.1 * (len(waited) + 1))

    step = recorder.instrument(call, None, waited=waited)
    for _ in range(6):
        step(None)
    live = recorder.live()
    assert live.wait_s == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert live.wait_missing == ""


def test_the_reason_of_the_runtime_is_told(piped: Any, clock: FakeClock) -> None:
    """Where the runtime has no model, its reason is the reason."""
    recorder, pipeline, _ = piped()
    pipeline.missing = "tf.data keeps no model"
    recorder.instrument(clock.taking(0.1), None)(None)
    assert recorder.live().wait_missing == "tf.data keeps no model"
    assert recorder.stages_missing() == "tf.data keeps no model"
    pipeline.missing = ""
    assert "too short" in recorder.stages_missing()


def test_overhead_is_the_wrapper_and_the_looks() -> None:
    """The cost of a step is what the wrapper adds to a call, and its share of the looks."""
    clock = TickingClock(0.001)
    recorder = Recorder(clock, steps_per_call=2)
    for _ in range(3):
        recorder.instrument(lambda _: None, None)(None)
    recorder.looks_s = 0.3
    overhead = recorder.overhead()
    # the wrapper looks at the clock twice; 3 calls share the looks; a call makes 2 steps
    assert overhead.value == pytest.approx((0.002 + 0.1) / 2, rel=0.01)
    assert overhead.unit == "s"
    assert len(recorder.calls) == 3


class FakeStamps:
    """What a stage of ours would have stamped."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.cost_s = 0.0

    def read(self) -> Any:
        """Answer as `Stamps` does."""
        read, self.at = self.at, []
        return np.array(read)


@pytest.fixture
def stamped(clock: FakeClock) -> Callable[..., Any]:
    """Give what makes a recorder with stamps, and a train function whose batch arrives after a while."""

    def make(**kwargs: Any) -> tuple[Recorder, FakeStamps, Callable[..., None]]:
        stamps = FakeStamps()
        recorder = Recorder(clock, stamps=stamps, **kwargs)

        def train(waits: tuple[float, ...]) -> None:
            for wait in waits:
                clock.advance(wait)
                stamps.at.append(clock())
            clock.advance(0.5)

        wrapped = recorder.instrument(train, None)

        def call(*waits: float) -> None:
            wrapped(waits)
            clock.advance(0.25)

        return recorder, stamps, call

    return make


def test_each_call_has_the_arrival_of_its_own_batch(stamped: Any) -> None:
    """Over many looks each call keeps when its batch arrived."""
    recorder, _, call = stamped()
    for k in range(300):
        call(0.001 * (k + 1))
    recorder.look()
    assert recorder.live().arrival_s == pytest.approx([0.001 * (k + 1) for k in range(300)])
    assert recorder.live().wait_s == pytest.approx([math.nan] * 300, nan_ok=True)


def test_calls_since_the_last_look_have_no_arrival_yet(stamped: Any) -> None:
    """What was not read is not known, and the series are as long as the calls."""
    recorder, _, call = stamped()
    for _ in range(6):  # the first look is after four
        call(0.1)
    found = recorder.live().arrival_s
    assert found == pytest.approx([0.1] * 4 + [math.nan] * 2, nan_ok=True)


def test_missing_and_foreign_stamps_move_no_arrival(stamped: Any, clock: FakeClock) -> None:
    """A call without a stamp, one with two, and stamps between calls leave the others as they are."""
    recorder, stamps, call = stamped()
    call(0.1)
    call()
    stamps.at.append(clock())  # a batch that somebody took between two calls
    clock.advance(0.1)
    call(0.2)
    call(0.3, 0.1)
    call(0.4)
    recorder.look()
    expected = [0.1, math.nan, 0.2, math.nan, 0.4]
    assert recorder.live().arrival_s == pytest.approx(expected, nan_ok=True)


def test_an_epochs_end_moves_no_arrival(stamped: Any, clock: FakeClock) -> None:
    """Asking past the end stamps nothing, and the next epoch's calls have their own batches."""
    recorder, stamps, call = stamped()

    def ends(_: Any) -> None:
        clock.advance(0.125)
        raise tf.errors.OutOfRangeError(None, None, "the end")

    for epoch in range(3):
        recorder.event("epoch_begin")
        for k in range(7):
            call(0.1 * (epoch + 1) + 0.01 * k)
        with pytest.raises(tf.errors.OutOfRangeError):
            recorder.instrument(ends, None)(None)
        recorder.look()
        recorder.event("epoch_end")
        stamps.at.append(clock())  # a new iterator's first batch, taken to see its shape
        clock.advance(0.1)
    expected = [0.1 * (epoch + 1) + 0.01 * k for epoch in range(3) for k in range(7)]
    assert recorder.live().arrival_s == pytest.approx(expected)


def test_what_stamps_cost_is_overhead(stamped: Any) -> None:
    """A stage of ours in the input is part of what the instrument adds to a step."""
    recorder, stamps, call = stamped()
    call(0.1)
    before = recorder.overhead()
    stamps.cost_s = 0.25
    after = recorder.overhead()
    assert after.value == pytest.approx(before.value + 0.25)
    assert "stamps" in after.source


def test_without_stamps_there_are_no_arrivals(clock: FakeClock) -> None:
    """The series is empty where nothing stamps."""
    recorder = Recorder(clock)
    recorder.instrument(clock.taking(0.1), None)(None)
    recorder.look()
    assert recorder.live().arrival_s == ()


def test_old_arrivals_are_dropped_with_their_calls(stamped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After many calls the arrivals are still those of the calls that are kept."""
    monkeypatch.setattr(subject, "_KEEP", 50)
    recorder, _, call = stamped()
    for k in range(400):
        call(0.001 * (k + 1))
    recorder.look()
    live = recorder.live()
    assert live.first_call_index > 0
    first = live.first_call_index
    assert live.arrival_s == pytest.approx([0.001 * (k + 1) for k in range(first, 400)])

"""Writes down what happens in a training loop, at a cost that nobody can see.

For each call of the train function it appends one pair of clock readings; all else happens in `look`,
every few dozen calls: the runtime's gaps between batches are joined with the calls (the wait of a call is
its period less the gap), and so are stamps of arriving batches where there are some, callback times are
moved into a block, and somebody may decide that it is enough.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from tfdiag.collect.arrivals import Arrivals, arrivals_of
from tfdiag.collect.worker import EndOfRun
from tfdiag.compat.tensorflow import end_of_data, in_function
from tfdiag.compat.tfdata import GAPS_KEPT, ModelReader, RunningStages, is_iterator
from tfdiag.compat.watch import Spent, Watch
from tfdiag.model.host_work import CallbackFacts
from tfdiag.model.measurements import LOOP, BoundaryEvent, CallbackTime, Live, ValidationRun
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.stats import median

__all__ = ["EventKind", "Recorder"]

_LOOKS = (4, 10, 20, 40)
"""Calls after which the first looks happen; later ones come every `_EVERY` calls."""
_EVERY = 90
_EVERY_S = 0.2
_EVERY_AT_MOST = 500
_GAP_WINDOW = 98
_PROBES = 2000
_KEEP = 50_000
"""Calls kept; older ones are dropped, so that weeks of training take no more memory than hours."""

EventKind = Literal[
    "train_begin", "epoch_begin", "epoch_end", "epoch_done", "test_begin", "test_end", "train_end"
]


class _Hot:
    """What is looked at in each step, close together."""

    __slots__ = ("inside", "latest", "muted", "next_look", "stop_at")

    def __init__(self, next_look: int) -> None:
        self.next_look = next_look
        self.stop_at = math.inf
        """Look after each call from this moment on."""
        self.muted = False
        """Pass on and leave no note: whoever hung this in has taken it off."""
        self.inside = False
        """A callback's hook runs: the steps that it makes are its own, not the job's."""
        self.latest: Any = None
        """The iterator that the latest batch came from, or does not come from."""


class Recorder:
    """The raw series of one training run."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        steps_per_call: int = 1,
        on_look: Callable[[Recorder], None] | None = None,
        stamps: Arrivals | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.clock = clock
        self.steps_per_call = steps_per_call
        self.calls: list[tuple[float, float]] = []
        self.waits: list[float] = []
        self.arrivals: list[float] = []
        self.traced: list[int] = []
        self.trace_s: dict[int, float] = {}
        """What tracing took in a call, where somebody watches."""
        self.held: list[int] = []
        self.events: list[BoundaryEvent] = []
        self.callbacks: list[CallbackTime] = []
        self.facts: list[CallbackFacts] = []
        """What the callbacks of the running `fit` are."""
        self.validations: list[ValidationRun] = []
        self.dropped = 0
        self.cut = ""
        self.nan_loss = False
        self.hung_in_input = False
        self.failed_call: int | None = None
        self.stages: RunningStages | None = None
        self.stages_before: RunningStages | None = None
        """An earlier reading of the same iterator."""
        self._stages_of: Any = None
        self._first_reading: RunningStages | None = None
        self.looks_s = 0.0
        self.empty_epochs = 0
        self._epoch_calls = 0
        self._past_end = 0
        self.abort = False
        """Unwind at the end of the next call, whatever it costs."""
        self._reader = ModelReader()
        self._on_look = on_look
        self.stamps = stamps
        """What tells when batches arrived, where something does."""
        self.watch = watch
        """What tells syncs, files and summaries apart in hooks, where something does."""
        self._open: dict[tuple[str, str], list[float]] = {}
        self._spent: dict[tuple[str, str], Spent] = {}
        self._block_start = 0
        self.hot = _Hot(min(_LOOKS[0], self._longest()))
        self._tests: list[tuple[float, float]] = []
        self._test_begin = math.nan
        self._test_iterator: Any = None
        self._test_reader = ModelReader()
        self._tests_past_end = 0
        self.test_cut = False
        self.testing = False
        self.test_stop_at = math.inf

    # --- called once for each call of the train function -------------------------------------------

    def instrument(
        self,
        train_function: Callable[[Any], Any],
        tracing: Callable[[], int] | None,
        *,
        waited: list[float] | None = None,
        on_error: Callable[[], None] | None = None,
    ) -> Callable[[Any], Any]:
        """Give a train function that does the same and leaves a note of it.

        `waited` is where a loop of the caller's own puts the wait of each call. One function with few
        names: after a step it runs on cold caches, where each line costs several times what it seems to.
        """
        clock = self.clock
        calls = self.calls
        append = calls.append
        hot = self.hot
        seen = tracing() if tracing is not None else 0
        slow = 0.0 if tracing is not None else math.inf
        ends_epoch = end_of_data()

        def failed(error: BaseException) -> None:
            if isinstance(error, ends_epoch):
                self._past_end += 1
                return
            self.failed_call = self.dropped + len(calls)
            if on_error is not None:
                on_error()

        def stood_out(took: float) -> None:
            nonlocal seen, slow
            assert tracing is not None
            now = tracing()
            if now != seen:
                seen = now
                if (call := self.dropped + len(calls) - 1) not in self.traced[-1:]:
                    self.traced.append(call)
            else:
                # Tracing takes far longer than a step: only calls that stand out are asked about.
                slow = 1.5 * took

        def instrumented(iterator: Any) -> Any:
            if hot.muted or hot.inside:
                return train_function(iterator)
            hot.latest = iterator
            start = clock()
            try:
                result = train_function(iterator)
            except BaseException as error:
                failed(error)
                raise
            end = clock()
            append((start, end))
            if end - start > slow:
                stood_out(end - start)
            if waited is not None:
                self.waits.append(waited[-1])
            if len(calls) >= hot.next_look or end >= hot.stop_at:
                self.look(iterator)
                if self.abort:
                    raise EndOfRun
            return result

        return instrumented

    def time_callback(
        self,
        name: str,
        method: str,
        function: Callable[..., Any],
        on_error: Callable[[], None] | None = None,
        *,
        background: bool = False,
    ) -> Callable[..., Any]:
        """Give a callback's method that adds its time to the open block.

        `background`: it runs on another thread, beside the steps, which must not be taken for its own.
        """
        clock = self.clock
        cell = self._open.setdefault((name, method), [0, 0.0])
        if background:
            return _in_background(clock, cell, function, on_error)
        hot = self.hot
        if self.watch is not None:
            return self._watched(name, method, function, on_error)

        def timed(*args: Any, **kwargs: Any) -> Any:
            outer, hot.inside = hot.inside, True
            start = clock()
            try:
                result = function(*args, **kwargs)
            except BaseException:
                cell[0] += 1
                cell[1] += clock() - start
                hot.inside = outer
                if on_error is not None:
                    on_error()
                raise
            cell[0] += 1
            cell[1] += clock() - start
            hot.inside = outer
            return result

        return timed

    def _watched(
        self, name: str, method: str, function: Callable[..., Any], on_error: Callable[[], None] | None
    ) -> Callable[..., Any]:
        """Give a timed method of which is also told what it spends on syncs, files and summaries."""
        clock, watch, hot = self.clock, self.watch, self.hot
        cell = self._open[name, method]
        spent = self._spent.setdefault((name, method), Spent())
        assert watch is not None

        def timed(*args: Any, **kwargs: Any) -> Any:
            outer, hot.inside = hot.inside, True
            around, watch.cell = watch.cell, spent
            start = clock()
            try:
                result = function(*args, **kwargs)
            except BaseException:
                cell[0] += 1
                cell[1] += clock() - start
                hot.inside, watch.cell = outer, around
                if on_error is not None:
                    on_error()
                raise
            cell[0] += 1
            cell[1] += clock() - start
            hot.inside, watch.cell = outer, around
            return result

        return timed

    def part_of_loop(self, method: str) -> Spent:
        """Give where the loop's own syncs, files and summaries are counted, beside those of callbacks."""
        return self._spent.setdefault((LOOP, method), Spent())

    def time_metrics(self, method: str, function: Callable[[], Any]) -> Callable[[], Any]:
        """Give a method of the model that adds its time at the ends of epochs to the open block."""
        clock, hot = self.clock, self.hot
        cell = self._open.setdefault((LOOP, method), [0, 0.0])

        def timed() -> Any:
            if self.testing or hot.muted or hot.inside or in_function():
                return function()
            start = clock()
            result = function()
            cell[0] += 1
            cell[1] += clock() - start
            return result

        return timed

    def traces(self, seconds: float) -> None:
        """Write down that the step that runs was traced."""
        call = self.dropped + len(self.calls)
        if call not in self.traced[-1:]:
            self.traced.append(call)
        self.trace_s[call] = self.trace_s.get(call, 0.0) + seconds

    # --- called now and then ------------------------------------------------------------------------

    def look(self, iterator: Any = None) -> None:
        """Join what the runtime tells with what was seen, and close the block."""
        begin = self.clock()
        if self.calls:
            self.held.append(self.dropped + len(self.calls) - 1)
        self._read_gaps(iterator)
        self._read_stamps()
        self._close_block()
        self._drop_old()
        following = [at for at in _LOOKS if at > len(self.calls) and self.dropped == 0]
        step = min(_EVERY, self._longest())
        if self._reader.gone:
            # No gaps to be read in time: once in a while will do.
            seen = self.calls[-1][1] - self.calls[0][0] if self.calls else 0.0
            often = _EVERY_S * len(self.calls) / seen if seen > 0 else step
            step = int(max(step, min(_EVERY_AT_MOST, often)))
        self.hot.next_look = min([*following, len(self.calls) + step])
        if self._on_look is not None:
            self._on_look(self)
        self.looks_s += self.clock() - begin

    def event(self, kind: EventKind) -> None:
        """Write down that an epoch or a validation begins or ends."""
        calls = self.dropped + len(self.calls)
        if kind == "epoch_begin":
            self._epoch_calls = calls
            self._past_end = 0
        elif kind == "epoch_end" and calls == self._epoch_calls:
            self.empty_epochs += 1
        self.events.append(BoundaryEvent(kind, self.clock(), calls))
        if len(self.events) > _KEEP:
            del self.events[: _KEEP // 2]

    def let_go(self) -> None:
        """Hold no iterator any more: whoever holds the last reference waits for it to be taken down."""
        self.hot.latest = self._test_iterator = None

    def test_begins(self) -> None:
        """Write down that validation begins."""
        self.event("test_begin")
        self._tests = []
        self._test_begin = self.clock()
        self._test_iterator, self._tests_past_end = None, 0
        self.test_cut = False
        self.testing = True

    def instrument_test(
        self, test_function: Callable[[Any], Any], stop: Callable[[], None]
    ) -> Callable[[Any], Any]:
        """Give a test function that notes its calls, and asks for the end when time is up."""
        clock = self.clock
        hot = self.hot
        ends_epoch = end_of_data()

        def instrumented(iterator: Any) -> Any:
            if hot.inside:
                return test_function(iterator)
            self._test_iterator = iterator
            start = clock()
            try:
                result = test_function(iterator)
            except ends_epoch:
                self._tests_past_end += 1
                raise
            end = clock()
            self._tests.append((start, end))
            if self.abort:
                raise EndOfRun
            if end >= self.test_stop_at:
                self.test_cut = True
                stop()
            return result

        return instrumented

    def test_ends(self) -> None:
        """Write down that validation is over."""
        self.event("test_end")
        starts = np.array([start for start, _ in self._tests])
        steady: Quantity | Missing = Missing("fewer than three calls of the test function")
        if len(starts) >= 3:
            # The first call traces; what follows it is the rate that an uncut pass would go on at.
            estimate = median(np.diff(starts[1:])) if len(starts) >= 4 else median(np.diff(starts))
            steady = Quantity(
                estimate.value, "s", estimate.low, estimate.high, source="test calls",
                count=estimate.count,
            )  # fmt: skip
        wait = self._test_wait()
        self.validations.append(
            ValidationRun(
                begin_s=self._test_begin,
                end_s=self.clock(),
                calls=len(self._tests),
                in_calls_s=float(sum(end - start for start, end in self._tests)),
                complete=not self.test_cut,
                steady_call_s=steady,
                wait_s=wait,
            )
        )
        self._tests = []
        self._test_iterator = None
        self.testing = False

    def periods(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Give the time from each call to the next, as far as seen; epochs' ends are in it."""
        return np.diff(np.array([start for start, _ in self.calls], dtype=np.float64))

    def live(self) -> Live:
        """Give what was seen as plain data; the recorder goes on."""
        starts = [start for start, _ in self.calls]
        waits = [*self.waits, *[math.nan] * (len(starts) - len(self.waits))]
        # The step that is running, or that failed, has been traced and is no call yet.
        traced = [call for call in self.traced if call < self.dropped + len(starts)]
        missing = ""
        if all(math.isnan(wait) for wait in waits):
            missing = self._reader.missing or (
                "the runtime remembers too few gaps for this many steps per execution"
                if self.steps_per_call > _GAP_WINDOW // 2
                else "fewer than two batches were taken from one iterator"
            )
        return Live(
            start_s=tuple(starts),
            duration_s=tuple(end - start for start, end in self.calls),
            wait_s=tuple(waits),
            traced=tuple(traced),
            trace_s=tuple(self.trace_s.get(call, math.nan) for call in traced) if self.trace_s else (),
            held=tuple(self.held),
            steps_per_call=self.steps_per_call,
            wait_missing=missing,
            callbacks=(*self.callbacks, *self._block()),
            events=tuple(self.events),
            validations=tuple(self.validations),
            first_call_index=self.dropped,
            cut=self.cut,
            nan_loss=self.nan_loss,
            arrival_s=()
            if self.stamps is None
            else (*self.arrivals, *[math.nan] * (len(starts) - len(self.arrivals))),
        )

    def stages_missing(self) -> str:
        """Say why the runtime's model of the pipeline is not known."""
        return self._reader.missing or "the run was too short to read the runtime's model"

    def overhead(self) -> Quantity:
        """Time what this recorder adds to a call: its wrapper on a function that does nothing, and looks."""
        probe = Recorder(self.clock)
        probe.hot.next_look = sys.maxsize

        def nothing(_: Any) -> None:
            return None

        wrapped = probe.instrument(nothing, None)
        begin = self.clock()
        for _ in range(_PROBES):
            nothing(None)
        middle = self.clock()
        for _ in range(_PROBES):
            wrapped(None)
        end = self.clock()
        wrapper = max(0.0, (end - middle) - (middle - begin)) / _PROBES
        calls = max(1, self.dropped + len(self.calls))
        stamp, also = (0.0, "") if self.stamps is None else (self.stamps.cost_s, ", and the stamps")
        return Quantity(
            (wrapper + self.looks_s / calls + stamp) / self.steps_per_call, "s",
            source="the wrapper timed on an empty function, and the looks" + also,
        )  # fmt: skip

    # --- inside -------------------------------------------------------------------------------------

    def _longest(self) -> int:
        """Give the calls after which the runtime forgets gaps."""
        return max(1, (_GAP_WINDOW - self.steps_per_call + 1) // self.steps_per_call)

    def _test_wait(self) -> Quantity | Missing:
        """Give what a call of the test function waits for its batches, as far back as is remembered."""
        iterator = self._test_iterator
        if iterator is None or not is_iterator(iterator):
            return Missing("the validation data has no iterator of tf.data")
        reading = self._test_reader.gaps(iterator)
        if reading is None:
            return Missing(self._test_reader.missing)
        elements, gaps = reading
        per_call = self.steps_per_call
        # As in training: asking past the end makes a gap too, and gaps inside the last call are no period's.
        asked = self._tests_past_end if len(gaps) >= GAPS_KEPT else max(0, len(gaps) - (elements - 1))
        known = gaps[: max(0, len(gaps) - asked - (elements - 1) % per_call)]
        calls = min(len(known) // per_call, len(self._tests) - 1)
        if calls < 2:
            return Missing("fewer than three calls of the test function")
        took = self._tests[-1][0] - self._tests[-1 - calls][0]
        wait = (took - sum(known[-calls * per_call :])) / calls
        return Quantity(
            max(0.0, wait), "s", source="the runtime's gaps between batches of validation", count=calls
        )

    def _read_gaps(self, iterator: Any) -> None:
        count = len(self.calls)
        self.waits.extend([math.nan] * (count - len(self.waits)))
        if iterator is None or count < 2 or not is_iterator(iterator):
            return
        reading = self._reader.gaps(iterator)
        if reading is None:
            return
        if self.stages is None or count >= 40:
            # Cheap, and the latest one says most about the steady state.
            self._read_stages(iterator)
        elements, gaps = reading
        per_call = self.steps_per_call
        inside_last = (elements - 1) % per_call
        if inside_last != per_call - 1 and (self._past_end or len(gaps) >= GAPS_KEPT):
            return  # the data ended inside a call, and nobody knows in how many tries
        # Asking past the end makes a gap too, but no element.
        asked = self._past_end if len(gaps) >= GAPS_KEPT else max(0, len(gaps) - (elements - 1))
        # The other gaps end where the last call took its last batch; a call takes steps_per_call batches. The
        # gap behind a call's last batch lasts until the next call, so that a period less its gaps is wait.
        last = count - 1
        position = len(gaps) - asked - inside_last  # gaps inside the last call belong to no period yet
        call = last - 1
        while call >= 0 and position - per_call >= 0:
            if math.isnan(self.waits[call]):
                period = self.calls[call + 1][0] - self.calls[call][0]
                # Not cut off at zero: clock noise must not add up to a wait.
                self.waits[call] = period - sum(gaps[position - per_call : position])
            position -= per_call
            call -= 1

    def read_stuck(self) -> None:
        """Read the stages of the iterator that a call is stuck in."""
        if self.hot.latest is not None and is_iterator(self.hot.latest):
            self._read_stages(self.hot.latest, hung=True)
        if self.stages is None:
            return
        given = _given(self.stages)
        calls = self.dropped + len(self.calls)
        # A batch more than the calls that came back was given to the one that did not: it is in the step.
        self.hung_in_input = given in (
            calls * self.steps_per_call,
            (calls - self._epoch_calls) * self.steps_per_call,
        )

    def _read_stages(self, iterator: Any, *, hung: bool = False) -> None:
        found = self._reader.stages(iterator)
        if found is None:
            return
        # A weak reference would not do: iterators of both Kerases can't have one.
        if self._stages_of != id(iterator):
            self._stages_of, self._first_reading = id(iterator), found
        # An epoch that has just begun says less than the one before it.
        seen = _given(found) - _given(self._first_reading)
        known = _given(self.stages) - _given(self.stages_before)
        if hung or self.stages is None or 2 * seen >= known:
            self.stages, self.stages_before = found, self._first_reading

    def _read_stamps(self) -> None:
        if self.stamps is not None:
            self.arrivals += arrivals_of(self.calls[len(self.arrivals) :], self.stamps.read())

    def _block(self, *, close: bool = False) -> list[CallbackTime]:
        calls = self.dropped + len(self.calls) - self._block_start
        rows = []
        for key in dict.fromkeys((*self._open, *self._spent)):
            cell = self._open.get(key)
            spent = self._spent.get(key)
            if cell is None and spent is not None:  # of the loop itself, only these are known
                count, total = float(spent.calls), spent.all_s
            else:
                count, total = cell or (0.0, 0.0)
            if not count:
                continue
            name, method = key
            parts = {} if spent is None else spent.taken(close=close)
            if close and cell is not None:
                # What a hook on another thread adds meanwhile stays, for the next block.
                cell[0] -= count
                cell[1] -= total
            rows.append(CallbackTime(name, method, self._block_start, calls, int(count), total, **parts))
        return rows

    def _close_block(self) -> None:
        if self.dropped + len(self.calls) > self._block_start:
            self.callbacks.extend(self._block(close=True))
            self._block_start = self.dropped + len(self.calls)

    def _drop_old(self) -> None:
        if len(self.calls) <= 2 * _KEEP:
            return
        del self.calls[:_KEEP]
        del self.waits[:_KEEP]
        del self.arrivals[:_KEEP]
        self.dropped += _KEEP
        self.traced = [call for call in self.traced if call >= self.dropped]
        self.trace_s = {call: took for call, took in self.trace_s.items() if call >= self.dropped}
        self.held = [call for call in self.held if call >= self.dropped]
        self.callbacks = [row for row in self.callbacks if row.first_call >= self.dropped]
        self.events = [event for event in self.events if event.call >= self.dropped]


def _in_background(
    clock: Callable[[], float],
    cell: list[float],
    function: Callable[..., Any],
    on_error: Callable[[], None] | None,
) -> Callable[..., Any]:
    """Time a method that runs on another thread."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = clock()
        try:
            return function(*args, **kwargs)
        except BaseException:
            if on_error is not None:
                on_error()
            raise
        finally:
            cell[0] += 1
            cell[1] += clock() - start

    return timed


def _given(reading: RunningStages | None) -> int:
    """Give the batches that a pipeline has given by a reading."""
    return 0 if reading is None else reading.given

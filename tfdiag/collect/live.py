"""The job as it is: the caller's own `fit`, or their own loop, watched until enough was seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfdiag import stats
from tfdiag.collect.causes import root_cause
from tfdiag.collect.inputs import can_be_read_once
from tfdiag.collect.loop import run_own_loop
from tfdiag.collect.recorder import Recorder
from tfdiag.collect.session import RESERVE_S, Session
from tfdiag.collect.tracing import TraceLog
from tfdiag.collect.worker import Abandoned, EndOfRun, Worker
from tfdiag.compat import keras
from tfdiag.compat.stamps import Stamps, can_be_stamped
from tfdiag.compat.watch import Watch
from tfdiag.errors import DatasetError, JobError, TfdiagError
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Missing

__all__ = ["LiveRun", "still_rising"]

_LIVE_SHARE = 0.4
_LIVE_AT_MOST_S = 12.0
_LIVE_AT_LEAST_S = 2.5
_STEADY_LEAST = 30
_GOOD_ENOUGH = 0.02
_STATISTICS_EVERY_S = 0.4
"""They take milliseconds, which the job would have to wait for."""
_EPOCHS_LEAST = 3
_MANY_EPOCHS = 1_000_000
_RISES = 32e6
"""Bytes, in each half of what was seen: allocators spread out by less, once …"""
_SURELY = 800e6
"""… and by so much it is a leak for sure."""


def still_rising(rss: Sequence[float]) -> bool:
    """Say whether memory rises so that it may be a leak, and a longer look would tell."""
    if len(rss) < 3:
        return False
    begin, middle, end = rss[0], rss[len(rss) // 2], rss[-1]
    return min(middle - begin, end - middle) >= _RISES and end - begin < _SURELY


class LiveRun:
    """Runs the job, and decides when enough of it was seen."""

    def __init__(
        self, session: Session, make_callback: Callable[[Recorder], Any], epoch_steps: float | None
    ) -> None:
        self.session = session
        self.request = session.request
        self.make_callback = make_callback
        self.epoch_steps = epoch_steps
        """Steps of an epoch, where that is known ahead."""
        self.live_soft_end = math.inf
        self.live_hard_end = math.inf
        self.next_statistics = -math.inf
        self.traced = False
        """The first call is over, and what it took is not taken from the time for steps."""

    def run(self, worker: Worker) -> Live:
        """Run the job, on the worker."""
        self.session.say("running the job as it is")
        clock = self.request.clock
        left = max(0.0, self.session.deadline.left())
        self.live_soft_end = clock() + min(_LIVE_AT_MOST_S, _LIVE_SHARE * left)
        # Jobs with slow steps may take more of the budget: few steps are better than none.
        self.live_hard_end = clock() + 0.8 * left
        steps_per_call = (
            keras.steps_per_execution(self.request.model) if self.request.train_step is None else 1
        )
        self.session.watch = Watch(clock)
        self.session.recorder = Recorder(
            clock, steps_per_call=steps_per_call, on_look=self._look, watch=self.session.watch
        )
        self.session.traces = TraceLog(clock, self.session.recorder)
        self.session.recorder.hot.stop_at = self.live_soft_end
        run = self._watched
        with self.session.phase("the job as it is"):
            try:
                worker.run(
                    run,
                    until=self.session.deadline.end - RESERVE_S,
                    grace_s=self.session.grace_s(),
                    stop=self.session.stop_now,
                )
            except EndOfRun:
                self.session.recorder.cut = self.session.recorder.cut or "the budget ended"
            except (TfdiagError, Abandoned, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                raise self._job_error(error) from error
        if not self.session.recorder.calls:
            raise DatasetError(
                f"the {self.request.source.kind} is empty: it gave no batch, so there is no step to measure"
            )
        return self.session.recorder.live()

    def overrun(self) -> Live | Missing:
        """Give what was seen of a run whose last step did not come back in time."""
        recorder = self.session.recorder
        budget = self.request.budget_s
        if recorder is not None:
            recorder.read_stuck()
        if recorder is None or not recorder.calls:
            where = (
                "the first step, with tracing and compilation, took longer than the budget "
                f"of {budget:g} s and was still running when it ended"
            )
            return Missing(where)
        took = self.request.clock() - recorder.calls[-1][1]
        recorder.cut = (
            f"a step took longer than what was left of the budget of {budget:g} s: it had been running "
            f"for {took:.1f} s and was left running"
        )
        return recorder.live()

    def _watched(self) -> None:
        """Run the job on this thread, and tell apart what Python asks of TensorFlow meanwhile."""
        session = self.session
        assert session.recorder is not None
        assert session.watch is not None
        assert session.traces is not None
        try:
            session.watch.start()
            session.traces.start()
            if self.request.train_step is not None:
                self._own_loop()
                return
            if keras.fetches_beside():
                # Elsewhere fit fetches them for nobody's sake: that is its loop.
                session.watch.fetched = session.recorder.part_of_loop("logs")
            self._fit()
        finally:
            session.unwatch()

    def _fit(self) -> None:
        assert self.session.recorder is not None
        self.fit_with(self.session.recorder, validate=True)

    def fit_with(self, recorder: Recorder, *, validate: bool) -> None:
        """Run the caller's `fit` with a recorder."""
        request = self.request
        kwargs = dict(request.fit_kwargs)
        for name in ("x", "y", "sample_weight", "batch_size"):
            kwargs.pop(name, None)
        callback = self.make_callback(recorder)
        callbacks = [*request.callbacks, callback]
        kwargs["callbacks"] = callbacks
        kwargs["verbose"] = 0
        kwargs["epochs"] = self._epochs(kwargs)
        if not validate or can_be_read_once(kwargs.get("validation_data")):
            for name in ("validation_data", "validation_split", "validation_steps", "validation_batch_size"):
                kwargs.pop(name, None)
        if "validation_data" in kwargs:
            kwargs["validation_data"] = request.source.copied(kwargs["validation_data"])
            kwargs["validation_freq"] = 1
        try:
            data = request.source.fresh()
            request.model.fit(**(self._stamped(data) if validate else data), **kwargs)
        finally:
            callback.close()
            # What is read in Python must be let go of before anybody else reads it.
            in_python = request.source.one_shot or keras.is_py_dataset(request.source.data.get("x"))
            if in_python:
                callback.take_down()
            else:
                self.session.take_down(callback.take_down)

    def _stamped(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Stamp the batches of our copy of the dataset where the runtime keeps no model that tells the waits.

        The stamp has to be the last thing before the step: Keras prefetches behind class weights, and a
        strategy behind everything.
        """
        request, recorder = self.request, self.session.recorder
        assert recorder is not None
        x = arguments.get("x")
        if (
            recorder.steps_per_call != 1
            or request.fit_kwargs.get("class_weight") is not None
            or not keras.has_default_strategy(request.model)
            or not can_be_stamped(x)
        ):
            return arguments
        stamps = Stamps(request.clock)
        staged = stamps.stage(x)
        if staged is None:
            return arguments
        stamps.measure_cost()
        self.session.stamps = recorder.stamps = stamps
        return {**arguments, "x": staged}

    def _epochs(self, kwargs: Mapping[str, Any]) -> int:
        """Give enough epochs; an input that can be read once has those that the caller asked for."""
        first = int(kwargs.get("initial_epoch", 0) or 0)
        if self.request.source.one_shot and not kwargs.get("steps_per_epoch"):
            return first + 1
        return first + _MANY_EPOCHS

    def _own_loop(self) -> None:
        assert self.session.recorder is not None
        self.loop_with(self.session.recorder, lambda: self.session.stopping)

    def loop_with(self, recorder: Recorder, should_stop: Callable[[], bool]) -> None:
        """Run the caller's own loop with a recorder."""
        assert self.request.train_step is not None
        run_own_loop(
            self.request.source.fresh()["x"],
            self.request.train_step,
            recorder,
            should_stop=should_stop,
        )

    def _look(self, recorder: Recorder) -> None:
        """Decide after every few calls whether the run has seen enough."""
        now = self.request.clock()
        if now >= self.live_hard_end and not self.session.stopping:
            recorder.cut = recorder.cut or "the budget ended"
        if not self.traced and recorder.calls:
            self.traced = True
            begin, end = recorder.calls[0]
            # Its share is that of the time after it, so that later phases keep theirs.
            later = (1 - _LIVE_SHARE) * (end - begin)
            self.live_soft_end = min(self.live_soft_end + later, self.live_hard_end)
            recorder.hot.stop_at = self.live_soft_end
        if recorder.empty_epochs:
            self.session.stopping = True  # or fit would go through empty epochs for ever
        if not self.session.stopping and not self._enough(recorder, now):
            return
        self.session.stopping = True
        recorder.hot.stop_at = -math.inf
        if self.request.train_step is None:
            self.request.model.stop_training = True
        validated = any(run.complete for run in recorder.validations)
        share = 0.0 if validated else 0.25 * max(0.0, self.session.deadline.left())
        recorder.test_stop_at = now + share
        if now >= self.session.deadline.end - RESERVE_S:
            raise EndOfRun

    def _enough(self, recorder: Recorder, now: float) -> bool:
        calls = len(recorder.calls)
        steps = calls * recorder.steps_per_call
        if self.request.steps is not None and steps >= self.request.steps:
            return True
        if now >= self.live_hard_end:
            return True
        if now < self.next_statistics and now < self.live_soft_end:
            return False
        self.next_statistics = now + _STATISTICS_EVERY_S
        periods = recorder.periods()
        if now >= self.live_soft_end:
            # Past the soft end only a run with hardly any steps goes on.
            longest = float(np.max(periods[1:] if len(periods) > 1 else periods, initial=0.0))
            return calls >= 8 or now + 2 * longest > self.live_hard_end
        if self.request.steps is not None or len(periods) < _STEADY_LEAST:
            return False
        cut = stats.warmup_end(periods)
        steady = periods[cut:]
        if len(steady) < _STEADY_LEAST or now - recorder.calls[0][1] < _LIVE_AT_LEAST_S:
            return False
        if not self._epochs_seen(recorder, float(np.median(steady))):
            return False
        begin = recorder.calls[0][1]
        if still_rising([each.rss_bytes for each in self.session.samples() if each.at_s >= begin]):
            return False
        return stats.mean(steady).relative_half_width < _GOOD_ENOUGH

    def _epochs_seen(self, recorder: Recorder, period: float) -> bool:
        """Say whether short epochs were seen often enough; long ones are not waited for."""
        ended = sum(event.kind == "epoch_end" for event in recorder.events)
        if ended >= _EPOCHS_LEAST:
            return True
        room = self.live_soft_end - self.request.clock()
        if ended:
            first = next(e for e in recorder.events if e.kind == "epoch_begin")
            last = [e for e in recorder.events if e.kind == "epoch_end"][-1]
            return (last.at_s - first.at_s) / ended > room
        length = self.epoch_steps
        if length is None:
            return True
        return length / recorder.steps_per_call * period > room

    def _job_error(self, error: BaseException) -> TfdiagError:
        assert self.session.recorder is not None
        what = root_cause(error)
        failed = self.session.recorder.failed_call
        if failed is not None:
            batch = failed * self.session.recorder.steps_per_call
            return JobError(
                f"the job failed at batch {batch} (counted from 0), in the train step or its input: {what}"
            )
        done = len(self.session.recorder.calls)
        return JobError(f"the job failed in fit, after {done} calls of the train function: {what}")

"""Some calls of a run under the profiler."""

from __future__ import annotations

from typing import Any

import pytest

from tests.traces import MS, job
from tfdiag.collect.device import LEAST, WARM, TracingRecorder
from tfdiag.collect.worker import EndOfRun
from tfdiag.model.device import DeviceTrace, TracedSteps
from tfdiag.model.quantity import Missing


class FakeTracer:
    """A profiler that gives a trace made beforehand."""

    def __init__(self, found: bytes | Missing, refuses: Missing | None = None) -> None:
        self.found = found
        self.refuses = refuses
        self.running = False
        self.calls: list[str] = []

    def start(self, *, device: bool) -> Missing | None:
        """Begin, unless it refuses."""
        assert device
        self.calls.append("start")
        self.running = self.refuses is None
        return self.refuses

    def take(self, limit_bytes: int) -> bytes | Missing:
        """End."""
        self.calls.append("take")
        self.running = False
        return self.found


class Run:
    """A training loop on a clock of its own: each call takes a second."""

    def __init__(self, tracer: FakeTracer, until: float = 1000.0) -> None:
        self.now = 0.0
        self.done = 0
        self.traced: list[bool] = []
        self.stopping = False
        self.tracer = tracer
        self.recorder = TracingRecorder(
            lambda: self.now,
            tracer,  # type: ignore[arg-type]
            steps_per_call=1,
            until=until,
            on_done=self.end,
            should_stop=lambda: self.stopping,
        )
        self.step = self.recorder.instrument(self.call, None)

    def end(self) -> None:
        """Note that it may end."""
        self.done += 1

    def call(self, iterator: Any) -> int:
        """Make a step."""
        self.now += 1.0
        self.traced.append(self.tracer.running)
        return 7

    def go(self, calls: int = 100) -> None:
        """Make steps until told to end."""
        for _ in range(calls):
            if self.done:
                break
            assert self.step(None) == 7


def test_warm_calls_are_not_traced():
    """The first calls fill buffers; then some two dozen are traced, and the run may end."""
    run = Run(FakeTracer(job()))
    run.go()
    assert run.tracer.calls == ["start", "take"]
    assert run.traced == [False] * WARM + [True] * 24
    trace = run.recorder.trace()
    assert isinstance(trace, DeviceTrace)
    assert trace.source == "tf.profiler, during this diagnosis"
    assert len(run.recorder.calls) == WARM + 24


def test_slow_steps_end_the_trace_early():
    """When its time is over, but not before there are some steps."""
    run = Run(FakeTracer(job()), until=WARM + 0.5)
    run.go()
    assert run.traced.count(True) == LEAST


def test_data_that_ends_first_ends_the_trace():
    """What was traced by then is read."""
    run = Run(FakeTracer(job()))
    run.go(WARM + 2)
    assert run.tracer.running
    assert isinstance(run.recorder.trace(), DeviceTrace)
    assert not run.tracer.running


def test_epochs_that_end_meanwhile_are_told():
    """A pause between epochs, and the call behind it, are no steps: the live run counts them apart."""
    pause, step, epoch = 50 * MS, 4 * MS, 10
    run = Run(FakeTracer(job(24, epoch=epoch, pause=pause)))
    for call in range(WARM + 24):
        if call >= WARM and (call - WARM) % epoch == 0:
            run.recorder.event("epoch_begin")
        run.go(1)
    trace = run.recorder.trace()
    assert isinstance(trace, DeviceTrace) and isinstance(trace.steps, TracedSteps)
    # The first call of each of three epochs is left out, the last one of two, and what follows the last step.
    assert trace.steps.count == 24 - 3 - 2 - 1
    assert trace.steps.mean_s == pytest.approx(step * 1e-9)


@pytest.mark.parametrize(
    ("tracer", "said"),
    [
        (FakeTracer(job(), Missing("another profiler runs")), "another profiler runs"),
        (FakeTracer(Missing("the profiler wrote no trace")), "wrote no trace"),
        (FakeTracer(b"no trace"), "can't be read"),
    ],
)
def test_without_a_trace_there_is_a_reason(tracer: FakeTracer, said: str):
    """The run ends, and the device is missing."""
    run = Run(tracer)
    run.go()
    assert run.done
    found = run.recorder.trace()
    assert isinstance(found, Missing)
    assert said in found.reason


def test_a_run_that_never_came_so_far_is_missing():
    """Fewer calls than it takes to warm up."""
    run = Run(FakeTracer(job()))
    run.go(2)
    assert isinstance(run.recorder.trace(), Missing)


def test_the_end_of_the_budget_unwinds():
    """As in any other phase."""
    run = Run(FakeTracer(job()))
    run.stopping = True
    with pytest.raises(EndOfRun):
        run.step(None)

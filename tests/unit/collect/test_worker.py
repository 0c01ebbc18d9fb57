"""The thread that the caller's job runs on."""

from __future__ import annotations

import atexit
import contextvars
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import keras
import pytest
import tensorflow as tf

from tfdiag.collect.worker import Abandoned, EndOfRun, Worker

LONG_S = 20.0
"""More than any test waits for."""


class Job:
    """Work that goes on until it is let go, and says when it has begun."""

    def __init__(self) -> None:
        """Be neither begun nor let go."""
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def __call__(self) -> str:
        """Wait to be let go."""
        self.begun.set()
        assert self.let_go.wait(LONG_S)
        return "done"


@pytest.fixture
def job() -> Iterator[Job]:
    """Give a job that is let go at the end at the latest."""
    job = Job()
    yield job
    job.let_go.set()


def nothing() -> None:
    """Stop nothing."""


def run(worker: Worker, function: Any, *, within: float = LONG_S, stop: Any = nothing) -> Any:
    """Run something that has so many seconds, and hardly any grace."""
    return worker.run(function, until=time.perf_counter() + within, grace_s=0.0, stop=stop)


def abandon(worker: Worker, job: Job) -> None:
    """Leave the worker alone in its job."""
    with pytest.raises(Abandoned):
        run(worker, job, within=0.0)
    assert worker.abandoned


def test_results_come_back_in_turn() -> None:
    """Work is done one after another on one other thread, and its results come back."""
    worker = Worker(time.perf_counter)
    names = [run(worker, lambda: threading.current_thread().name) for _ in range(2)]
    worker.close()
    assert names == ["tfdiag-job"] * 2
    assert not worker._thread.is_alive()


@pytest.mark.parametrize("kind", [KeyError, StopIteration, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_comes_back_as_it_was(kind: type[BaseException]) -> None:
    """Whatever the work raises is raised to the caller as the same object, and the thread lives on."""
    worker, error = Worker(time.perf_counter), kind("what happened")

    def fail() -> None:
        raise error

    with pytest.raises(kind) as caught:
        run(worker, fail)
    assert caught.value is error
    assert run(worker, lambda: 5) == 5
    worker.close()
    assert not worker._thread.is_alive()


class Held:
    """What a frame of the work holds; like an iterator of tf.data it takes its time to be taken down."""

    def __init__(self, job: Job) -> None:
        """Take as long as this job."""
        self._job = job

    def __del__(self) -> None:
        """Take it down."""
        self._job()


def end_while_holding(job: Job) -> Any:
    """Give work that is unwound while one of its frames holds something."""

    def work() -> None:
        held = Held(job)
        raise EndOfRun(held is None)

    return work


def test_what_unwound_frames_held_is_taken_down_on_the_thread(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller gets the news of the end at once, also where taking down what the run held takes long."""
    at_exit: list[Any] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(atexit, "unregister", at_exit.remove)
    worker, calls = Worker(time.perf_counter), []
    with pytest.raises(EndOfRun):
        run(worker, end_while_holding(job))
    assert job.begun.wait(LONG_S)
    worker.settle(0.0)
    assert worker.abandoned
    assert len(at_exit) == 1  # or exit would take down the iterator's Python under it
    worker.close(on_return=lambda: calls.append(threading.current_thread().name))
    assert calls == []
    job.let_go.set()
    assert worker.returned.wait(LONG_S)
    assert calls == ["tfdiag-job"]
    assert at_exit == []


def test_a_thread_that_has_settled_is_not_abandoned(job: Job) -> None:
    """Whoever has the time waits until the thread is out of everything."""
    worker = Worker(time.perf_counter)
    with pytest.raises(EndOfRun):
        run(worker, end_while_holding(job))
    job.let_go.set()
    worker.settle(LONG_S)
    assert not worker.abandoned
    worker.close()
    assert not worker._thread.is_alive()


def test_work_that_obeys_the_stop_is_not_abandoned(job: Job) -> None:
    """Work that comes back when it is asked to gives its result, however late."""
    worker = Worker(time.perf_counter)
    result = worker.run(job, until=time.perf_counter(), grace_s=LONG_S, stop=job.let_go.set)
    assert result == "done"
    assert not worker.abandoned
    worker.close()


def test_the_fake_clock_decides_when_time_is_up(job: Job) -> None:
    """The end is a moment of the injected clock: one that has passed there stops the work at once."""
    worker = Worker(lambda: 500.0)
    assert worker.run(job, until=499.0, grace_s=LONG_S, stop=job.let_go.set) == "done"
    worker.close()


def test_work_that_does_not_come_back_is_left(job: Job) -> None:
    """When the grace is over the caller goes on, and `returned` tells when the thread is out."""
    worker, order = Worker(time.perf_counter), []
    abandon(worker, job)
    worker.close(on_return=lambda: order.append(threading.current_thread().name))
    assert not worker.returned.is_set()
    assert order == []
    job.let_go.set()
    assert worker.returned.wait(LONG_S)
    assert order == ["tfdiag-job"]
    worker._thread.join(LONG_S)
    assert not worker._thread.is_alive()


def test_on_return_runs_once_when_the_thread_is_out_already(job: Job) -> None:
    """A thread that came back between being left and being closed still has its end, once."""
    worker, calls = Worker(time.perf_counter), []
    abandon(worker, job)
    job.let_go.set()
    wait_until_idle(worker)
    worker.close(on_return=lambda: calls.append(1))
    assert worker.returned.wait(LONG_S)
    worker._thread.join(LONG_S)
    assert calls == [1]
    assert not worker._thread.is_alive()


def test_a_thread_that_comes_back_while_it_is_given_up_ends() -> None:
    """Work that ends after the last look at it, before it is marked as left, keeps no thread waiting."""
    job, calls, stops = Job(), [], []

    class Late(Worker):
        """Lets the work end just before it is marked for good."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "abandoned" and value and len(stops) == 2:
                job.let_go.set()
                wait_until_idle(self)
            super().__setattr__(name, value)

    worker = Late(time.perf_counter)
    with pytest.raises(Abandoned):
        run(worker, job, within=0.0, stop=lambda: stops.append(1))
    assert worker.abandoned
    worker.close(on_return=lambda: calls.append(1))
    assert worker.returned.wait(LONG_S)
    worker._thread.join(LONG_S)
    assert not worker._thread.is_alive()
    assert calls == [1]


@pytest.mark.parametrize("first", ["thread", "caller"])
def test_on_return_is_nobodys_twice(job: Job, first: str) -> None:
    """Whoever of thread and caller comes first runs `on_return`, and the other does not."""
    worker, calls, inside = Worker(time.perf_counter), [], threading.Event()
    abandon(worker, job)

    def on_return() -> None:
        calls.append(threading.current_thread().name)
        inside.set()

    if first == "thread":
        worker.close(on_return=on_return)
        job.let_go.set()
    else:
        job.let_go.set()
        wait_until_idle(worker)
        worker.close(on_return=on_return)
    assert inside.wait(LONG_S)
    assert worker.returned.wait(LONG_S)
    worker._thread.join(LONG_S)
    assert len(calls) == 1


def test_a_failing_on_return_does_not_keep_those_who_wait(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """`returned` is set even when putting back fails, or the model's next step would wait for ever."""
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    worker = Worker(time.perf_counter)
    abandon(worker, job)

    def fail() -> None:
        raise OSError("disk gone")

    worker.close(on_return=fail)
    job.let_go.set()
    assert worker.returned.wait(LONG_S)
    worker._thread.join(LONG_S)
    assert isinstance(seen[0].exc_value, OSError)


class _Interrupting(threading.Event):
    """An event whose first waits are interrupted, as by Ctrl-C."""

    def __init__(self, interrupts: int) -> None:
        super().__init__()
        self.left = interrupts

    def wait(self, timeout: float | None = None) -> bool:
        if self.left:
            self.left -= 1
            raise KeyboardInterrupt
        return super().wait(timeout)


def test_ctrl_c_stops_the_work_and_waits_for_it(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches the caller after the work was asked to end and did."""
    worker = Worker(time.perf_counter)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Event", lambda: _Interrupting(1))
        with pytest.raises(KeyboardInterrupt):
            worker.run(job, until=time.perf_counter() + LONG_S, grace_s=LONG_S, stop=job.let_go.set)
    assert not worker.abandoned
    worker.close()
    assert not worker._thread.is_alive()


@pytest.mark.parametrize("interrupts", [1, 2], ids=["once", "twice"])
def test_ctrl_c_leaves_work_that_does_not_end(
    job: Job, monkeypatch: pytest.MonkeyPatch, interrupts: int
) -> None:
    """Ctrl-C, pressed once or again while waiting, leaves a step that hangs and does not hang itself."""
    worker, calls = Worker(time.perf_counter), []
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Event", lambda: _Interrupting(interrupts))
        with pytest.raises(KeyboardInterrupt):
            worker.run(job, until=time.perf_counter() + LONG_S, grace_s=0.0, stop=nothing)
    assert worker.abandoned
    worker.close(on_return=lambda: calls.append(1))
    job.let_go.set()
    assert worker.returned.wait(LONG_S)
    assert calls == [1]
    worker._thread.join(LONG_S)


def test_the_thread_sees_the_callers_context() -> None:
    """Context variables, Keras' name scopes and the strategy of the caller's thread hold in the worker."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    keras.backend.clear_session()
    with strategy.scope():
        keras.layers.Dense(1)  # takes the name "dense" of this thread
        worker = Worker(time.perf_counter)
    seen = run(worker, lambda: (variable.get(), tf.distribute.get_strategy(), keras.layers.Dense(1).name))
    worker.close()
    assert seen[0] == "set"
    assert seen[1] is strategy
    assert seen[2] == "dense_1"


def wait_until_idle(worker: Worker) -> None:
    """Wait until the thread has taken its work and is out of it, as its stack tells."""
    end = time.perf_counter() + LONG_S
    while time.perf_counter() < end:
        thread = worker._thread
        frame = sys._current_frames().get(thread.ident or 0)
        if not thread.is_alive() or frame is None:
            return
        names = []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        if "work" not in names and "__call__" not in names:
            return
        threading.Event().wait(0.001)
    raise AssertionError("the thread is still at work")

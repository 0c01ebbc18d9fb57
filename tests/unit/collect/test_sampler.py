"""What comes of the samples of the host."""

from __future__ import annotations

import os
import threading
import time

import pytest

from tests.unit.fakes import FakeClock
from tfdiag.collect import sampler as module
from tfdiag.collect.sampler import HostSampler, _others
from tfdiag.compat import machine
from tfdiag.model.gpu import Series
from tfdiag.model.host import HostProcess, HostTelemetry
from tfdiag.model.quantity import Missing, Quantity


def test_what_is_watched_comes_to_its_end(monkeypatch: pytest.MonkeyPatch):
    """The thread ends by itself when what it looks at is over, with what it has seen; its cost is its own."""
    lives = iter([True, True, False])
    sampler = HostSampler(time.perf_counter, period_s=0.001, alive=lambda: next(lives))
    monkeypatch.setattr(module, "_MOST_AT_FIRST", 1e9)
    assert isinstance(sampler.telemetry(), Missing)
    with sampler:
        sampler._thread.join()
    found = sampler.telemetry()
    assert isinstance(found, HostTelemetry)
    assert len(found.at_s) == 4
    assert len(sampler.samples()) == 4
    assert isinstance(found.cost, Quantity)
    assert found.cost.count == 4
    assert len(found.core_at_s) == 1
    assert isinstance(found.voluntary_switches, Series)
    assert isinstance(found.machine_busy, Series)
    assert found.machine_busy.values[0] == 0
    assert isinstance(found.throttled, (Series, Missing))


def test_an_expensive_look_is_taken_less_often():
    """A sample of 10 ms at 0.2 % of a core comes every 5 s, the first ones each second.

    Else a run of 7 s, in which a sample took 2 ms, had too few to tell whether its memory grows. A long run
    is looked at less often.
    """
    sampler = HostSampler(FakeClock())
    sampler._taken, sampler._cpu_s = 11, 0.1
    assert sampler._next_s() == pytest.approx(1.0)
    sampler._cpu_s = 0.02
    assert sampler._next_s() == pytest.approx(0.2)
    sampler._taken, sampler._cpu_s = 31, 0.3
    assert sampler._next_s() == pytest.approx(5.0)
    sampler._cpu_s = 0.0
    assert sampler._next_s() == pytest.approx(0.2)
    sampler._taken = 1300
    assert sampler._next_s() == pytest.approx(0.8)


def test_weeks_take_no_more_memory_than_minutes(monkeypatch: pytest.MonkeyPatch):
    """Of too many samples the older ones go."""
    monkeypatch.setattr(module, "_KEEP", 10)
    sampler = HostSampler(FakeClock())
    for _ in range(25):
        sampler._read()
    assert len(sampler.samples()) <= 10
    assert len(sampler._rows) == len(sampler.samples())


def test_others_that_compute(monkeypatch: pytest.MonkeyPatch):
    """Those that computed most between two looks; one that is new has all of its time from then."""
    before = {1: ("init", 50.0), 7: ("python", 10.0), 9: ("idle", 3.0)}
    after = {
        1: ("init", 50.0),
        7: ("python", 25.0),
        8: ("new", 4.0),
        9: ("idle", 3.1),
        os.getpid(): ("me", 99.0),
    }
    monkeypatch.setattr(machine, "uses_tensorflow", lambda pid: pid == 7)
    found = _others(before, after, 10.0)
    assert found == (HostProcess(7, "python", 1.5, True), HostProcess(8, "new", 0.4, False))
    assert _others(before, after, 0.0) == ()


def test_no_thread_stays():
    """However it ends, nothing is left behind."""
    before = threading.active_count()
    with pytest.raises(KeyError), HostSampler(time.perf_counter):
        raise KeyError
    assert threading.active_count() == before

"""memory-growth: it rises for sure, for good, and will be full; what settles or leaps does not count."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.synthetic import MS, analysed
from tests.synthetic_host import host
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.checks.environment import memory_growth
from tfdiag.checks.environment.memory_growth import CHECK
from tfdiag.model.quantity import Missing

JOB: dict[str, Any] = {"compute": 10 * MS, "dispatch": 0.0}
"""Steps of 10 ms, for two seconds."""
MB = 1e6


def memory(of: Callable[[float], float], free: Any = 8e9, **parts: Any) -> dict[str, Any]:
    """Give a job whose memory is a function of time, in megabytes."""
    return {**JOB, **host(anonymous_memory=lambda at: 1e9 + of(at) * MB, free_memory=free, **parts)}


@pytest.fixture(autouse=True)
def _two_seconds_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the short runs of these tests be long enough to tell."""
    monkeypatch.setattr(memory_growth, "_LONG_S", 0.5)


@pytest.mark.parametrize(("each_s", "fires"), [(330.0, False), (400.0, True)])
def test_a_short_run_tells_large_rises_only(monkeypatch: pytest.MonkeyPatch, each_s: float, fires: bool):
    """In a few seconds a buffer that fills looks like a leak, up to half a gigabyte."""
    monkeypatch.setattr(memory_growth, "_LONG_S", 60.0)
    parts = memory(lambda at: each_s * at)
    if fires:
        assert only(CHECK, **parts)
    else:
        assert "too short" in not_run(CHECK, **parts)


def test_fires_on_a_leak():
    """A megabyte each step is 100 in a second: eight gigabytes last 80 seconds."""
    found = only(CHECK, **memory(lambda at: 100 * at))
    assert found.finding.severity == "critical"
    assert found.finding.cost.value == 0
    assert "in 1,000 steps" in found.finding.title
    assert value(found, "in 1,000 steps") == pytest.approx(1000 * MB, rel=0.02)
    assert value(found, "until memory is full") == pytest.approx(80, rel=0.02)
    assert "tracemalloc" in found.suggestions[0].code


@pytest.mark.parametrize(("free", "severity"), [(3590.0, "critical"), (3610.0, "warning")])
def test_an_hour_is_critical(free: float, severity: str):
    """What ends within an hour ends while one looks at it."""
    found = only(CHECK, **memory(lambda at: 100 * at, free * 100 * MB))
    assert found.finding.severity == severity


@pytest.mark.parametrize(("hours", "fires"), [(23.9, True), (24.1, False)])
def test_fires_when_memory_is_full_within_a_day(hours: float, fires: bool):
    """A job that ends before that has no problem."""
    assert bool(results(CHECK, **memory(lambda at: 100 * at, hours * 3600 * 100 * MB))) is fires


@pytest.mark.parametrize(("total", "fires"), [(31.0, False), (33.0, True)])
def test_a_small_rise_is_an_allocators(total: float, fires: bool):
    """Thirty-two megabytes in all are the least that counts, from the first sixth of the run to the last."""
    leak = only(CHECK, **memory(lambda at: 100 * at))
    seconds = value(leak, "rise in the steady part of the live run") / (100 * MB)
    assert bool(results(CHECK, **memory(lambda at: total / seconds * at, 1e9))) is fires


@pytest.mark.parametrize(("bytes_each", "fires"), [(1000, False), (1050, True)])
def test_what_is_written_down_of_a_step_is_no_leak(bytes_each: int, fires: bool):
    """Steps of a tenth of a millisecond at a kilobyte each."""
    run = {"compute": 0.1 * MS, "calls_per_epoch": 60_000}
    parts = {**memory(lambda at: bytes_each * 1e4 / MB * at, count=73), **run}
    assert bool(results(CHECK, **parts)) is fires


@pytest.mark.parametrize(
    "of",
    [
        lambda at: 0.0,
        lambda at: 500.0,
        lambda at: 300 * (1 - math.exp(-3 * (at - 1))) if at > 1 else 0.0,  # settles
        lambda at: 200 * min(at, 1.3),  # fills up early in the steady state
        lambda at: -100 * at,
        lambda at: 30 * (round(at * 10) % 2),  # comes and goes
    ],
)
def test_silent_when_it_settles(of: Callable[[float], float]):
    """Buffers that fill, allocators that settle, memory that comes and goes."""
    assert results(CHECK, **memory(of)) == []


@pytest.mark.parametrize(
    "of", [lambda at: 100.0 * (at > 2.5), lambda at: 40 * at + 60 * (int(3 * at) % 2 == 0)]
)
def test_an_uneven_rise_is_not_known_to_go_on(of: Callable[[float], float]):
    """One leap, or a swing, is no slope."""
    assert "too unevenly" in not_run(CHECK, **memory(of))


def test_resident_memory_stands_in():
    """Where pages of files can't be told apart, all that is resident counts."""
    parts = host(rss=lambda at: 1e9 + 100 * MB * at, anonymous_memory=Missing("no statm"))
    found = only(CHECK, **JOB, **parts)
    assert evidence(found, "growth of memory in a step").quantity.source == "resident memory"  # type: ignore[union-attr]


def test_a_short_run_without_a_rise_is_no_question():
    """Few samples, and nothing in them."""
    assert list(CHECK.run(analysed(**JOB, **host(count=17)))) == []


@pytest.mark.parametrize("count", [21, 25])
def test_few_samples_are_enough_for_a_steady_leak(count: int):
    """Eight of them make four parts, twelve make six."""
    assert only(CHECK, **memory(lambda at: 100 * at, count=count)).finding.severity == "critical"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (JOB, "not watched"),
        ({**JOB, **host(count=17, rss=lambda at: 1e9 + 200 * MB * at)}, "it takes 8"),
        (memory(lambda at: 100 * at, Missing("no meminfo")), "no meminfo"),
    ],
)
def test_undecided(parts: dict[str, Any], said: str):
    """What was not seen is not healthy."""
    assert said in not_run(CHECK, **parts)


def test_steps_that_become_slower_keep_their_growth():
    """Memory goes with the steps: half as many in a second keep half as much, and that is no settling."""
    slow = dict.fromkeys(range(60, 200), 20 * MS)

    def kept(at: float) -> float:
        fast = min(max(at - 1.0, 0.0), 0.6) / (10 * MS)
        return 1.0 * (fast + max(0.0, at - 1.6) / (30 * MS))

    parts = {**memory(kept, count=60), "extra": slow}
    assert value(only(CHECK, **parts), "growth of memory in a step") == pytest.approx(1 * MB, rel=0.05)

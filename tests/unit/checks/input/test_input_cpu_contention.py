"""input-cpu-contention: input and step fight for the cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.synthetic import MS, Part, chain, sampled, stage
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import registry
from tfdiag.checks.input.input_cpu_contention import CHECK
from tfdiag.checks.registry import Check, Result, Undecided
from tfdiag.model.pipeline import Function, Pipeline
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Finding


def shared(cpu: float = 280 * MS, threads: float = 4) -> Pipeline:
    """Give a parallel map that computes so long for a batch, on so many threads."""
    running = (
        stage(1, "Range", 0.0),
        stage(2, "ParallelMapV2", cpu, threads=threads),
        stage(3, "Prefetch", 0.0),
    )
    return sampled(
        Part("Range", "range(…)"),
        Part("ParallelMap", "map(f)", cpu, 1.0, {"function": Function("f"), "parallelism": -1}),
        Part("Prefetch", "prefetch(2)"),
        running=running,
    )


BUSY: dict[str, Any] = {**with_wait(0.3), "replay_cpu": 1.0, "cores": 4}
"""A step of 100 ms with 70 ms of its own computing, on four cores: 400 ms of them are there."""


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """Busy cores that keep up are what one wants."""
    assert bool(results(CHECK, **{**BUSY, **with_wait(share)}, pipeline=shared(320 * MS))) is fires


@pytest.mark.parametrize(("cpu", "fires"), [(268 * MS, False), (272 * MS, True)])
def test_fires_when_the_cores_are_full(cpu: float, fires: bool):
    """Input and 70 ms of step in 400 ms of cores: 340 ms are 85%."""
    assert bool(results(CHECK, **BUSY, pipeline=shared(cpu))) is fires


@pytest.mark.parametrize(("threads", "fires"), [(3.25, False), (3.35, True)])
def test_silent_when_one_thread_is_the_limit(threads: float, fires: bool):
    """280 ms on 3.3 threads are 85% of the step for each of them: more of them would help then."""
    assert bool(results(CHECK, **BUSY, pipeline=shared(threads=threads))) is fires


def test_a_map_on_all_cores_that_computes_is_no_single_thread():
    """360 ms on four cores are 90% of the step, and no further thread would make them less."""
    found = only(CHECK, **BUSY, pipeline=shared(360 * MS))
    name = "threads on which map(f) computes, on 4 cores"
    assert value(found, name) == 4
    assert "data.experimental.service" in found.suggestions[0].code


def test_the_step_counts_per_step():
    """The replay's processor time is that of a call, which makes several steps."""
    parts = {"wait": 120 * MS, "compute": 276 * MS, "dispatch": 4 * MS, "replay_cpu": 1.0, "cores": 4}
    found = only(CHECK, **parts, steps_per_call=4, pipeline=shared())
    assert value(found, "processor time of input and step for a step") == pytest.approx(350 * MS)


@pytest.mark.parametrize(("cpu", "fires"), [(6.7, False), (6.9, True)])
def test_without_samples_the_input_alone_tells(cpu: float, fires: bool):
    """40 ms alone, in which so many cores are busy."""
    of = chain(("Range", 0.0), ("ParallelMapV2", 160 * MS, 4), ("Prefetch", 0.0))
    assert bool(results(CHECK, **BUSY, pipeline=of, input_alone=40 * MS, input_cpu=cpu)) is fires


def other(name: str, *, finds: bool = True, rank: int = 0) -> Check:
    """Give another check of the input."""

    def run(_: Analysis) -> Iterator[Result]:
        if not finds:
            raise Undecided("no number")
        yield Result(Finding(name, "title", "info", Quantity(0.1, "share"), ()))

    return Check(name, "title", "input", "", run, rank)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a test say which other checks there are."""

    def use(*others: Check) -> None:
        monkeypatch.setattr(registry, "all_checks", lambda: (*others, CHECK))

    return use


@pytest.mark.parametrize(
    ("one", "fires"),
    [
        (other("some-cause"), False),
        (other("some-cause", finds=False), True),
        (other("some-work", rank=1), True),
        (other("uncached-work", rank=1), False),
        (other("unknown-input", rank=2), True),
    ],
)
def test_silent_where_a_cause_is_known(checks: Callable[..., None], one: Check, fires: bool):
    """A cause in the pipeline, or work that need not be done again, comes before other machines."""
    checks(one)
    assert bool(results(CHECK, **BUSY, pipeline=shared())) is fires


def test_shows_its_numbers():
    """Processor time against what is there, and the busiest thread."""
    found = only(CHECK, **BUSY, pipeline=shared())
    both = evidence(found, "processor time of input and step for a step")
    assert both.threshold is not None
    assert both.threshold.value == pytest.approx(340 * MS)
    assert value(found, both.name) == pytest.approx(350 * MS)
    assert value(found, "of this, the input") == pytest.approx(280 * MS)
    assert value(found, "the most that one thread of the input must do for a batch") == pytest.approx(70 * MS)
    assert found.finding.cost.value == pytest.approx(0.3)
    assert CHECK.rank == 2


def test_suggests_workers_elsewhere():
    """280 ms on four cores are 70 ms, the step's own time: one worker, and no wait."""
    (suggestion,) = only(CHECK, **BUSY, pipeline=shared()).suggestions
    assert suggestion.id == "input-cpu-contention/data-service"
    assert suggestion.edits == ()
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 70)


@pytest.mark.parametrize("parts", [{"replay": False}, {"pipeline": Pipeline(missing="gone")}])
def test_undecided_without_its_numbers(parts: dict[str, Any]):
    """Neither the step's own processor time nor the stages may be missing."""
    assert "known" in not_run(CHECK, **{**BUSY, "pipeline": shared(), **parts}) or "pipeline" in parts


def test_undecided_without_the_inputs_processor_time():
    """The runtime's model has times, and no processor times."""
    of = chain(("Range", 0.0), ("ParallelMapV2", 160 * MS, 4), ("Prefetch", 0.0))
    assert "processor time of the input" in not_run(CHECK, **BUSY, pipeline=of)


def test_undecided_without_the_pipeline():
    """A pipeline that nobody knows is not called fine."""
    assert "gone" in not_run(CHECK, **BUSY, pipeline=Missing("gone"))

"""unknown-input: a wait that no other check explains."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.synthetic import MS, Part, sampled
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import registry
from tfdiag.checks.input.unknown_input import CHECK
from tfdiag.checks.registry import Check, Result, Undecided
from tfdiag.model.pipeline import Function, Pipeline
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Finding

ODD = sampled(Part("Odd", "odd(…)", 40 * MS, 0.3), Part("Prefetch", "prefetch(2)"))
"""A source that no check knows."""


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a test say which other checks there are."""

    def use(*others: Check) -> None:
        monkeypatch.setattr(registry, "all_checks", lambda: (*others, CHECK))

    return use


def other(answer: Exception | None = None, topic: str = "input", rank: int = 0) -> Check:
    """Give a check that finds something, or can't."""

    def run(_: Analysis) -> Iterator[Result]:
        if answer is not None:
            raise answer
        yield Result(Finding("other", "title", "info", Quantity(0.1, "share"), ()))

    return Check("other", "title", topic, "", run, rank)


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.098, False), (0.103, True)])
def test_fires_when_the_step_waits(checks: Callable[..., None], share: float, fires: bool):
    """A tenth of the step is worth saying that nobody knows why."""
    checks()
    assert bool(results(CHECK, **with_wait(share), pipeline=ODD)) is fires


@pytest.mark.parametrize(
    ("one", "fires"),
    [
        (other(), False),
        (other(rank=1), False),
        (other(rank=2), False),
        (other(topic="host"), True),
        (other(Undecided("no number")), True),
        (other(ValueError("a bug")), True),
    ],
)
def test_silent_where_another_check_of_the_input_fires(checks: Callable[..., None], one: Check, fires: bool):
    """Whatever its rank; a check on another topic, or one that can't tell, explains no wait."""
    checks(one)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=ODD)) is fires


def test_says_who_could_not_tell(checks: Callable[..., None]):
    """So that nobody takes the missing answer of another check for a no."""
    checks(other(Undecided("no number")))
    found = only(CHECK, **with_wait(0.4), pipeline=ODD)
    assert found.finding.detail == "These checks could not tell: other (no number)"


def test_all_checks_are_asked():
    """With the checks that there really are, an odd source stays unknown."""
    assert results(CHECK, **with_wait(0.4), pipeline=ODD)


def test_shows_what_was_measured():
    """The wait, the slowest stage and who works in it, and the input alone; and no suggestion."""
    found = only(CHECK, **with_wait(0.4), pipeline=ODD, input_alone=38 * MS, input_cpu=0.4)
    wait = evidence(found, "wait for input per step")
    assert wait.threshold is not None
    assert wait.threshold.value == pytest.approx(10 * MS)
    assert value(found, "time of odd(…) for a batch") == pytest.approx(40 * MS)
    assert value(found, "part of its time in which a processor works for odd(…)") == pytest.approx(0.3)
    assert value(found, "a batch from the input alone") == pytest.approx(38 * MS)
    assert value(found, "cores that the input keeps busy alone") == pytest.approx(0.4)
    assert found.finding.where == "odd(…)"
    assert found.suggestions == ()
    assert CHECK.rank == 2


@pytest.mark.parametrize(("parallel", "says"), [(1.05, True), (1.9, False)])
def test_says_when_more_threads_hardly_help(checks: Callable[..., None], parallel: float, says: bool):
    """It was sampled, and spares the reader the first thing that they would try."""
    checks()
    part = Part("Map", "map(f)", 40 * MS, node={"function": Function(name="f")}, parallel=parallel)
    found = only(CHECK, **with_wait(0.4), pipeline=sampled(part, Part("Prefetch", "prefetch(2)")))
    assert ("More threads for map(f) hardly help" in found.finding.detail) is says
    shown = [one.name for one in found.finding.evidence]
    assert ("part of map(f) that only one thread at a time can do" in shown) is says


@pytest.mark.parametrize("of", [Missing("gone"), Pipeline(missing="gone")])
def test_a_wait_is_told_without_a_pipeline(of: Pipeline | Missing):
    """What is not known is said, and the wait all the same."""
    found = only(CHECK, **with_wait(0.4), pipeline=of)
    assert found.finding.where == "the input"
    assert "not known" in found.finding.detail or "no times" in found.finding.detail


def test_undecided_without_the_wait():
    """Neither waits nor a replay: whether the step waits is not known."""
    assert "wait" in not_run(CHECK, **with_wait(0.4), pipeline=ODD, waits=False, replay=False)

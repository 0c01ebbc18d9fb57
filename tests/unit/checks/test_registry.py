"""Finding, silencing and running checks, whatever they do."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tfdiag.checks
from tests.synthetic import MS, analysed
from tests.synthetic_compute import scaled
from tests.synthetic_host import host
from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import registry
from tfdiag.checks.registry import (
    Check,
    Result,
    Undecided,
    all_checks,
    check_ids,
    run_checks,
    severity_of,
)
from tfdiag.errors import UsageError
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Finding

FOLDER = Path(tfdiag.checks.__path__[0])


def made_up(name: str, run: Callable[[Analysis], Iterator[Result]]) -> Check:
    """Give a check that does what a test needs."""
    return Check(name, name, "made-up", "", run)


def finding(name: str) -> Result:
    """Give an answer."""
    return Result(Finding(name, "title", "info", Quantity(0.1, "share"), ()))


def says(name: str) -> Check:
    """Give a check that always finds something."""

    def run(_: Analysis) -> Iterator[Result]:
        yield finding(name)

    return made_up(name, run)


def fails(name: str, error: Exception) -> Check:
    """Give a check that raises."""

    def run(_: Analysis) -> Iterator[Result]:
        raise error
        yield

    return made_up(name, run)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a test say which checks there are."""

    def use(*these: Check) -> None:
        monkeypatch.setattr(registry, "all_checks", lambda: these)

    return use


def test_each_file_is_a_check():
    """Every module in a topic's folder defines one check, of that topic, named after the file."""
    modules = [
        f"tfdiag.checks.{path.parent.name}.{path.stem}"
        for path in sorted(FOLDER.glob("*/*.py"))
        if path.stem != "__init__"
    ]
    defined = [importlib.import_module(name).CHECK for name in modules]
    assert [(check.topic, check.id.replace("-", "_")) for check in defined] == [
        tuple(name.split(".")[2:]) for name in modules
    ]
    assert sorted(check.id for check in defined) == sorted(check.id for check in all_checks())
    topics = [info.name for info in pkgutil.iter_modules(tfdiag.checks.__path__) if info.ispkg]
    assert {check.topic for check in defined} == set(topics)


def test_ids_are_unique_and_sorted_by_topic():
    """An id names one check, and the order does not depend on the disk."""
    ids = [check.id for check in all_checks()]
    assert len(set(ids)) == len(ids) > 0
    assert list(all_checks()) == sorted(all_checks(), key=lambda check: (check.topic, check.id))


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)
def test_each_check_explains_itself(check: Check):
    """The page of a check says what it measures, why, how to fix it, when to ignore it, and where to read."""
    headings = [line for line in check.doc.splitlines() if line and not line.startswith(" ")]
    assert headings[-5:] == [
        "What it measures",
        "Why it matters",
        "How to fix it",
        "When to ignore it",
        "References",
    ]
    assert check.title


def test_known_ids_can_be_ignored():
    """What the caller silences comes back as it was given."""
    assert check_ids(["slow-callback", "tiny-steps"]) == ("slow-callback", "tiny-steps")
    assert check_ids(()) == ()


def test_unknown_ids_are_refused():
    """A misspelt id is an error that says which there are."""
    with pytest.raises(UsageError, match=r"no check named 'slow-calback'; there are .*slow-callback"):
        check_ids(["tiny-steps", "slow-calback"])


def test_a_lone_string_is_refused():
    """A string in place of a tuple is told what to pass, instead of being taken letter by letter."""
    with pytest.raises(UsageError, match=r"ignore: .*\('slow-callback',\)"):
        check_ids("slow-callback")


def test_an_ignored_check_is_silent():
    """An ignored check neither answers nor counts as not run; the others do as before."""
    analysis = analysed(compute=1 * MS, dispatch=8 * MS, callbacks={"Log": 4 * MS})
    found = {result.finding.check for result in run_checks(analysis).results}
    assert {"slow-callback", "tiny-steps"} <= found
    less = run_checks(analysis, ignore=("slow-callback",))
    assert {result.finding.check for result in less.results} == found - {"slow-callback"}
    assert "slow-callback" not in dict(less.not_run)


def test_a_check_that_fails_is_not_run(checks: Callable[..., None]):
    """Its error is told as the reason, and the checks before and after it answer."""
    checks(says("one"), fails("two", ZeroDivisionError("by zero")), says("three"))
    outcome = run_checks(analysed())
    assert [result.finding.check for result in outcome.results] == ["one", "three"]
    assert outcome.not_run == (("two", "the check failed: ZeroDivisionError: by zero"),)


def test_an_undecided_check_is_not_run(checks: Callable[..., None]):
    """What it misses is the reason, word for word."""
    checks(fails("one", Undecided("the waits are not known")))
    assert run_checks(analysed()).not_run == (("one", "the waits are not known"),)


def test_interrupts_are_not_swallowed(checks: Callable[..., None]):
    """Ctrl-C in a check is no failure of the check."""

    def run(_: Analysis) -> Iterator[Result]:
        raise KeyboardInterrupt
        yield

    checks(made_up("one", run))
    with pytest.raises(KeyboardInterrupt):
        run_checks(analysed())


def test_without_a_step_no_check_runs():
    """Too few steps leave every check undecided for that reason, and none silently content."""
    outcome = run_checks(analysed(calls_per_epoch=2))
    assert outcome.results == ()
    assert [name for name, _ in outcome.not_run] == [check.id for check in all_checks()]
    assert all("only 2 calls" in reason for _, reason in outcome.not_run)


def test_a_healthy_job_has_no_problem():
    """A job that computes all the time gets the good news and nothing else."""
    parts = host(count=700) | {"scaling": scaled(1 * MS, 100 * MS / 32)}
    outcome = run_checks(analysed(compute=100 * MS, input_alone=1 * MS, epochs=3, **parts))
    assert [result.finding.check for result in outcome.results] == ["compute-bound"]
    assert outcome.not_run == ()


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.099, "info"), (0.1, "warning"), (0.249, "warning"), (0.25, "critical"), (1.0, "critical")],
)
def test_severity_goes_by_the_share(share: float, severity: str):
    """A tenth of the step is a warning, a quarter is critical."""
    assert severity_of(share) == severity


def test_checks_are_found_once():
    """The walk over the folders happens once, however many reports are made."""
    assert isinstance(registry.all_checks, functools._lru_cache_wrapper)
    assert all_checks() is all_checks()

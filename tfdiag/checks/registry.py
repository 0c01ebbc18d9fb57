"""What a check is, and which there are: one file, one id, found by walking the folders of this package.

A check is a function from an `Analysis` to findings with their suggestions. It fires on what a problem
costs, not on how a job looks; when it can't tell, it raises `Undecided` with what was missing.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.errors import UsageError
from tfdiag.model.quantity import Missing
from tfdiag.model.report import Finding, Severity, Suggestion

__all__ = ["Check", "Outcome", "Result", "Undecided", "all_checks", "check_ids", "run_checks", "severity_of"]


class Undecided(Exception):  # an answer, not an error
    """A check can't tell, because of what its message says."""


@dataclass(frozen=True, slots=True)
class Result:
    """A finding, and what to do about it."""

    finding: Finding
    suggestions: tuple[Suggestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One problem that tfdiag can find."""

    id: str
    """Names the problem, never the fix; part of the public contract."""
    title: str
    topic: str
    doc: str
    run: Callable[[Analysis], Iterable[Result]]
    rank: int = 0
    """0 for a cause; 1 for work that could be spared though nothing is wrong with how it is done; 2 for what
    is said where no cause was found. Causes come first in a report."""
    explains: tuple[str, ...] = ()
    """Checks that see the same in general. Where this one explains most of what they found it comes first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What all checks together said."""

    results: tuple[Result, ...]
    not_run: tuple[tuple[str, str], ...]
    """Check and reason."""


@functools.lru_cache(maxsize=1)
def all_checks() -> tuple[Check, ...]:
    """Give all checks, by topic and id."""
    found = []
    package = importlib.import_module("tfdiag.checks")
    for info in pkgutil.walk_packages(package.__path__, "tfdiag.checks."):
        module = importlib.import_module(info.name)
        check = getattr(module, "CHECK", None)
        if isinstance(check, Check):
            found.append(check)
    return tuple(sorted(found, key=lambda check: (check.topic, check.id)))


def check_ids(ignore: Iterable[str]) -> tuple[str, ...]:
    """Make sure that what the caller silences exists."""
    if isinstance(ignore, str):
        raise UsageError(f"ignore: pass several ids, not one string: ignore={(ignore,)!r}")
    known = {check.id for check in all_checks()}
    ignored = tuple(ignore)
    unknown = [name for name in ignored if name not in known]
    if unknown:
        raise UsageError(
            f"ignore: there is no check named {unknown[0]!r}; there are {', '.join(sorted(known))}"
        )
    return ignored


def run_checks(analysis: Analysis, ignore: Iterable[str] = ()) -> Outcome:
    """Run all checks but the ignored ones; one that fails does not keep the others from running."""
    silenced = set(ignore)
    results: list[Result] = []
    not_run: list[tuple[str, str]] = []
    for check in all_checks():
        if check.id in silenced:
            continue
        try:
            results.extend(_run(check, analysis))
        except Undecided as reason:
            not_run.append((check.id, str(reason)))
        except Exception as error:  # noqa: BLE001  # a report with one check less is better than none
            not_run.append((check.id, f"the check failed: {type(error).__name__}: {error}"))
    return Outcome(tuple(results), tuple(not_run))


def _run(check: Check, analysis: Analysis) -> Iterator[Result]:
    if isinstance(analysis.step, Missing):
        raise Undecided(analysis.step.reason)
    yield from check.run(analysis)


def severity_of(share: float) -> Severity:
    """Rank a problem by the share of the step that it costs."""
    if share >= 0.25:
        return "critical"
    return "warning" if share >= 0.1 else "info"

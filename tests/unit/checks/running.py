"""How tests run one check on a job of known make-up, and what every answer must hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, analysed
from tfdiag.checks.registry import Check, Result, Undecided, run_checks, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence

__all__ = ["evidence", "is_sound", "not_run", "only", "results", "value", "with_wait"]


def results(check: Check, **parts: Any) -> list[Result]:
    """Run a check; each answer is made sure of."""
    found = list(check.run(analysed(**parts)))
    for result in found:
        is_sound(check, result)
    return found


def only(check: Check, **parts: Any) -> Result:
    """Run a check that has one answer."""
    (result,) = results(check, **parts)
    return result


def not_run(check: Check, **parts: Any) -> str:
    """Give the reason why a check can't tell; it must not answer, and a report must show it."""
    analysis = analysed(**parts)
    with pytest.raises(Undecided) as caught:
        list(check.run(analysis))
    outcome = run_checks(analysis)
    assert check.id in dict(outcome.not_run)
    assert check.id not in {result.finding.check for result in outcome.results}
    return str(caught.value)


def is_sound(check: Check, result: Result) -> None:
    """Evidence speaks for the finding, and each suggestion has text, code and a number with its ends."""
    finding = result.finding
    assert finding.check == check.id
    assert finding.title
    assert finding.where
    assert finding.cost.unit == "share"
    assert 0 < finding.cost.value <= 1
    assert finding.severity in ("info", severity_of(finding.cost.value))
    assert any(one.threshold is not None for one in finding.evidence)
    for one in finding.evidence:
        _speaks_for_the_finding(one)
    for suggestion in result.suggestions:
        assert suggestion.id.startswith(f"{check.id}/")
        assert suggestion.check == check.id
        assert suggestion.text
        assert suggestion.risk
        assert suggestion.status == "untried"
        assert all(line[:1] in "+- " for line in suggestion.code.splitlines())
        assert any(line.startswith("+") for line in suggestion.code.splitlines())
        gain = suggestion.predicted
        if isinstance(gain, Missing):
            assert gain.reason
            continue
        assert gain.unit == "x"
        assert gain.low is not None
        assert gain.high is not None
        assert 0.99 < gain.low <= gain.value <= gain.high < 1000


def _speaks_for_the_finding(one: Evidence) -> None:
    assert isinstance(one.quantity, Quantity)
    if one.threshold is None:
        assert one.relation == ""
        return
    assert one.quantity.unit == one.threshold.unit
    if one.relation == "above":
        assert one.quantity.value >= one.threshold.value
    else:
        assert one.relation == "below"
        assert one.quantity.value < one.threshold.value


def evidence(result: Result, name: str) -> Evidence:
    """Give a number of a finding by its name."""
    (found,) = [one for one in result.finding.evidence if one.name == name]
    return found


def value(result: Result, name: str) -> float:
    """Give the value of a number of a finding."""
    quantity = evidence(result, name).quantity
    assert isinstance(quantity, Quantity)
    return quantity.value


def with_wait(share: float) -> dict[str, float]:
    """Give a step of 100 ms that waits for this share of it."""
    return {"wait": share * 100 * MS, "compute": (99 - share * 100) * MS, "dispatch": 1 * MS}

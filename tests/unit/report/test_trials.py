"""What becomes of suggestions when they were tried."""

from __future__ import annotations

from typing import Any

from tests.synthetic import analysed
from tfdiag.checks.registry import Outcome, Result
from tfdiag.model.measurements import Overhead
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Finding, ReportData, Suggestion
from tfdiag.model.trials import Trial, Trials
from tfdiag.report.build import build, with_trials


def suggestion(name: str, *edits: Edit, gain: float = 2.0, **fields: Any) -> Suggestion:
    """Give a suggestion that promises a gain."""
    return Suggestion(name, "a", name, "", Quantity(gain, "x"), edits=edits, **fields)


def after(trials: Trials, *suggestions: Suggestion) -> ReportData:
    """Build a report of these suggestions, and say what their trials gave."""
    finding = Finding("a", "a", "warning", Quantity(0.2, "share"), ())
    data = build(analysed(), Outcome((Result(finding, suggestions),), ()))
    return with_trials(data, trials, Overhead(1.0))


def trial(name: str, status: Any, gain: float | None = None, reason: str = "") -> Trial:
    """Give what a trial found."""
    return Trial(name, status, Missing(reason) if gain is None else Quantity(gain, "x"), reason)


def test_each_suggestion_bears_what_its_trial_found():
    """The confirmed one comes first, the refuted one leaves the advice, and what was not tried says why."""
    found = after(
        Trials(
            (trial("p", "confirmed", 1.3), trial("q", "refuted", 0.99, "measured 0.99x")),
            notes=("trials were ended",),
        ),
        suggestion("r", gain=9.0),
        suggestion("p", Edit("prefetch")),
        suggestion("q", Edit("parallel", 1)),
    )
    assert [(one.id, one.status) for one in found.suggestions] == [("p", "confirmed"), ("r", "untried")]
    assert found.suggestions[0].measured == Quantity(1.3, "x")
    assert "only the caller" in found.suggestions[1].reason
    (rejected,) = found.rejected
    assert (rejected.id, rejected.reason) == ("q", "measured 0.99x")
    assert "trials were ended" in found.warnings
    assert found.measurements.trials.trials[0].status == "confirmed"


def test_the_same_change_is_tried_once():
    """Two checks may ask for it; both get the result."""
    edit = Edit("prefetch")
    found = after(Trials((trial("p", "confirmed", 1.3),)), suggestion("p", edit), suggestion("q", edit))
    assert [one.status for one in found.suggestions] == ["confirmed", "confirmed"]


def test_without_trials_each_says_why():
    """A reason of its own stays."""
    found = after(
        Trials(missing="not tried: verify=False"),
        suggestion("p", Edit("prefetch")),
        suggestion("q", reason="not tried: it takes other machines"),
    )
    assert {one.id: one.reason for one in found.suggestions} == {
        "p": "not tried: verify=False",
        "q": "not tried: it takes other machines",
    }

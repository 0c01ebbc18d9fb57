"""The order of what a report says, and its warnings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, Synthetic, analysed, chain
from tfdiag.analyse.analysis import analyse
from tfdiag.checks.registry import Outcome, Result, run_checks
from tfdiag.model.measurements import HostSample, Live
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Finding, ReportData, Severity, Suggestion
from tfdiag.report.build import build


def finding(name: str, severity: Severity, cost: float) -> Finding:
    """Give a finding."""
    return Finding(name, name, severity, Quantity(cost, "share"), ())


def suggestion(name: str, gain: float | None, **fields: Any) -> Suggestion:
    """Give a suggestion with a predicted gain, or without."""
    predicted: Maybe = Missing("no number") if gain is None else Quantity(gain, "x")
    return Suggestion(name, name, name, "", predicted, **fields)


def report(*results: Result, **parts: Any) -> ReportData:
    """Build a report of these answers."""
    return build(analysed(**parts), Outcome(results, ()))


def warnings(**parts: Any) -> tuple[str, ...]:
    """Give the warnings in the report of a job."""
    return report(**parts).warnings


def order(*given: Finding) -> list[str]:
    """Give the checks of findings as a report has them."""
    return [one.check for one in report(*(Result(one) for one in given)).findings]


def test_findings_come_most_costly_first():
    """By severity, and by cost within it: good news of 90 % stands below a warning of 10 %."""
    found = order(
        finding("good", "info", 0.9),
        finding("small", "info", 0.06),
        finding("large", "critical", 0.5),
        finding("middle", "warning", 0.11),
        finding("larger", "critical", 0.6),
        finding("upper middle", "warning", 0.2),
    )
    assert found == ["larger", "large", "upper middle", "middle", "good", "small"]


def test_what_takes_the_cores_or_the_memory_is_a_cause_like_others():
    """Another job on the same cores that costs most is on top; a leak is above what is merely slow."""
    found = order(
        finding("tiny-steps", "critical", 0.3),
        finding("oversubscribed-threads", "critical", 0.6),
        finding("slow-callback", "warning", 0.2),
        finding("memory-growth", "critical", 0.0),
        finding("compute-bound", "info", 0.9),
    )
    assert found == [
        "oversubscribed-threads", "tiny-steps", "memory-growth", "slow-callback", "compute-bound",
    ]  # fmt: skip


@pytest.mark.parametrize(("cost", "first"), [(0.71, True), (0.73, True), (0.89, True), (0.71 / 1.02, False)])
def test_the_cause_comes_before_what_it_looks_like(cost: float, first: bool):
    """An unfused RNN makes many small kernels; where it makes most of them it is what must be mended."""
    found = order(finding("many-small-kernels", "critical", 0.88), finding("unfused-rnn", "critical", cost))
    assert (found[0] == "unfused-rnn") is first


def test_suggestions_come_best_first():
    """Confirmed before untried, by measured and predicted gain, and those without a number last."""
    measured = Quantity(1.1, "x", origin="measured")
    given = (
        suggestion("none", None),
        suggestion("some", 1.2),
        suggestion("most", 3.0),
        suggestion("tried", 9.0, status="confirmed", measured=measured),
        suggestion("tried more", 1.0, status="confirmed", measured=replace(measured, value=1.3)),
    )
    found = [one.id for one in report(Result(finding("x", "info", 0.1), given)).suggestions]
    assert found == ["tried more", "tried", "most", "some", "none"]


def test_refuted_suggestions_are_no_advice():
    """What a trial refuted stands apart."""
    refuted = suggestion("refuted", 5.0, status="refuted", measured=Quantity(1.0, "x"))
    found = report(Result(finding("x", "info", 0.1), (refuted, suggestion("good", 1.5))))
    assert [one.id for one in found.suggestions] == ["good"]
    assert [one.id for one in found.rejected] == ["refuted"]


def test_suggestions_of_all_findings_are_ranked_together():
    """The best advice comes first, whichever finding it belongs to."""
    first = Result(finding("a", "critical", 0.5), (suggestion("a/1", 1.1), suggestion("a/2", 2.0)))
    second = Result(finding("b", "info", 0.1), (suggestion("b/1", 1.5),))
    assert [one.id for one in report(first, second).suggestions] == ["a/2", "b/1", "a/1"]


def test_what_was_said_before_is_passed_on():
    """Verdict, step, bounds and measurements are the analysis' own, with what was silenced or not run."""
    analysis = analysed(wait=5 * MS)
    found = build(analysis, Outcome((), (("x", "no reason"),)), ignored=["tiny-steps"])
    assert found.verdict is analysis.verdict
    assert found.step is analysis.step
    assert found.bounds is analysis.bounds
    assert found.measurements is analysis.measurements
    assert found.not_run == (("x", "no reason"),)
    assert found.ignored == ("tiny-steps",)


def test_a_job_that_is_well_has_no_warnings():
    """Warnings are for what a reader must know, and here is nothing."""
    assert warnings() == ()


def test_nan_is_a_warning():
    """A loss that is NaN is no error, but told."""
    (text,) = warnings(live={"nan_loss": True})
    assert "NaN" in text


def test_a_cut_is_a_warning():
    """A run that was cut short says why."""
    (text,) = warnings(live={"cut": "the budget ran out"})
    assert text == "the run was cut short: the budget ran out"


@pytest.mark.parametrize(
    ("parts", "warned"),
    [
        ({"calls_per_epoch": 1}, True),
        ({"calls_per_epoch": 2}, False),
        ({"calls_per_epoch": 1, "steps_per_call": 4}, False),
    ],
)
def test_a_single_batch_is_a_warning(parts: dict[str, Any], warned: bool):
    """One step has no steady state; one call of several steps is no single batch."""
    assert any("single batch" in text for text in warnings(**parts)) is warned


def test_a_single_batch_over_epochs_is_none():
    """A batch an epoch makes steps enough once there are epochs enough."""
    assert warnings(calls_per_epoch=1, epochs=30) == ()


@pytest.mark.parametrize(("used", "count"), [(None, 0), (0, 0), (12, 1)])
def test_batches_that_are_gone_are_a_warning(used: int | None, count: int):
    """Batches of a one-shot input can't be put back, and the report says how many."""
    found = warnings(job={"batches_used": used, "input": "generator", "one_shot": True})
    assert len(found) == count
    assert all(text.startswith("12 batches") for text in found)


def test_a_run_that_never_was_has_a_report():
    """Without a run there is a report all the same, without warnings about it."""
    made = replace(Synthetic().measurements(), live=Missing("the first step took too long"))
    found = build(analyse(made), Outcome((), ()))
    assert found.verdict.code == "inconclusive"
    assert found.step == Missing("the first step took too long")
    assert found.warnings == ()
    assert not isinstance(found.measurements.live, Live)


def test_a_whole_job_is_reported_in_order():
    """A slow serial map without overlap: both causes, the costlier first, and unique suggestions."""
    of = chain(
        ("Range", 0.0),
        ("Map", 60 * MS),
        ("BatchV2", 0.0),
        written=("range(…)", "map(decode)", "batch(8)"),
    )
    analysis = analysed(
        wait=60 * MS, compute=39 * MS, input_alone=60 * MS, pipeline=of, callbacks={"Log": 10 * MS}
    )
    found = build(analysis, run_checks(analysis))
    assert [one.check for one in found.findings] == ["sequential-map", "missing-prefetch", "slow-callback"]
    assert found.suggestions[0].check == "sequential-map"
    gains = [one.predicted.value for one in found.suggestions if isinstance(one.predicted, Quantity)]
    assert gains == sorted(gains, reverse=True)
    assert len({one.id for one in found.suggestions}) == len(found.suggestions) == 3


@pytest.mark.parametrize(
    ("busy", "own", "warns"),
    [(3.9, 1.0, True), (3.9, 3.7, False), (3.5, 1.0, False)],
    ids=["others are busy", "the job is", "there are idle cores"],
)
def test_a_crowded_machine_is_a_warning(busy: float, own: float, warns: bool):
    """Ten seconds on four cores: what others take counts where none is left."""
    host = tuple(HostSample(at, own * at, busy * at, 10**9) for at in (0.0, 10.0))
    measured = replace(Synthetic(cores=4).measurements(), host=host)
    found = build(analyse(measured), run_checks(analyse(measured))).warnings
    assert bool(found) is warns
    if warns:
        assert "2.9 cores" in found[0]

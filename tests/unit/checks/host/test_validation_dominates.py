"""validation-dominates: validation takes a large part of the job's time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, Cut, analysed
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.analyse.steady import Steady
from tfdiag.checks.host.validation_dominates import CHECK
from tfdiag.model.measurements import ValidationRun
from tfdiag.model.quantity import Quantity


def with_validation(share: float, **parts: Any) -> dict[str, Any]:
    """Give an epoch of a second's training, beside which validation takes this share of all."""
    job = {"compute": 9 * MS, "dispatch": 1 * MS, "calls_per_epoch": 100, "epochs": 3}
    return {**job, "validation": share / (1 - share) * parts.get("validation_freq", 1), **parts}


@pytest.mark.parametrize("freq", [1, 3])
@pytest.mark.parametrize(("share", "fires"), [(0.249, False), (0.257, True)])
def test_fires_at_a_quarter_of_the_time(share: float, freq: int, fires: bool):
    """What counts is validation spread over the epochs that have none."""
    found = results(CHECK, **with_validation(share, validation_freq=freq))
    assert bool(found) is fires


def test_what_validation_makes_slower_is_its_cost_too():
    """Steps behind a validation find cold caches; that alone makes none of it a finding."""
    analysis = analysed(**with_validation(0.5))
    assert isinstance(analysis.steady, Steady)
    (before,) = CHECK.run(analysis)
    (after,) = CHECK.run(replace(analysis, steady=replace(analysis.steady, aftermath_s=1 * MS)))
    more = after.finding.cost.value - before.finding.cost.value
    assert more == pytest.approx(1 * MS / analysis.step.mean_s, rel=0.05)
    analysis = analysed(**with_validation(0.24))
    assert isinstance(analysis.steady, Steady)
    assert not list(CHECK.run(replace(analysis, steady=replace(analysis.steady, aftermath_s=1 * MS))))


def test_silent_without_validation():
    """A job that does not validate is no finding."""
    assert results(CHECK) == []


def test_shows_its_numbers():
    """Validation per training step with its threshold, the epoch's steps, and the validation's."""
    found = only(CHECK, **with_validation(0.6, steps_per_call=2))
    time = evidence(found, "validation per training step")
    assert time.threshold is not None
    assert time.relation == "above"
    assert value(found, time.name) == pytest.approx(7.5 * MS)
    assert time.threshold.value == pytest.approx(0.25 * 12.5 * MS)
    assert value(found, "training steps in an epoch") == 200
    assert value(found, "validation steps") == 7
    assert found.finding.cost.value == pytest.approx(0.6)
    assert found.finding.severity == "critical"
    assert found.finding.where == "validation_data"


def test_a_cut_validation_is_found_at_its_whole_length():
    """Ten calls of four hundred were seen; the finding is about four hundred, and says so."""
    found = only(CHECK, calls_per_epoch=100, validation_cut=Cut(10, 400, 5 * MS))
    assert found.finding.cost.value == pytest.approx(2.005 / 3.105)
    assert found.finding.detail == "cut short after 10 of 400 calls and extrapolated"
    assert value(found, "validation steps") == 400


def test_suggests_to_validate_less_often():
    """The suggested frequency leaves validation a tenth of the training time."""
    (suggestion,) = only(CHECK, **with_validation(0.495)).suggestions
    assert suggestion.id == "validation-dominates/validation-freq"
    assert suggestion.code == "- model.fit(…, validation_freq=1)\n+ model.fit(…, validation_freq=10)"
    assert suggestion.text.startswith("Validate every 10 epochs instead of every epoch, or on fewer")
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(1 / (1 - 0.495 * 0.9))


def test_starts_from_the_callers_frequency():
    """A job that already validates every second epoch is told a multiple of that."""
    (suggestion,) = only(CHECK, **with_validation(0.495, validation_freq=2, epochs=6)).suggestions
    assert suggestion.code == "- model.fit(…, validation_freq=2)\n+ model.fit(…, validation_freq=20)"
    assert suggestion.text.startswith("Validate every 20 epochs instead of every 2 epochs, or on fewer")


def test_undecided_without_the_length_of_an_epoch():
    """A validation of a second every so many steps costs nobody knows what."""
    reason = not_run(CHECK, **with_validation(0.6, epochs=1, epoch_known=False))
    assert "how often it runs" in reason


def test_undecided_when_no_validation_was_reached():
    """A job that validates, but was not watched so far, is not called fine."""
    reason = not_run(CHECK, **with_validation(0.6, epochs=1, ends=False))
    assert "no validation was reached" in reason


def test_undecided_when_no_epoch_ended():
    """A validation without the end of its epoch is not part of the step yet."""
    reason = not_run(CHECK, **with_validation(0.6, epochs=1), live={"events": ()})
    assert "no epoch ended" in reason


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_more_than_one_pass_is_named_at_a_smaller_share(share: float, fires: bool):
    """Judging the same rows again is worth a finding from a twentieth of the time on."""
    job = {"validation_steps": Quantity(640.0, "steps"), "validation_pass": Quantity(20.0, "steps")}
    parts = {"validation": share * 200 * 0.1 / (1 - share), "compute": 99 * MS, "job": job}
    found = results(CHECK, **parts)
    assert bool(found) is fires
    if fires:
        assert value(found[0], "passes over its data") == 32
        assert found[0].finding.title.endswith("goes over its data 32 times")
        assert found[0].suggestions[0].code == (
            "- model.fit(…, validation_steps=640)\n+ model.fit(…, validation_steps=20)"
        )


@pytest.mark.parametrize(("steps", "fires"), [(20.0, False), (22.0, True)])
def test_one_pass_is_no_reason(steps: float, fires: bool):
    """A validation of one pass has to take far more to be named."""
    job = {"validation_steps": Quantity(steps, "steps"), "validation_pass": Quantity(20.0, "steps")}
    assert bool(results(CHECK, validation=2.0, compute=99 * MS, job=job)) is fires


def test_input_and_step_of_validation_are_told_apart():
    """What it waits for its own data is shown beside its step."""
    run = ValidationRun(0.0, 10.0, 100, 9.0, True, Quantity(0.09, "s"), Quantity(0.06, "s"))
    found = only(CHECK, validation=10.0, compute=9 * MS, live={"validations": (run,)})
    whole = value(found, "validation per training step")
    assert value(found, "of it its input") == pytest.approx(0.6 * whole)
    assert value(found, "of it its step") == pytest.approx(0.3 * whole)
    assert value(found, "of it start and end") == pytest.approx(0.1 * whole)
    assert "its input 60%, its step 30%" in found.finding.detail

"""validation-dominates: validation takes a large part of the job's time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Cut
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.checks.host.validation_dominates import CHECK
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

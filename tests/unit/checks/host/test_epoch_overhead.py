"""epoch-overhead: epochs are so short that their start and end dominate."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.checks.host.epoch_overhead import CHECK
from tfdiag.model.quantity import Quantity


def with_ends(share: float, **parts: Any) -> dict[str, Any]:
    """Give epochs of a second's training, beside which their ends take this share of all."""
    job = {"compute": 9 * MS, "dispatch": 1 * MS, "calls_per_epoch": 100, "epochs": 4}
    return {**job, "between_epochs": share / (1 - share), **parts}


@pytest.mark.parametrize(("share", "fires"), [(0.099, False), (0.103, True)])
def test_fires_at_a_tenth_of_the_time(share: float, fires: bool):
    """What counts is the time between epochs, spread over their steps."""
    assert bool(results(CHECK, **with_ends(share))) is fires


def test_validation_is_none_of_its_business():
    """A long validation lies between epochs too, and has a check of its own."""
    assert results(CHECK, **with_ends(0.02, validation=3.0)) == []


def test_shows_its_numbers():
    """Time between epochs per step with its threshold, and the length of an epoch."""
    found = only(CHECK, **with_ends(0.5))
    time = evidence(found, "between epochs, per step")
    assert time.threshold is not None
    assert value(found, time.name) == pytest.approx(10 * MS)
    assert time.threshold.value == pytest.approx(2 * MS)
    assert value(found, "training steps in an epoch") == 100
    assert found.finding.cost.value == pytest.approx(0.5)
    assert found.finding.severity == "critical"


def test_suggests_as_many_passes_as_it_takes():
    """The ends keep a fiftieth of the step: fifty passes for ends as long as the steps."""
    (suggestion,) = only(CHECK, **with_ends(0.5)).suggestions
    assert suggestion.code == (
        "- model.fit(dataset, epochs=n)\n+ model.fit(dataset.repeat(50), epochs=n // 50)"
    )
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(20 / (20 - 10 * 49 / 50))


def test_undecided_when_no_epoch_ended_by_itself():
    """The end of the only epoch is the diagnosis' own doing."""
    assert "no epoch ended by itself" in not_run(CHECK, **with_ends(0.5, epochs=1))

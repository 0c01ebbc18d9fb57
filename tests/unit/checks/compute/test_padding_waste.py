"""padding-waste: the step takes longer because batches hold padding."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.parts import STEP, padded
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.checks.compute.padding_waste import CHECK
from tfdiag.model.layers import LengthCalls
from tfdiag.model.quantity import Quantity


@pytest.mark.parametrize(("each", "fires"), [(0.105 * MS, True), (0.095 * MS, False)])
def test_fires_at_a_twentieth_of_the_step(each: float, fires: bool):
    """What decides is what the step takes for padding: half of a hundred positions here."""
    assert bool(results(CHECK, **STEP, model=padded(0.5, each))) is fires


@pytest.mark.parametrize(("part", "fires"), [(0.24, False), (0.26, True)])
def test_a_little_padding_is_no_finding(part: float, fires: bool):
    """Batches of sequences always hold some."""
    assert bool(results(CHECK, **STEP, model=padded(part, 0.9 * MS))) is fires


def test_a_step_that_does_not_depend_on_the_length_is_no_finding():
    """Noise may even say that it is quicker with more."""
    assert results(CHECK, **STEP, model=padded(0.8, 0.0)) == []
    assert results(CHECK, **STEP, model=padded(0.8, -0.1 * MS)) == []


def test_shows_its_numbers_and_the_buckets():
    """Share, lengths, both times; the gain lies between no padding and half of it."""
    found = only(CHECK, **STEP, model=padded(0.6, 0.8 * MS, side="left"))
    assert found.finding.cost.value == pytest.approx(0.48)
    assert found.finding.title == "60% of each batch is padding"
    assert "0 at the beginning" in found.finding.where
    assert evidence(found, "part of positions that is padding").relation == "above"
    assert value(found, "a call at length 50") == pytest.approx(60 * MS)
    (advice,) = found.suggestions
    assert "bucket_boundaries=[20, 40, 80]" in advice.code
    gain = advice.predicted
    assert isinstance(gain, Quantity)
    assert gain.low is not None
    assert gain.low <= 100 / (100 - 0.5 * 48) + 1e-6 < gain.value < 100 / 52 * 1.001
    assert "beginning" in advice.risk


def test_a_machine_that_is_slower_in_the_replay():
    """Half of a replayed step is half of the job's, whatever each took."""
    calls = (LengthCalls(100, (120 * MS,) * 8), LengthCalls(50, (60 * MS,) * 8))
    found = only(CHECK, **STEP, model=padded(0.5, 0.0, calls=calls))
    assert found.finding.cost.value == pytest.approx(0.5)


def test_says_what_is_missing():
    """Padding without its time is told as that; little padding needs no time."""
    told = not_run(
        CHECK, **STEP, model=padded(0.5, 1 * MS, timed=False, calls_missing="it takes no other length")
    )
    assert "50%" in told
    assert "no other length" in told
    assert results(CHECK, **STEP, model=padded(0.1, 1 * MS, timed=False)) == []

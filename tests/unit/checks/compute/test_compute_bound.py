"""compute-bound: the device computes nearly all the time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_compute import peak, work
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.checks.compute.compute_bound import CHECK
from tfdiag.model.quantity import Quantity


def computing(share: float, **parts: Any) -> dict[str, Any]:
    """Give a step of 100 ms that computes for this share of it; wait and dispatch halve the rest."""
    rest = (1 - share) * 50 * MS
    return {"compute": share * 100 * MS, "wait": rest, "dispatch": rest, **parts}


@pytest.mark.parametrize(("share", "fires"), [(0.699, False), (0.701, True)])
def test_fires_at_seven_tenths_of_the_step(share: float, fires: bool):
    """Below it something around the step may still be worth mending."""
    assert bool(results(CHECK, **computing(share))) is fires


@pytest.mark.parametrize(("wait", "fires"), [(24.5 * MS, True), (26 * MS, False)])
def test_silent_when_something_else_names_the_verdict(wait: float, fires: bool):
    """Seven tenths of compute beside a quarter of waiting is an input to mend first."""
    found = results(CHECK, compute=100 * MS - wait - 0.1 * MS, wait=wait, dispatch=0.1 * MS)
    assert bool(found) is fires


def test_shows_its_numbers_and_suggests_nothing():
    """Compute with its threshold, and the most that a fix can gain: the good case has no advice."""
    found = only(CHECK, **computing(0.8))
    compute = evidence(found, "compute per step")
    assert compute.threshold is not None
    assert compute.relation == "above"
    assert value(found, compute.name) == pytest.approx(80 * MS)
    assert compute.threshold.value == pytest.approx(70 * MS)
    assert value(found, "the most that any fix around the step can gain") == pytest.approx(1 / 0.9)
    assert found.finding.cost.value == pytest.approx(0.8)
    assert found.finding.severity == "info"
    assert found.suggestions == ()
    assert isinstance(compute.quantity, Quantity)


def test_undecided_without_a_replay():
    """Compute that may be dispatch is not called compute."""
    assert "no time for a replay" in not_run(CHECK, **computing(0.9, replay=False))


def test_undecided_without_waits_and_replay():
    """A call of which nothing is known is not called compute either."""
    assert "waits" in not_run(CHECK, **computing(0.9, replay=False, waits=False))


@pytest.mark.parametrize(("giga", "words"), [(0.6, "arithmetic limits it"), (0.1, "memory traffic")])
def test_says_how_much_of_the_machines_peak_it_reaches(giga: float, words: str):
    """Operations, their rate, the peak and the share of it; and what that means for what comes next."""
    found = only(CHECK, **computing(0.8), work=work({"float32": giga}, peak("float32", 10)))
    assert value(found, "operations of a step (matrix products and convolutions)") == giga * 1e9
    assert value(found, "operations a second while it computes") == pytest.approx(giga * 1e9 / (80 * MS))
    assert value(found, "share of that peak") == pytest.approx(giga / 0.8)
    assert words in found.finding.detail


def test_without_a_peak_the_rate_is_shown_alone():
    """What the machine can do is not guessed."""
    found = only(CHECK, **computing(0.8), work=work({"float32": 0.4}, peaks_missing="no time"))
    names = [one.name for one in found.finding.evidence]
    assert "operations a second while it computes" in names
    assert "share of that peak" not in names

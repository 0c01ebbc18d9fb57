"""What the host did in the steady part of the live run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Synthetic
from tests.synthetic_host import host
from tfdiag.analyse.host import HostFacts, host_facts
from tfdiag.model.quantity import Missing, Quantity

JOB: dict[str, Any] = {"compute": 10 * MS, "dispatch": 1 * MS, "cores": 4, "quota": 2.5}


def facts(first: int = 1, **parts: Any) -> HostFacts:
    """Give the facts of a job."""
    found = host_facts(Synthetic(**{**JOB, **parts}).measurements(), first)
    assert isinstance(found, HostFacts)
    return found


def test_rates_and_means_are_of_the_steady_part():
    """What the first call did is left out."""
    found = facts(
        **host(own=1.5, machine_busy=lambda at: 3 * max(0.0, at - 1.0), runnable=lambda at: 2 * (at > 1))
    )
    assert 1.9 < found.seconds < 2.3
    assert found.rate("machine_busy") == Quantity(
        pytest.approx(3.0), "cores", source="given", count=len(found.rows)
    )
    assert isinstance(found.mean("runnable"), Quantity)
    assert found.mean("runnable").value == 2  # type: ignore[union-attr]  # the line above made sure
    assert isinstance(found.own_cores, Quantity)
    assert found.own_cores.value == pytest.approx(1.5)
    assert found.cores == 2.5
    assert found.rate("involuntary_switches").unit == "switches/s"  # type: ignore[union-attr]


def test_what_was_not_read_is_missing():
    """A reading that there is none of, and one that was not taken meanwhile."""
    found = facts(**host(iowait=Missing("no file"), sent=lambda at: 0.0 if at < 1 else float("nan")))
    assert found.used("iowait") == Missing("no file")
    assert isinstance(found.used("sent"), Missing)
    assert isinstance(found.mean("iowait"), Missing)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, "not watched"),
        (host(count=12), "samples"),
        ({**host(), "live": {"start_s": (), "duration_s": (), "wait_s": ()}}, "no step"),
    ],
)
def test_too_little_is_missing(parts: dict[str, Any], said: str):
    """Nothing is said of a run that was hardly seen."""
    found = host_facts(Synthetic(**JOB, **parts).measurements(), 1)
    assert isinstance(found, Missing)
    assert said in found.reason

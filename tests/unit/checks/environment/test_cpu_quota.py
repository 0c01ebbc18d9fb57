"""cpu-quota: the kernel holds the container back, and the step pays for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_host import host
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.environment.cpu_quota import CHECK
from tfdiag.model.quantity import Missing, Quantity

JOB: dict[str, Any] = {"compute": 10 * MS, "dispatch": 1 * MS, "cores": 8, "quota": 2.0}


def held(share: float, used: float = 2.0, **parts: Any) -> dict[str, Any]:
    """Give a container that uses its quota, and stands still for this share of the time."""
    readings = {
        "group_cpu": used,
        "throttled": used * share / (1 - share),
        "periods": 10,
        "throttled_periods": 9,
    }
    return {**JOB, **host(**(readings | parts))}  # fmt: skip


@pytest.mark.parametrize(("share", "fires"), [(0.05, False), (0.052, True)])
def test_fires_on_what_it_costs(share: float, fires: bool):
    """A quota that is hardly felt is no finding."""
    assert bool(results(CHECK, **held(share))) is fires


@pytest.mark.parametrize(("quota", "fires"), [(8.0, False), (7.5, True)])
def test_a_quota_of_all_cores_is_none(quota: float, fires: bool):
    """Held back with as many cores as there are, the job gained nothing from more."""
    assert bool(results(CHECK, **{**held(0.5), "quota": quota})) is fires


def test_no_quota_is_no_question():
    """Without a quota nothing is asked, and nothing is missing."""
    assert results(CHECK, **{**JOB, "quota": None}) == []


def test_says_what_was_at_work_until_then():
    """Two cores' worth in a quarter of the time were eight at work."""
    found = only(CHECK, **held(0.75))
    assert found.finding.cost.value == pytest.approx(0.75)
    assert value(found, "cores that it had at work until then") == pytest.approx(8.0)
    assert value(found, "periods in which it was used up") == pytest.approx(0.9)
    larger, fewer = found.suggestions
    assert "--cpus=8" in larger.code
    assert isinstance(larger.predicted, Quantity)
    assert larger.predicted.high == pytest.approx(4.0, rel=0.1)
    assert "set_intra_op_parallelism_threads(2)" in fewer.code
    assert isinstance(fewer.predicted, Missing)


def test_a_device_goes_on_meanwhile():
    """What an accelerator computes while the host stands still is not lost."""
    estimated = {"accelerator": True, "compute": 10 * MS, "dispatch": 1 * MS}
    assert results(CHECK, **{**held(0.5), **estimated}) == []


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({**JOB}, "not watched"),
        (held(0.5, throttled=Missing("no file")), "no file"),
        (held(0.5, group_cpu=Missing("not counted")), "not counted"),
        ({**JOB, **host(count=2, throttled=1.0, group_cpu=2.0)}, "samples"),
    ],
)
def test_undecided(parts: dict[str, Any], said: str):
    """What was not seen is not healthy."""
    assert said in not_run(CHECK, **parts)

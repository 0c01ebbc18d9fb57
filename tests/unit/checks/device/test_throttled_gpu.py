"""throttled-gpu: something holds the clocks down, and the step pays for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_gpu import gpu, samples, telemetry
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.device.throttled_gpu import CHECK
from tfdiag.model.quantity import Missing, Quantity

JOB = {"accelerator": True, "compute": 10 * MS, "dispatch": 0.1 * MS}
HEAT, POWER, IDLE, SETTING, HARDWARE, BRAKE = 0x40, 0x04, 0x01, 0x02, 0x08, 0x80


def watched(count: int = 17, fields: Any = None, **readings: Any) -> dict[str, Any]:
    """Give a job on a GPU with these samples."""
    return {**JOB, "gpu": telemetry(gpu(samples=samples(count, **readings), **(fields or {})))}


@pytest.mark.parametrize(("lost", "fires"), [(0.05, False), (0.06, True)])
def test_fires_on_what_it_costs(lost: float, fires: bool):
    """A clock that is hardly lower is no finding."""
    assert bool(results(CHECK, **watched(throttle=HEAT, sm_clock=1410 * (1 - lost)))) is fires


def test_counts_the_samples_in_which_clocks_were_held_down():
    """Held down for half of the time, it costs half."""
    half = [HEAT if place % 2 else 0 for place in range(17)]
    low = [705 if place % 2 else 1410 for place in range(17)]
    found = only(CHECK, **watched(throttle=half, sm_clock=low))
    assert value(found, "part of the busy samples in which heat held the clocks down") == pytest.approx(
        0.5, abs=0.1
    )
    assert value(found, "clock of the multiprocessors in these") == 705
    assert found.finding.cost.value == pytest.approx(0.25, abs=0.05)
    assert found.finding.cost.origin == "estimated"


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (HEAT, "heat"), (0x20, "heat"), (HEAT | HARDWARE, "heat"), (BRAKE | HARDWARE, "brake"),
        (HARDWARE, "by the hardware"), (POWER, "power limit"), (HEAT | POWER, "heat"), (SETTING, "setting"),
    ],
)  # fmt: skip
def test_tells_the_reasons_apart(mask: int, said: str):
    """What causes another reason is named before it."""
    assert said in only(CHECK, **watched(throttle=mask, sm_clock=700)).finding.title


@pytest.mark.parametrize("mask", [IDLE, 0])
def test_an_idle_reason_is_none(mask: int):
    """Low clocks without a reason to hold them down are those of a GPU that has little to do."""
    assert results(CHECK, **watched(throttle=mask, sm_clock=210)) == []


def test_a_gpu_that_hardly_works_is_not_judged():
    """Clocks count while the GPU is busy."""
    assert results(CHECK, **watched(throttle=HEAT, sm_clock=210, utilisation=0.05)) == []


@pytest.mark.parametrize(("limit", "severity"), [(400.0, "info"), (300.0, "critical")])
def test_a_default_power_limit_is_how_the_gpu_was_built(limit: float, severity: str):
    """A limit that somebody lowered can be raised again."""
    fields = {"power_limit": Quantity(limit, "W")}
    found = only(CHECK, **watched(throttle=POWER, sm_clock=700, fields=fields))
    assert found.finding.severity == severity


def test_silent_without_a_gpu():
    """A machine without a GPU hears nothing of it."""
    assert results(CHECK) == []


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({**JOB, "gpu": Missing("the driver slept")}, "the driver slept"),
        ({**JOB, "gpu": telemetry(gpus_missing="no permission")}, "no permission"),
        (watched(count=4), "samples"),
        (watched(throttle=Missing("not supported")), "not supported"),
        (watched(utilisation=Missing("MIG"), throttle=Missing("MIG")), "MIG"),
        (watched(throttle=HEAT, fields={"max_sm_clock": Missing("too old")}), "too old"),
        (watched(throttle=HEAT, sm_clock=700, utilisation=Missing("MIG")), "no trace told it"),
    ],
)
def test_undecided(parts: dict[str, Any], said: str):
    """What was not seen is not healthy."""
    assert said in not_run(CHECK, **parts)

"""A call on a device without a trace: copies, computing and dispatch from what stands in for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, analysed
from tfdiag.analyse.estimated import copy_cost
from tfdiag.model.estimates import CopySample, DeviceEstimates
from tfdiag.model.placement import DeviceOps, Placement
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Step

MB = 1_000_000
CALLING = 0.05 * MS


def copies(*tensors: int, rate: float = 1e9, latency: float = 0.3 * MS) -> tuple[CopySample, ...]:
    """Give copies at so many bytes a second, each with a latency, and what calling costs."""

    def took(size: int) -> tuple[float, ...]:
        return (size / rate + latency + CALLING,) * 9

    return tuple(CopySample(size, took(size), size // 4, took(size // 4)) for size in tensors)


def estimates(**parts: Any) -> DeviceEstimates:
    """Give a batch that takes 4.2 ms to copy, in a step that takes 9 ms more with each row twice."""
    known: dict[str, Any] = {
        "tensors": (4 * MB, 1000), "copies": copies(4 * MB), "op_s": (CALLING,) * 9,
        "once_s": (12 * MS,) * 20, "twice_s": (21 * MS,) * 20,
    }  # fmt: skip
    return DeviceEstimates(**{**known, **parts})


def step_of(found: DeviceEstimates, **parts: Any) -> Step:
    """Give the step of a job of 12 ms on a device, 2 ms of them dispatch of an empty step."""
    job = {"accelerator": True, "compute": 10 * MS, "dispatch": 2 * MS, "wait": 3 * MS}
    step = analysed(**{**job, "estimates": found, **parts}).step
    assert isinstance(step, Step)
    return step


def test_bandwidth_and_latency():
    """The difference between a whole and a quarter tells the one, the rest less the calling the other."""
    cost = copy_cost(estimates())
    assert not isinstance(cost, Missing)
    assert cost.bandwidth == pytest.approx(1e9)
    assert cost.latency_s == pytest.approx(0.3 * MS)
    assert cost.batch.value == pytest.approx(4.201 * MS)
    assert cost.batch.low <= cost.growing <= cost.batch.value <= cost.batch.high


def test_a_call_in_its_parts():
    """Copies, what grows beside them, and the rest; all estimated, with their ends, adding up to the step."""
    step = step_of(estimates())
    parts = {name: part for name, part in step.segments.items() if isinstance(part, Quantity)}
    assert parts["host_to_device"].value == pytest.approx(4.201 * MS)
    assert parts["device_compute"].value == pytest.approx(4.999 * MS)
    assert parts["launch"].value == pytest.approx(2.8 * MS)
    for name in ("host_to_device", "device_compute", "launch"):
        part = parts[name]
        assert (part.origin, part.unit) == ("estimated", "s")
        assert part.source
        assert part.low is not None
        assert part.high is not None
        assert part.low <= part.value <= part.high
    # What is fixed beyond an empty call may be computing too.
    assert parts["device_compute"].high == pytest.approx(5.8 * MS, rel=0.01)
    assert isinstance(step.segments["device_to_host"], Missing)
    assert sum(part.value for part in parts.values()) == pytest.approx(step.mean_s)


def test_several_steps_a_call():
    """A call copies a batch for each of its steps."""
    step = step_of(estimates(), steps_per_call=2)
    assert step.segments["host_to_device"].value == pytest.approx(4.201 * MS)  # type: ignore[union-attr]
    assert step.segments["device_compute"].value == pytest.approx(0.5 * MS, rel=0.01)  # type: ignore[union-attr]


def test_nothing_takes_longer_than_the_call():
    """What was measured beside the job is cut to what there is."""
    step = step_of(estimates(copies=copies(4 * MB, rate=1e8), twice_s=(99 * MS,) * 20))
    assert step.segments["host_to_device"].value == pytest.approx(12 * MS)  # type: ignore[union-attr]
    assert step.segments["device_compute"].value == 0  # type: ignore[union-attr]
    assert sum(part.value for part in step.segments.values() if isinstance(part, Quantity)) == pytest.approx(
        step.mean_s
    )


def test_without_a_longer_batch_dispatch_is_not_known():
    """Copies are taken off, the rest stays together, and the reason is given."""
    step = step_of(estimates(twice_s=(), twice_missing="a batch of another size fails"))
    assert step.segments["device_compute"].value == pytest.approx(7.799 * MS)  # type: ignore[union-attr]
    launch = step.segments["launch"]
    assert isinstance(launch, Missing)
    assert "another size fails" in launch.reason


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"copies": (), "copies_missing": "batches come on the device"}, "come on the device"),
        ({"copies": ()}, "not timed"),
        ({"copies": (CopySample(MB, (1.0,), MB // 4, (1.0,)),)}, "not timed"),
    ],
)
def test_without_copies_they_are_in_what_grows(parts: dict[str, Any], said: str):
    """What crosses the bus is not known then, and says why."""
    step = step_of(estimates(**parts))
    crossing = step.segments["host_to_device"]
    assert isinstance(crossing, Missing)
    assert said in crossing.reason
    assert step.segments["device_compute"].value == pytest.approx(9 * MS)  # type: ignore[union-attr]


@pytest.mark.parametrize("series", ["once_s", "twice_s"])
def test_too_few_calls(series: str):
    """Two calls are no rate."""
    launch = step_of(estimates(**{series: (1.0, 1.0)})).segments["launch"]
    assert isinstance(launch, Missing)
    assert "fewer than three" in launch.reason


def test_a_step_on_the_cpu_has_no_bus():
    """A device that the step does not use tells nothing of it."""
    step = step_of(estimates(), placement=Placement((DeviceOps("/CPU:0", 9, {}),)))
    assert isinstance(step.segments["host_to_device"], Missing)
    assert step.segments["launch"].value == pytest.approx(2 * MS)  # type: ignore[union-attr]

"""Every kernel of the simulated GPU computes what the CPU computes."""

from __future__ import annotations

from typing import Any

import pytest

from . import cases
from .harness import Simgpu


def compare_all(probe: Any) -> Any:
    import tensorflow as tf
    from simgpu import cases

    tf.config.list_physical_devices()
    return cases.compare(probe.kernels())


@pytest.fixture(scope="module")
def report(simgpu: Simgpu) -> dict[str, Any]:
    """The comparison of all kernels, made in one process."""
    return simgpu(compare_all, knobs={"wait": 0, "launch_us": 0}).result


@pytest.mark.parametrize("op", sorted(cases.BUILDERS))
def test_a_kernel_computes_what_the_cpu_computes(report: dict[str, Any], op: str) -> None:
    """An op gives the CPU's result for every type that it is registered for, over several shapes."""
    assert report[op]["failures"] == []
    assert report[op]["cases"] >= report[op]["kernels"]


def test_every_kernel_is_compared(report: dict[str, Any]) -> None:
    """No op is registered without a builder of cases."""
    assert set(report) == set(cases.BUILDERS)

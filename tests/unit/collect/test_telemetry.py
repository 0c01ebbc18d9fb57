"""What comes of the samples of GPUs; the sampling itself is tested over NVML, in tests/simgpu."""

from __future__ import annotations

import math
import threading
import time

import pytest

from tfdiag.collect.telemetry import NO_GPU, GpuSampler, _process, _Seen, _series, _Watched
from tfdiag.compat import gpu as door
from tfdiag.compat.nvml import library_there
from tfdiag.model.gpu import Series
from tfdiag.model.quantity import Missing, Quantity

LIMIT = Quantity(1000.0, "B")


@pytest.mark.skipif(library_there() or bool(door.hardware_signs()), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_has_no_thread():
    """There is nothing to look at, and the report says so."""
    before = threading.active_count()
    with GpuSampler(time.perf_counter) as sampler:
        assert threading.active_count() == before
    assert sampler.telemetry() == Missing(NO_GPU)


def test_a_failure_on_the_thread_stays_there(monkeypatch: pytest.MonkeyPatch):
    """Whatever goes wrong with looking is a gap in the report."""

    def broken() -> None:
        raise KeyError("a driver of its own mind")

    monkeypatch.setattr(door, "hardware_signs", lambda: ("PCI",))
    monkeypatch.setattr(door, "software", lambda **_: broken())
    with GpuSampler(time.perf_counter, period_s=5.0) as sampler:
        assert sampler._thread is not None
        sampler._thread.join()
    found = sampler.telemetry()
    assert isinstance(found, Missing)
    assert "KeyError" in found.reason


@pytest.mark.parametrize(
    ("samples", "in_use", "peak"),
    [
        ([(10.0, 50.0), (20.0, 90.0), (15.0, 90.0)], 20.0, 90.0),
        ([(10.0, 90.0), (20.0, 90.0)], 20.0, None),
        ([(10.0, 90.0), (90.0, 90.0)], 90.0, 90.0),
    ],
)
def test_a_peak_counts_where_it_is_of_this_run(
    samples: list[tuple[float, float]], in_use: float, peak: float | None
):
    """The allocator's peak is that of the whole process: it is ours if it rose, or if it was seen."""
    sampler = GpuSampler(time.perf_counter)
    sampler._memory, sampler._limits = {"GPU:0": samples}, {"GPU:0": LIMIT}
    found = sampler._allocator("GPU:0")
    assert isinstance(found.in_use, Quantity)
    assert found.in_use.value == in_use
    if peak is None:
        assert isinstance(found.peak, Missing)
    else:
        assert isinstance(found.peak, Quantity)
        assert found.peak.value == peak


def test_an_allocator_that_does_not_tell_is_missing():
    """No sample is no zero."""
    sampler = GpuSampler(time.perf_counter)
    sampler._memory, sampler._limits = {"GPU:0": []}, {"GPU:0": LIMIT}
    found = sampler._allocator("GPU:0")
    assert isinstance(found.in_use, Missing)
    assert isinstance(found.peak, Missing)


def test_series_keep_their_gaps():
    """What was not read at a moment is not a number there; what never was has its reason."""
    found = _series([(1.0, {"power": 5.0}), (2.0, {}), (3.0, {"power": 7.0})], {"throttle": "too old"})
    assert isinstance(found.power, Series)
    assert found.at_s == (1.0, 2.0, 3.0)
    assert found.power.values[0::2] == (5.0, 7.0)
    assert math.isnan(found.power.values[1])
    assert found.power.unit == "W"
    assert found.throttle == Missing("too old")
    assert found.utilisation == Missing("NVML gave no value")


def test_a_process_is_averaged_over_all_looks():
    """Who computed in one look of four took a quarter of its share; numbers from elsewhere have no names."""
    watched = _Watched(None, looks=4, busy_looks=4)  # type: ignore[arg-type]  # nothing is read
    found = _process(7, _Seen("python", False, 100.0, 0.8, 2), watched, named=True)
    assert found.utilisation == Quantity(0.2, "share", source="NVML, by process", count=4)
    assert (found.name, found.seen) == ("python", 2)
    watched.busy_looks = 0
    silent = _process(7, _Seen("python", False), watched, named=False)
    assert silent.name == ""
    assert isinstance(silent.memory, Missing)
    assert isinstance(silent.utilisation, Missing)

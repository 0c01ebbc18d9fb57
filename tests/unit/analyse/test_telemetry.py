"""Samples of GPUs, cut to the steady part of the live run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.synthetic import MS, Synthetic, analysed
from tests.synthetic_gpu import EVERY_S, gpu, samples, telemetry
from tfdiag.analyse.telemetry import WatchedGpu, held_down, watched_gpus
from tfdiag.model.gpu import GpuTelemetry
from tfdiag.model.measurements import Device
from tfdiag.model.quantity import Missing, Quantity


def watched(of: GpuTelemetry, **parts: object) -> WatchedGpu:
    """Give the only GPU of a job of 3.2 s, of which the first second is tracing."""
    analysis = analysed(accelerator=True, gpu=of, **parts)
    assert not isinstance(analysis.steady, Missing)
    found = watched_gpus(analysis.measurements, analysis.steady.first)
    assert not isinstance(found, Missing)
    (one,) = found
    return one


def test_keeps_the_steady_part():
    """What the GPU did while the step was traced, and after the run, is left out."""
    one = watched(telemetry(gpu(samples=samples(40, power=[10.0] * 6 + [300.0] * 11 + [50.0] * 23))))
    assert one.mean("power").value == pytest.approx(300.0)
    assert one.count * EVERY_S == pytest.approx(2.2, abs=0.4)


def test_a_reading_that_failed_is_left_out():
    """A gap in a series is no zero."""
    one = watched(telemetry(gpu(samples=samples(power=[float("nan")] * 10 + [200.0] * 7))))
    power = one.mean("power")
    assert isinstance(power, Quantity)
    assert (power.value, power.count) == (200.0, 6)
    dead = watched(telemetry(gpu(samples=samples(power=[300.0] + [float("nan")] * 16))))
    assert isinstance(dead.mean("power"), Missing)
    assert isinstance(dead.highest("power"), Missing)
    assert dead.mean("sm_active") == Missing("not read")


def test_a_slice_is_busy_by_its_clocks():
    """Where there is no utilisation, the idle reason tells."""
    none = Missing("MIG")
    one = watched(telemetry(gpu(samples=samples(utilisation=none, throttle=[1] * 10 + [0] * 7))))
    busy = one.busy
    assert isinstance(busy, tuple)
    assert sum(busy) == 6
    lost = watched(telemetry(gpu(samples=samples(utilisation=none, throttle=none))))
    assert isinstance(lost.busy, Missing)
    assert held_down(lost) is None


def test_which_gpus_count():
    """Those that TensorFlow sees; the only one there is, where that is not known."""
    unnamed = gpu(tensorflow="")
    assert watched(telemetry(gpu(), replace(unnamed, uuid="GPU-2"))).gpu.tensorflow == "GPU:0"
    assert watched(telemetry(unnamed, mapping_missing="by speed")).name == "GPU 0 of the machine"
    two = telemetry(unnamed, replace(unnamed, index=1), mapping_missing="by speed")
    made = Synthetic(accelerator=True, gpu=two).measurements()
    assert watched_gpus(made) == Missing("by speed")


def test_silent_without_a_gpu():
    """Where TensorFlow lists no GPU there is none to watch; where nobody looked, that is said."""
    plain = Synthetic(compute=5 * MS).measurements()
    assert watched_gpus(plain) == ()
    looked = replace(plain, environment=replace(plain.environment, devices=(Device("/GPU:0", "GPU"),)))
    assert watched_gpus(looked) == plain.gpu

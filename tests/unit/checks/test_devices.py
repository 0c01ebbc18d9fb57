"""What the checks of a GPU's samples share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.synthetic import MS, analysed
from tests.synthetic_gpu import gpu, samples, telemetry
from tfdiag.checks.devices import busy_gpus, compute_share
from tfdiag.checks.registry import Undecided
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Step


def test_a_trace_tells_the_compute_time_before_nvml_does():
    """Whoever saw the kernels knows better than who looks now and then whether one runs."""
    analysis = analysed(accelerator=True, compute=5 * MS, dispatch=5 * MS, gpu=telemetry())
    (watched,) = busy_gpus(analysis)
    assert compute_share(analysis, watched).value == pytest.approx(0.9)
    assert isinstance(analysis.step, Step)
    half = Quantity(analysis.step.mean_s / 2, "s")
    segments = {**analysis.step.segments, "host_to_device": Quantity(1 * MS, "s"), "device_compute": half}
    traced = replace(analysis, step=replace(analysis.step, segments=segments))
    assert compute_share(traced, watched).value == pytest.approx(0.5)


@pytest.mark.parametrize(("live", "enough"), [(4, False), (5, True)])
def test_a_few_samples_say_nothing(live: int, enough: bool):
    """A second of samples is the least."""
    of = telemetry(gpu(samples=samples(6 + live)))
    analysis = analysed(accelerator=True, gpu=of)
    if enough:
        assert len(list(busy_gpus(analysis))) == 1
    else:
        with pytest.raises(Undecided, match="4 samples of GPU:0"):
            list(busy_gpus(analysis))


def test_a_gpu_that_was_lost_is_said_to_be():
    """Why the samples are few matters more than that they are."""
    of = telemetry(gpu(samples=samples(3), cut="the GPU fell off the bus"))
    with pytest.raises(Undecided, match="fell off the bus"):
        list(busy_gpus(analysed(accelerator=True, gpu=of)))
    dead = telemetry(gpu(samples=Missing("no handle")))
    with pytest.raises(Undecided, match="not watched"):
        list(busy_gpus(analysed(accelerator=True, gpu=dead)))

"""cpu-op-in-gpu-step: the accelerator stands idle around an op on the CPU."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.placements import GPU_STEP, copy, host_op, mixed, on_cpu, python_op, timed
from tests.unit.checks.running import evidence, not_run, only, results
from tfdiag.checks.placement.cpu_op_in_gpu_step import CHECK
from tfdiag.model.quantity import Missing


@pytest.mark.parametrize(("seconds", "fires"), [(5.2 * MS, True), (4.9 * MS, False)])
def test_fires_when_the_accelerator_waits(seconds: float, fires: bool):
    """What decides is how long it stands idle around such ops."""
    assert bool(results(CHECK, **GPU_STEP, placement=mixed(host_op(), **timed("host", seconds)))) is fires


def test_shows_the_copies():
    """With their bytes, where the graph knows them."""
    there_and_back = (copy(), copy("host to device"), copy(size=1e9, purpose="input"))
    times = timed("host", 50 * MS)
    found = only(CHECK, **GPU_STEP, placement=mixed(host_op(), copies=there_and_back, **times))
    shown = evidence(found, "copied to the CPU and back in a step").quantity
    assert not isinstance(shown, Missing)
    assert (shown.value, shown.unit) == (8e6, "B")
    unknown = mixed(host_op(), copies=(copy(size=None),), **times)
    names = {one.name for one in only(CHECK, **GPU_STEP, placement=unknown).finding.evidence}
    assert "copied to the CPU and back in a step" not in names


@pytest.mark.parametrize(
    ("reason", "said", "advised"),
    [
        ("pinned", "pinned to the CPU with tf.device", "tf.device"),
        ("no kernel", "no kernel for it", "dataset.map"),
        ("no kernel for this type", "no kernel for float32", "tf.cast"),
        ("variable there", "a variable or resource", "layer.build"),
        ("not known", "", "dataset.map"),
    ],
)
def test_says_why_it_is_there(reason: str, said: str, advised: str):
    """The reason leads the advice; one that is not known is not made up."""
    op = host_op(reason=reason)
    found = only(CHECK, **GPU_STEP, placement=mixed(op, **timed("host", 50 * MS)))
    assert said in found.finding.detail
    assert bool(found.finding.detail) is bool(said)
    assert advised in found.suggestions[0].code


def test_silent_elsewhere():
    """A machine without an accelerator, a step on the CPU, a Python function: not this check's."""
    times = timed("host", 50 * MS)
    assert results(CHECK, placement=on_cpu(host_op(), **times)) == []
    assert results(CHECK, **GPU_STEP, placement=mixed(host_op(), cpu=200, **times)) == []
    assert results(CHECK, **GPU_STEP, placement=mixed(python_op(), **timed("python", 50 * MS))) == []


def test_says_what_is_missing():
    """No parts, or no times, is no verdict; without an accelerator nothing is missing."""
    assert "Cumsum" in not_run(CHECK, **GPU_STEP, placement=mixed(host_op(), times_missing="no kernels"))
    nowhere = mixed(cpu=0, gpu=0, copies_missing="no parts")
    assert not_run(CHECK, **GPU_STEP, placement=nowhere) == "no parts"
    assert results(CHECK, placement=Missing("no graph")) == []

"""What is said about where ops run."""

from __future__ import annotations

from tests.unit.checks.placements import copy, host_op, mixed, on_cpu, python_op, variables
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.placement import placement_lines


def test_a_plain_job_on_the_cpu_says_nothing():
    """There is one device, and nothing to see."""
    assert list(placement_lines(on_cpu())) == []
    assert list(placement_lines(Missing("an eager step has no graph"))) == []


def test_python_is_named_on_any_machine():
    """With its layer, its place and its time."""
    ((name, text),) = placement_lines(on_cpu(python_op(in_loop=True, per_call_s=Quantity(2e-3, "s"))))
    assert name == "EagerPyFunc"
    assert text == "on /CPU:0, layer scale, calls halve at net.py:7, in a loop, 2.00 ms a call"


def test_devices_copies_and_ops_of_a_gpu():
    """A line for each device, each kind of copy, and each op; equal ones are counted."""
    placement = mixed(
        host_op(), host_op(), copies=(copy(), copy(size=None)), variables=variables(("/GPU:0", 4096))
    )
    lines = dict(placement_lines(placement))
    assert lines["/GPU:0"] == "100 ops (100 MatMul), 4 variables of 4.00 KiB"
    assert lines["/CPU:0"] == "2 ops (2 Cast)"
    assert lines["device to host"] == "2 copies inside the step, 3.81 MiB, 1 of unknown size"
    assert lines["Cumsum"] == "2 times, on /CPU:0, layer dense_1, pinned with tf.device"

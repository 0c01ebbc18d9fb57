"""The lines about the device."""

from __future__ import annotations

from tests.traces import MS, US, Plane, job, space
from tfdiag.model.quantity import Missing
from tfdiag.render.device import device_lines
from tfdiag.timeline import condense, read_trace


def lines_of(data: bytes) -> dict[str, str]:
    """Give the lines of a trace."""
    return dict(device_lines(condense(read_trace(data))))


def test_says_what_the_device_did():
    """Steps, kernels, launches, copies and the busiest ops."""
    lines = lines_of(job(copy=4 * MS, copy_bytes=2**22, kernel=3 * US, launch=6 * US, late=10 * US))
    assert lines["traced"].startswith(
        "5 steps of 4.05 ms, calls of the function inference_one_step_on_iterator; "
    )
    assert "4 kernels a step" in lines["/device:GPU:0"]
    assert "100 % of the kernels shorter than their launch" in lines["/device:GPU:0"]
    assert lines["  copies to the device"] == (
        "1 a step, 4.00 ms, 4.00 MiB, 1,000 MiB/s, 100 % from pageable memory, 0 % of it while kernels run"
    )
    (busiest,) = [text for name, text in lines.items() if "dense_0" in name]
    assert busiest.endswith("layer sequential/dense_0")


def test_nothing_is_said_where_nothing_was_traced():
    """No line for a device that nobody looked at, and none for a trace without steps."""
    assert list(device_lines(Missing("no device"))) == []
    assert list(device_lines(condense(read_trace(job(kernels=0))))) == []


def test_idle_devices_and_hosts_are_named():
    """Several devices each have a line."""
    data = job() + space(Plane("/device:GPU:3", {}))
    assert lines_of(data)["did nothing"] == "/device:GPU:3"

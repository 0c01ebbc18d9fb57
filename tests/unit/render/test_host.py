"""The machine in a few words: what matters, and nothing else."""

from __future__ import annotations

from typing import Any

from tests.synthetic import MS, Synthetic
from tests.synthetic_host import host
from tfdiag.model.gpu import Series
from tfdiag.model.host import HostProcess
from tfdiag.render.host import host_lines

JOB: dict[str, Any] = {"compute": 10 * MS, "dispatch": 1 * MS}


def lines(**parts: Any) -> dict[str, str]:
    """Give the lines of a job."""
    return dict(host_lines(Synthetic(**JOB, **parts).measurements()))


def test_a_quiet_machine_is_one_line():
    """How busy the cores were, and with what."""
    assert lines(**host(own=1.5)) == {"cores": "2 of 4 busy, 1.5 with this process"}


def test_nothing_read_is_nothing_said():
    """A report of before, or of a system without such files."""
    assert lines() == {}


def test_a_crowded_machine():
    """One core that is full, time in the kernel, the queue and who else computes."""
    core_at = (101.5, 102.5)
    fields = {
        "processes": (HostProcess(7, "python", 2.0),),
        "core_at_s": core_at,
        "cores": (Series((1.0, 1.98), "s"), Series((1.0, 1.5), "s")),
    }
    found = lines(**host(own=2.0, machine_busy=3.9, system_cpu=1.0, runnable=11.0, fields=fields))
    assert found["cores"] == (
        "3.9 of 4 busy, 2 with this process, the busiest for 98 % of the time, 50 % of its time in the "
        "kernel, 11 threads want to run at a time, others: python 7 (2)"
    )


def test_a_host_that_takes_cores_away():
    """On a virtual machine the cores may be busy with somebody else's work."""
    assert lines(**host(own=0.5, system_cpu=0.0, stolen=1.2))["cores"] == (
        "2 of 4 busy, 0.5 with this process, 1.2 taken away by the host of this virtual machine"
    )


def test_a_container_and_its_traffic():
    """The quota, waits for disks and the network where there is much of it."""
    found = lines(
        **host(periods=10.0, throttled_periods=4.0, iowait=0.3, received=2.0**30, sent=1000.0), quota=2.0
    )
    assert found["container"] == "a quota of 2 cores, used up in 40 % of its periods"
    assert found["disks and network"] == "0.3 cores idle because of disks, 1.00 GiB/s received"

"""What the process and the machine tell of themselves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest

from tfdiag.compat import host
from tfdiag.model.quantity import Missing, Quantity


def folder(root: Path, files: dict[str, str]) -> Path:
    """Write a fake control group."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V1 = "cpu/cpu.cfs_quota_us"
PERIOD = "cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "50000 100000"}, 0.5),
        ({V1: "400000\n", PERIOD: "100000\n"}, 4.0),
        ({"cpu.max": "200000 100000", V1: "400000", PERIOD: "100000"}, 2.0),
        ({"cpu.max": "max 100000", V1: "300000", PERIOD: "100000"}, 3.0),
        ({"cpu.max": "max 100000\n"}, None),
        ({V1: "-1\n", PERIOD: "100000\n"}, None),
        ({V1: "100000"}, None),
        ({"cpu.max": ""}, None),
        ({"cpu.max": "many 100000"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_a_container(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    """The quota is read from either version of control groups; none, or one unreadable, is missing."""
    quota = host.cpu_quota(folder(tmp_path, files))
    if expected is None:
        assert quota == Missing("no container quota is set")
    else:
        assert isinstance(quota, Quantity)
        assert (quota.value, quota.unit) == (expected, "cores")


def test_a_reading_moves_with_the_process() -> None:
    """Processor time grows with work, and memory, threads and counters are of this process."""
    reader = host.Host()
    before = reader.read()
    while reader.read().process_cpu_s - before.process_cpu_s < 0.02:
        sum(range(10_000))
    after = reader.read()
    assert after.system_cpu_s >= before.system_cpu_s > after.process_cpu_s > 0
    assert after.threads >= 1
    assert 10**6 < after.rss_bytes < host.memory_bytes()
    assert isinstance(after.runnable, Quantity) and after.runnable.value >= 1


def test_what_a_platform_hides_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform without counters of reads, or without /proc, gives reasons in their place."""

    def hidden(*_: object) -> None:
        raise psutil.AccessDenied

    def no_file(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(psutil.Process, "io_counters", hidden)
    monkeypatch.setattr(Path, "read_text", no_file)
    reading = host.Host().read()
    assert isinstance(reading.read_bytes, Missing) and "reads" in reading.read_bytes.reason
    assert isinstance(reading.write_bytes, Missing) and "writes" in reading.write_bytes.reason
    assert reading.runnable == Missing("the platform has no /proc/loadavg")


def test_idle_and_waiting_for_disks_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's processor time is what was not idle, guests counted once."""
    kinds = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")

    class Times(tuple):
        """Processor times as Linux gives them."""

        __slots__ = ()
        idle, iowait = 100.0, 10.0

    assert kinds[3:5] == ("idle", "iowait")
    times = Times((5.0, 1.0, 2.0, 100.0, 10.0, 0.5, 0.5, 1.0, 4.0, 0.0))
    monkeypatch.setattr(psutil, "cpu_times", lambda: times)
    assert host.Host().read().system_cpu_s == pytest.approx(10.0)


def test_cores_and_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cores are those that this process may use; free memory and disk are what psutil says."""
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert host.cores() == 3
    monkeypatch.delattr(host.os, "sched_getaffinity")
    monkeypatch.setattr(host.os, "cpu_count", lambda: None)
    assert host.cores() == 1
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=8.0, available=3.0))
    assert (host.memory_bytes(), host.free_memory_bytes()) == (8, 3)
    assert 0 < host.free_disk_bytes(str(tmp_path)) <= psutil.disk_usage(str(tmp_path)).total


def test_what_the_host_of_a_virtual_machine_takes_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the cores that this process may run on; where no system tells, nothing was seen to be taken."""

    class Times(NamedTuple):
        """What Linux tells of a core."""

        user: float
        steal: float

    each = [Times(5.0, 1.5), Times(5.0, 0.5), Times(5.0, 8.0)]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: each)
    assert host.stolen_s() == 2.0
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [])
    assert host.stolen_s() == 0.0

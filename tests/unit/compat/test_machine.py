"""What Linux tells of the machine, of the process and of its container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.compat.test_host import folder
from tfdiag.compat import cgroup, host, machine
from tfdiag.model.quantity import Quantity

STAT = """\
cpu  900 0 100 8000 60 0 25 15 0 0
cpu0 400 0 50 4000 30 0 10 10 0 0
cpu1 500 0 50 4000 30 0 15 5 0 0
intr 1 2 3
ctxt 99
procs_running 7
procs_blocked 2
"""
NET = """\
Inter-|   Receive  |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop
    lo: 500 5 0 0 0 0 0 0 500 5 0 0 0 0 0 0
  eth0: 3000 9 0 0 0 0 0 0 70 1 0 0 0 0 0 0
  eth1:1000 9 0 0 0 0 0 0 30 1 0 0 0 0 0 0
"""
FILES = {
    "proc/stat": STAT,
    "proc/net/dev": NET,
    "proc/self/statm": "9000 700 200 1 0 600 0",
    "proc/meminfo": "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:   4000 kB\n",
    "proc/self/cgroup": "0::/jobs/mine\n",
}
V2 = {
    "groups/jobs/cpu.max": "150000 100000",
    "groups/jobs/mine/cpu.max": "max 100000",
    "groups/jobs/cpu.stat": "usage_usec 2500000\nnr_periods 40\nnr_throttled 30\nthrottled_usec 1500000\n",
    "groups/jobs/mine/memory.max": "2000000",
    "groups/jobs/mine/memory.current": "1500000",
    "groups/jobs/mine/memory.stat": "anon 5\ninactive_file 400000\n",
}
V1 = {
    "proc/self/cgroup": "3:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n0::/\n",
    "groups/cpu,cpuacct/cpu.cfs_quota_us": "50000",
    "groups/cpu,cpuacct/cpu.cfs_period_us": "100000",
    "groups/cpu,cpuacct/cpu.stat": "nr_periods 40\nnr_throttled 30\nthrottled_time 1500000000\n",
    "groups/cpu,cpuacct/cpuacct.usage": "2500000000",
    "groups/memory/memory.limit_in_bytes": "9223372036854771712",
    "groups/memory/memory.usage_in_bytes": "1500000",
}


def meter(root: Path, **more: dict[str, str]) -> machine.Meter:
    """Give a meter on a machine of files."""
    folder(root, FILES | {name: text for files in more.values() for name, text in files.items()})
    return machine.Meter(root / "proc", root / "groups")


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_allowed", lambda: {0, 1})
    monkeypatch.setattr(machine, "_ticks", lambda: 0.01)


def test_a_reading(tmp_path: Path) -> None:
    """Cores, queue, memory and network as the files say; loops to the machine itself don't count."""
    meter_ = meter(tmp_path)
    found = meter_.read()
    assert found["machine_busy"] == pytest.approx(10.4)
    assert found["iowait"] == pytest.approx(0.6)
    assert found["stolen"] == pytest.approx(0.15)
    assert (found["runnable"], found["blocked"]) == (7, 2)
    assert (found["received"], found["sent"]) == (4000, 100)
    assert found["anonymous_memory"] == 500 * os.sysconf("SC_PAGE_SIZE")
    assert found["free_memory"] == 4000 * 1024
    assert meter_.cores == {0: pytest.approx(4.7), 1: pytest.approx(5.7)}
    assert meter_.refused == dict.fromkeys(
        ("periods", "throttled_periods", "throttled", "group_cpu"), "no container quota is set"
    )


def test_cores_of_others_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may use one core is told of that one."""
    monkeypatch.setattr(machine, "_allowed", lambda: {1})
    assert meter(tmp_path).read()["machine_busy"] == pytest.approx(5.7)


@pytest.mark.parametrize(("files", "quota"), [(V2, 1.5), (V1, 0.5)])
def test_how_a_container_is_held_back(tmp_path: Path, files: dict[str, str], quota: float) -> None:
    """Both versions of control groups, with the quota of a group around its own, in the same units."""
    found = meter(tmp_path, of=files).read()
    assert {name: found[name] for name in ("periods", "throttled_periods", "throttled", "group_cpu")} == {
        "periods": 40, "throttled_periods": 30, "throttled": 1.5, "group_cpu": 2.5,
    }  # fmt: skip
    group = cgroup.cpu_group(tmp_path / "groups", tmp_path / "proc/self/cgroup")
    assert group is not None
    assert group.cores == quota


def test_a_containers_memory(tmp_path: Path) -> None:
    """What its limit leaves, with the pages of files that it can give back; a limit beyond all is none."""
    assert meter(tmp_path, of=V2).read()["free_memory"] == 900_000
    folder(tmp_path / "old", {**FILES, **V1})
    assert cgroup.memory_groups(tmp_path / "old/groups", tmp_path / "old/proc/self/cgroup") == ()


def test_a_platform_without_such_files(tmp_path: Path) -> None:
    """Each value has its reason, and what the system counts otherwise is still there."""
    meter_ = machine.Meter(tmp_path / "nothing", tmp_path / "groups")
    found = meter_.read()
    assert set(found) == {"system_cpu", "voluntary_switches", "involuntary_switches"}
    assert meter_.refused["runnable"] == "the platform has no /proc/stat"
    assert meter_.refused["received"] == "the platform has no /proc/net/dev"
    assert meter_.cores == {}


def test_switches_are_those_of_all_threads() -> None:
    """The process has gone to sleep before, and it computes in the kernel."""
    found = machine.Meter().read()
    assert found["voluntary_switches"] > 0
    assert found["system_cpu"] > 0


def test_processes(tmp_path: Path) -> None:
    """Names with brackets and spaces, numbers that are no processes, and one that ended meanwhile."""
    cells = " S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20"
    files = {"proc/12/stat": f"12 (a) b (c){cells}", "proc/13/stat": "13 (gone", "proc/kmsg": "x"}
    folder(tmp_path, files)
    assert machine.processor_times(tmp_path / "proc") == {12: ("a) b (c", 3.0)}
    folder(tmp_path, {"proc/12/maps": "7f00 r-xp /site-packages/tensorflow/libtensorflow_cc.so.2\n"})
    assert machine.uses_tensorflow(12, tmp_path / "proc")
    assert not machine.uses_tensorflow(13, tmp_path / "proc")


def test_the_quota_is_the_tightest(tmp_path: Path) -> None:
    """Of version 1 and version 2, and of the groups around one's own."""
    folder(tmp_path, {"cpu.max": "400000 100000", "unified/cpu.max": "300000 100000"})
    assert host.cpu_quota(tmp_path) == Quantity(3.0, "cores", source="cgroup v2 cpu.max")

"""Tests of real jobs are measurements, and need the machine: what was measured while it was away is void.

On a virtual machine whose host gives the cores to others for a minute, steps of 2 ms take 200, and no verdict
is a verdict on tfdiag. So a test during which others had more than `MOST` of the cores is void and is run
again once the machine is back, whether it passed or failed: what it came to is not looked at, or this would
hide failures. All of them are listed at the end. Where the machine stays away, the last outcome counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

__all__ = ["MOST", "OwnMachine", "Reading", "can_be_told"]

MOST = 0.15
"""Of the cores, on average over a test. Where several share a machine somebody always has some of it."""
_SHORTEST_S = 0.5
"""Ticks of 10 ms tell nothing of a shorter test, and none of those measures anything."""
_RUNS = 5
_REST_S = 5.0
_LOOK_S = 1.5
_EXTRA_S = 1200.0
"""For void runs and waiting in all, or a machine that is never quiet would be waited for without end."""
_STAT = Path("/proc/stat")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def can_be_told() -> bool:
    """Say whether this system tells who has its cores."""
    return _STAT.exists()


@dataclass(frozen=True)
class Reading:
    """What the cores have done, and what of it this process and the children that it waited for."""

    at_s: float
    busy_s: float
    own_s: float

    @classmethod
    def now(cls) -> Reading:
        """Read it."""
        cells = [int(cell) for cell in _STAT.read_text().split("\n", 1)[0].split()[1:]]
        user, nice, system, _, _, irq, softirq, steal = cells[:8]
        own = os.times()
        return cls(
            time.monotonic(),
            (user + nice + system + irq + softirq + steal) / _TICKS,
            own.user + own.system + own.children_user + own.children_system,
        )

    def others_since(self, before: Reading) -> float:
        """Give the share of all cores that somebody else had."""
        taken = (self.busy_s - before.busy_s) - (self.own_s - before.own_s)
        return taken / (self.at_s - before.at_s) / (os.cpu_count() or 1)


def _spin(seconds: float) -> None:
    """Keep each core busy, as tests do: what one core is given says nothing of all of them."""
    code = f"import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
    running = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(os.cpu_count() or 1)]
    for each in running:
        each.wait()


@dataclass
class OwnMachine:
    """A plugin that runs tests again which did not have the machine."""

    measures: Callable[[pytest.Item], bool] = lambda item: True
    """Whether a test does; others are left alone."""
    read: Callable[[], Reading] = Reading.now
    sleep: Callable[[float], None] = time.sleep
    spin: Callable[[float], None] = _spin
    left_s: float = _EXTRA_S
    void: list[str] = field(default_factory=list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a test until it had the machine for itself."""
        if not self.measures(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[pytest.TestReport]:
        for _ in range(_RUNS):
            before = self.read()
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            after = self.read()
            others = after.others_since(before)
            short = after.at_s - before.at_s < _SHORTEST_S
            if others <= MOST or short or self.left_s <= 0:
                break
            self.void.append(f"{item.nodeid}: others had {others:.0%} of the cores")
            self.left_s -= after.at_s - before.at_s
            if (terminal := item.config.pluginmanager.getplugin("terminalreporter")) is not None:
                terminal.write_line(f"void, waiting for the machine: {self.void[-1]}")
            # What its module prepared was measured then as well.
            item.session._setupstate.teardown_exact(item.session)
            item._initrequest()
            self._wait()
        yield from reports

    def _wait(self) -> None:
        """Wait until the cores are there when they are wanted: nobody takes one from a machine that idles."""
        while self.left_s > 0:
            self.sleep(_REST_S)
            before = self.read()
            self.spin(_LOOK_S)
            self.left_s -= _REST_S + _LOOK_S
            if self.read().others_since(before) <= MOST:
                return

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was run again."""
        if self.void:
            terminalreporter.section("void, because others had the machine")
            for line in self.void:
                terminalreporter.line(line)

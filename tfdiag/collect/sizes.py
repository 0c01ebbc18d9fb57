"""The same work on several devices by turns, at sizes that show where one of them begins to win."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tfdiag import stats
from tfdiag.collect.causes import root_cause
from tfdiag.compat import devices as door
from tfdiag.model.devices import DeviceRun, SizeTimes
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["Prepare", "Sizes", "Work"]

_STEP = 4
"""From one size to the next, until the crossing is between two of them."""
_NEAR = 1.5
"""Sizes on both sides of a crossing are then no further apart than this."""
_BESIDE = 1.2
"""A size is put so far beside where the crossing is expected, to have it between two of them."""
_EXPLORE_SHARE = 0.6
"""Of the time: finding the sizes; the rest measures them."""
_GROWN = 4.0
"""A call that takes so many times as long as with the least size shows what a row costs."""
_BEHIND = 1.5
"""A host that takes so many times as long as the others will not catch up with more rows."""
_MOVING = 3.0
"""Copies get so many times the time of the calls themselves, then no more."""
_FLAT = 0.85
"""A call that still takes this much with a quarter of the rows has little left that grows."""
_BLOCK_S = 4e-3
_LEAST_BLOCK_S = 3e-4
_LEAST_CALLS = 3
"""In a block, after one that is not counted,"""
_LONG_S = 0.05
"""unless a call takes so long that what came before it no longer shows."""
_WAKE_S = 0.04
"""So long a processor works before it is timed: its threads share a core until the system has spread them,"""
_ALONE_S = 1e-4
"""unless a call is so short that one thread does all of it."""
_MOST_ROUNDS = 41
_GOOD_ROUNDS = 9
_LEAST_ROUNDS = 3
_GOOD_ENOUGH = 0.02
_GUESSES = 3
_GUESS_S = 0.05
_WAITS = 8


@dataclass(frozen=True, slots=True)
class Work:
    """A call that is ready to be made."""

    call: Callable[[], Any]
    there: Callable[[], Any] | None = None
    """Copies the arguments to the device, where there is something to copy."""


Prepare: TypeAlias = Callable[[str, int], Work]
"""Makes the work ready for a device and a size; raises where that can't be."""


@dataclass(slots=True)
class _Cell:
    """One size on one device; series are as the clock told them."""

    rows: int
    work: Work
    guess_s: float
    ready_s: float
    """What making it ready took: for the most part copying the arguments to the device."""
    tried: list[tuple[float, float]]
    """The first calls, which stand for all where there is no time for more."""
    call_s: list[float] = field(default_factory=list)
    returns_s: list[float] = field(default_factory=list)
    there_s: list[float] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)

    def times(self, wait_s: float) -> SizeTimes:
        """Give the series, less what waiting takes by itself."""
        calls = list(zip(self.call_s, self.returns_s, strict=True)) or self.tried
        return SizeTimes(
            rows=self.rows,
            call_s=tuple(max(returns, taken - wait_s) for taken, returns in calls),
            returns_s=tuple(returns for _, returns in calls),
            there_s=tuple(max(0.0, taken - wait_s) for taken in self.there_s),
            back_s=tuple(self.back_s),
        )


class _Runner:
    """One device."""

    def __init__(
        self,
        device: str,
        kind: str,
        clock: Callable[[], float],
        *,
        chosen: bool = True,
        sleeps: bool = False,
        fenced: bool = True,
    ) -> None:
        self.device, self.kind = device, kind
        self._chosen = chosen
        self._fenced = fenced
        self._sleeps = sleeps
        """It has nothing to do while it is another device's turn."""
        self._warm_s = 0.0
        self.cells: dict[int, _Cell] = {}
        self.calls = 0
        self.first_s: float | None = None
        self.failed = ""
        self.error: Exception | None = None
        self.ran_on: tuple[str, ...] = ()
        self._clock = clock
        self._fences: list[Callable[[], None]] = []
        self._waits: list[float] = []

    @property
    def is_host(self) -> bool:
        return self.kind == "CPU"

    @property
    def wait_s(self) -> float:
        return float(np.median(self._waits)) if self._waits else 0.0

    def _on(self) -> contextlib.AbstractContextManager[Any]:
        return door.on(self.device) if self._chosen else contextlib.nullcontext()

    def begin(self, prepare: Prepare, rows: int) -> None:
        """Make the first call, and see where its result is."""
        try:
            with self._on():
                work = prepare(self.device, rows)
                self._fence(self.device)
                begin = self._clock()
                self.calls += 1
                result = work.call()
                self._wait()
                self.first_s = self._clock() - begin
            self.ran_on = door.devices_of(result)
            # A function may choose its own device: then that one is waited for as well.
            for device in self.ran_on:
                if device != self.device:
                    self._fence(device)
        except Exception as error:  # noqa: BLE001  # the caller's function: whatever it raises, others go on
            self.failed, self.error = root_cause(error), error
            return
        self.look_at_wait()
        self.attempt(prepare, rows, warm=True)

    def attempt(self, prepare: Prepare, rows: int, *, warm: bool = False) -> str:
        """Make some calls with a size, and keep what they take; or say why they failed."""
        try:
            with self._on():
                begin = self._clock()
                work = prepare(self.device, rows)
                self._wait()
                ready_s = self._clock() - begin
                if not warm:
                    self._warm_s = self._timed(work)[0]  # may trace, and allocate
                tried: list[tuple[float, float]] = []
                while len(tried) < _GUESSES and sum(taken for taken, _ in tried) < _GUESS_S:
                    tried.append(self._timed(work))
        except Exception as error:  # noqa: BLE001  # the caller's function: whatever it raises, others go on
            if not self.cells:
                self.failed, self.error = root_cause(error), error
            return root_cause(error)
        if len(self._waits) < _GUESSES:
            self.look_at_wait()  # one hiccup in it must not make a device look fast
        guess_s = min(max(returned, taken - self.wait_s) for taken, returned in tried)
        self.cells[rows] = _Cell(rows, work, max(1e-7, guess_s), ready_s, tried)
        return ""

    def expected_s(self, rows: int, larger: float) -> float:
        """Guess what taking in a size takes that is so many times as large as a known one."""
        calls = _GUESSES * self._guess_s(rows, larger)
        return max(self._warm_s, calls / _GUESSES) + calls + larger * self.ready_s(rows)

    def _guess_s(self, rows: int, larger: float) -> float:
        """Guess a call, by how calls grew before that."""
        now = self.cells[rows].guess_s
        below = [cell for cell in self.cells.values() if cell.rows < rows]
        if not below or larger == 1:
            return now * larger
        before = max(below, key=lambda cell: cell.rows)
        grown = math.log(max(1.0, now / before.guess_s)) / math.log(rows / before.rows)
        return float(now * min(larger, 1.5 * larger ** min(1.0, grown)))

    def ready_s(self, rows: int) -> float:
        """Give what making a known size ready takes: one hiccup must not look like slow copies."""
        smaller = [cell for cell in self.cells.values() if cell.rows <= rows]
        return min(cell.ready_s * rows / cell.rows for cell in smaller)

    def look_at_wait(self) -> None:
        """See what waiting takes when there is nothing to wait for."""
        if not self._fences:
            return
        self._wait()
        taken = []
        for _ in range(_WAITS):
            begin = self._clock()
            self._wait()
            taken.append(self._clock() - begin)
        self._waits.append(float(np.median(taken)))

    def block(self, cell: _Cell, seconds: float) -> None:
        """Make as many calls as fit into so many seconds, at least one."""
        each_s = cell.guess_s + self.wait_s
        count = max(1 if each_s > _LONG_S else _LEAST_CALLS, int(seconds / each_s))
        with self._on():
            self._wake(cell, each_s)
            times = [self._timed(cell.work) for _ in range(count)]
        # Of one block, so that what else runs on the machine now and then does not count as the call's.
        cell.call_s.append(float(np.median([each[0] for each in times])))
        cell.returns_s.append(float(np.median([each[1] for each in times])))

    def waking_s(self, each_s: float) -> float:
        """Give how long it takes until threads that had nothing to do are as quick as they can be."""
        return _WAKE_S if self.is_host and self._sleeps and _ALONE_S <= each_s <= _LONG_S else 0.0

    def _wake(self, cell: _Cell, each_s: float) -> None:
        """Let the threads of a device that was not used for a while come back, each to a core of its own."""
        if each_s > _LONG_S:
            return
        end = self._clock() + self.waking_s(each_s)
        self._timed(cell.work)  # another device has used the caches
        while self._clock() < end:
            self._timed(cell.work)

    def transfers(self, cell: _Cell) -> None:
        """Copy the arguments to the device and the result back, where the device is not the host."""
        spent = sum(cell.there_s) + sum(cell.back_s)
        if self.is_host or (len(cell.call_s) > _LEAST_ROUNDS and spent > _MOVING * sum(cell.call_s)):
            return
        with self._on():
            if cell.work.there is not None:
                begin = self._clock()
                kept = cell.work.there()
                self._wait()
                cell.there_s.append(self._clock() - begin)
                del kept
            self.calls += 1
            result = cell.work.call()
            self._wait()
            if any(device != "/CPU:0" for device in self.ran_on):
                begin = self._clock()
                door.fetch(result)
                cell.back_s.append(self._clock() - begin)

    def run(self) -> DeviceRun:
        """Give what was measured, less what waiting takes by itself."""
        wait = self.wait_s
        cells = sorted(self.cells.values(), key=lambda each: each.rows)
        measured = [cell for cell in cells if cell.call_s] or cells
        sizes = tuple(cell.times(wait) for cell in measured)
        return DeviceRun(
            device=self.device,
            kind=self.kind,
            first_call_s=Missing(self.failed or "there was no time for a call")
            if self.first_s is None
            else Quantity(self.first_s, "s", source="the first call", count=1),
            sizes=sizes,
            calls=self.calls,
            ran_on=self.ran_on,
            wait_s=Quantity(wait, "s", source="waiting for nothing", count=len(self._waits))
            if self._waits
            else Missing("a call on this device comes back when it is done"),
            failed=self.failed or ("" if sizes else "there was no time to measure it"),
        )

    def _fence(self, device: str) -> None:
        fence = door.fence(device) if self._fenced else None
        if fence is not None:
            self._fences.append(fence)

    def _wait(self) -> None:
        for fence in self._fences:
            fence()

    def _timed(self, work: Work) -> tuple[float, float]:
        """Make a call, and give what it took until its result was there and until it came back."""
        self.calls += 1
        begin = self._clock()
        result = work.call()
        returned = self._clock()
        self._wait()
        done = self._clock()
        del result
        return done - begin, returned - begin


class Sizes:
    """One measurement: first calls, then sizes, then rounds of all devices and sizes by turns."""

    def __init__(
        self,
        devices: Sequence[tuple[str, str]],
        *,
        until: float,
        clock: Callable[[], float],
        should_stop: Callable[[], bool] = lambda: False,
        by_default: Collection[str] = (),
        fenced: bool = True,
    ) -> None:
        """Take the devices; those `by_default` are what TensorFlow chooses where nobody says anything.

        Calls that come back when they are done need not be `fenced`.
        """
        self._clock, self._until, self._should_stop = clock, until, should_stop
        self._runners = [
            _Runner(
                device, kind, clock, chosen=device not in by_default, sleeps=len(devices) > 1, fenced=fenced
            )
            for device, kind in devices
        ]
        self._explore_until = clock() + _EXPLORE_SHARE * (until - clock())
        self.sizes: list[int] = []
        self._own = 0
        self.stopped = ""
        """Why there are no larger or smaller sizes."""

    def begin(self, prepare: Prepare, rows: int) -> None:
        """Make the first calls on each device, with the caller's own size."""
        self._own = rows
        for runner in self._runners:
            if self._over(self._until):
                return
            runner.begin(prepare, rows)
        if self._alive():
            self.sizes = [rows]

    def fits(self, prepare: Prepare, rows: int) -> str:
        """Say why a call of another size fails, on the first device that works; empty where it does not."""
        alive = self._alive()
        if not alive:
            return "no device ran it"
        own = self._own
        if self._over(self._explore_until):
            return f"the first calls took {max(each.first_s or 0.0 for each in alive):.2g} s of the budget"
        if not self._affordable(own, rows / own):
            return (
                f"a call takes {alive[0].cells[own].guess_s:.2g} s, too long for other sizes in this budget"
            )
        reason = alive[0].attempt(prepare, rows)
        alive[0].cells.pop(rows, None)
        return reason

    def explore(self, prepare: Prepare, *, least: int, most: int) -> None:
        """Find sizes: small ones that show the fixed cost, large ones, and those around a crossing."""
        if not self._alive():
            return
        own = self._own
        host = self._alive()[0].cells[own].guess_s
        ahead = any(host < other.cells[own].guess_s for other in self._accelerators())
        # Towards the crossing first: the time may not do for both ways.
        ways = [self._upwards, self._downwards] if ahead else [self._downwards, self._upwards]
        ways[0](prepare, least, most)
        self._close_in(prepare)
        ways[1](prepare, least, most)
        self._close_in(prepare)

    def _downwards(self, prepare: Prepare, least: int, _: int) -> None:
        own = rows = self._own
        while rows > least and not (rows < own and self._flat_below(rows)):
            rows = max(least, rows // _STEP)
            if not self._add(prepare, rows):
                return

    def _upwards(self, prepare: Prepare, _: int, most: int) -> None:
        rows = self._own
        while rows < most and not self._surely_grown_at(prepare, rows):
            rows = min(most, self._ahead_of(rows))
            if not self._add(prepare, rows):
                return

    def _close_in(self, prepare: Prepare) -> None:
        """Add sizes between the last with which the host is ahead and the first with which it is not."""
        for device in self._accelerators():
            while (pair := self._around(device)) is not None and pair[1] / pair[0] > _NEAR:
                between = self._between(device, *pair)
                if between in pair or not self._add(prepare, between):
                    break

    def measure(self) -> None:
        """Go round all devices and sizes by turns, there and back again, until it is known well enough."""
        self._drop_what_does_not_fit()
        count = 0
        longest = 0.0
        while count < _MOST_ROUNDS and self._alive():
            begin = self._clock()
            if self._should_stop() or (count >= _LEAST_ROUNDS and begin + longest > self._until):
                return
            if not self._round(backwards=count % 2 == 1):
                return
            longest = max(longest, self._clock() - begin)
            count += 1
            if count >= _GOOD_ROUNDS and self._settled():
                return

    def runs(self) -> tuple[DeviceRun, ...]:
        """Give what was measured."""
        return tuple(runner.run() for runner in self._runners)

    @property
    def error(self) -> Exception | None:
        """Give what the function raised, on the first device where it did."""
        return next((runner.error for runner in self._runners if runner.error is not None), None)

    def _alive(self) -> list[_Runner]:
        return [runner for runner in self._runners if runner.cells]

    def _accelerators(self) -> list[_Runner]:
        alive = self._alive()
        return [runner for runner in alive[1:] if runner is not alive[0]]

    def _over(self, until: float) -> bool:
        return self._should_stop() or self._clock() >= until

    def _affordable(self, known: int, larger: float) -> bool:
        """Say whether some calls of a size so many times as large as a known one fit into the time."""
        expected = sum(runner.expected_s(known, max(1.0, larger)) for runner in self._alive())
        return self._clock() + expected < self._explore_until

    def _add(self, prepare: Prepare, rows: int) -> bool:
        """Take a size in on all devices, or on none."""
        below = [known for known in self.sizes if known <= rows] or [min(self.sizes)]
        if self._over(self._explore_until) or not self._affordable(below[-1], rows / below[-1]):
            self.stopped = self.stopped or "the budget holds no more sizes"
            return False
        for runner in self._alive():
            reason = runner.attempt(prepare, rows)
            if reason:
                self.stopped = f"with {rows:,} rows on {runner.device}: {reason}"
                for other in self._alive():
                    other.cells.pop(rows, None)
                return False
        self.sizes = sorted({*self.sizes, rows})
        return True

    def _flat_below(self, rows: int) -> bool:
        """Say whether fewer rows would show nothing new: the call is fixed cost, and the host is ahead."""
        above = min(size for size in self.sizes if size > rows)
        host = self._alive()[0]
        return all(
            runner.cells[rows].guess_s > _FLAT * runner.cells[above].guess_s for runner in self._alive()
        ) and all(host.cells[rows].guess_s < other.cells[rows].guess_s for other in self._accelerators())

    def _grown_at(self, rows: int) -> bool:
        """Say whether more rows would show nothing new: what a row costs is seen, and the host is behind."""
        host = self._alive()[0]
        seconds = host.cells[rows].guess_s
        return seconds >= _GROWN * host.cells[self.sizes[0]].guess_s and all(
            seconds > _BEHIND * other.cells[rows].guess_s for other in self._accelerators()
        )

    def _ahead_of(self, rows: int) -> int:
        """Give the next larger size: a little behind where the calls so far let the last device win."""
        below = [size for size in self.sizes if size < rows]
        if not below or not self._accelerators():
            return rows * _STEP
        host, step = self._alive()[0], rows - below[-1]

        def slope(runner: _Runner) -> float:
            return (runner.cells[rows].guess_s - runner.cells[below[-1]].guess_s) / step

        left = 0.0
        for device in self._accelerators():
            behind = device.cells[rows].guess_s - host.cells[rows].guess_s
            closing = slope(host) - max(0.0, slope(device))
            left = max(left, behind / closing if closing > 0 else math.inf)
        return round(max(rows * _STEP / 2, min(rows * _STEP**2, _BESIDE * (rows + left))))

    def _between(self, device: _Runner, least: int, most: int) -> int:
        """Give the size that leaves little around the crossing, by what calls on both sides of it took."""
        host = self._alive()[0]
        ahead, behind = (
            math.log(host.cells[rows].guess_s / device.cells[rows].guess_s) for rows in (least, most)
        )
        part = ahead / (ahead - behind) if ahead < behind else 0.5
        at = math.exp(math.log(least) + part * math.log(most / least))
        between = at / _BESIDE if at / least > most / at else at * _BESIDE
        return round(min(max(between, least * _BESIDE), most / _BESIDE))

    def _surely_grown_at(self, prepare: Prepare, rows: int) -> bool:
        """Look twice: a hiccup of the host looks as if it were behind."""
        if not self._grown_at(rows):
            return False
        for runner in self._alive():
            before = runner.cells[rows].guess_s
            runner.attempt(prepare, rows, warm=True)
            runner.cells[rows].guess_s = min(before, runner.cells[rows].guess_s)
        return self._grown_at(rows)

    def _around(self, device: _Runner) -> tuple[int, int] | None:
        """Give the sizes between which a device begins to beat the first one."""
        host = self._alive()[0]
        ahead = [host.cells[rows].guess_s <= device.cells[rows].guess_s for rows in self.sizes]
        for index in range(len(ahead) - 1, 0, -1):
            if ahead[index - 1] and not ahead[index]:
                return self.sizes[index - 1], self.sizes[index]
        return None

    def _drop_what_does_not_fit(self) -> None:
        """Leave the largest sizes out until some rounds fit; the caller's own stays."""
        alive = self._alive()

        def round_s() -> float:
            return sum(
                max(_LEAST_BLOCK_S, (2 + _LEAST_CALLS) * runner.cells[rows].guess_s)
                + runner.waking_s(runner.cells[rows].guess_s)
                + 2 * runner.ready_s(rows)
                for runner in alive
                for rows in self.sizes
            )

        while len(self.sizes) > 1 and (_LEAST_ROUNDS + 2) * round_s() > self._until - self._clock():
            last = max(rows for rows in self.sizes if rows != self._own)
            self.sizes.remove(last)
            for runner in alive:
                del runner.cells[last]

    def _round(self, *, backwards: bool) -> bool:
        runners = self._alive()
        cells = len(runners) * len(self.sizes)
        left = max(0.0, self._until - self._clock())
        seconds = min(_BLOCK_S, max(_LEAST_BLOCK_S, left / (2 * _GOOD_ROUNDS * max(1, cells))))
        order = runners[::-1] if backwards else runners
        for runner in order:
            runner.look_at_wait()
        for rows in self.sizes[::-1] if backwards else self.sizes:
            for runner in order:
                if self._should_stop() or self._clock() > self._until:
                    return False
                cell = runner.cells[rows]
                try:
                    runner.block(cell, seconds)
                    runner.transfers(cell)
                except Exception as error:  # noqa: BLE001  # the caller's function, in a later call
                    runner.failed = f"after {runner.calls} calls: {root_cause(error)}"
                    runner.cells.clear()
                    return bool(self._alive())
        return True

    def _settled(self) -> bool:
        return all(
            stats.median(np.array(cell.call_s)).relative_half_width < _GOOD_ENOUGH
            for runner in self._alive()
            for cell in runner.cells.values()
        )

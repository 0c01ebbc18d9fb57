"""How the step grows with the batch: a fixed cost, and a cost for each row.

A report is rendered with this, so it does without numpy: there are four sizes and some rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.scaling import Scaling, SizeTimes

__all__ = ["BatchScaling", "batch_scaling"]

_LEAST_SIZES = 3
_LEAST_ROUNDS = 3
_BENT = 0.1
"""A step that is off the line by more than this of its time does not grow linearly."""
_WIDEN = 1.96
_SOURCE = "one batch replayed at several sizes"


@dataclass(frozen=True, slots=True)
class BatchScaling:
    """The step without its input, by the rows of its batch; seconds per step."""

    rows: int
    """Of the job's own batch."""
    steps: dict[int, Quantity]
    """What was measured, by rows."""
    fixed: Maybe
    """What a step takes however few rows it has."""
    per_row: Maybe
    r_squared: float
    """Of the line through all sizes: the part of their differences that it explains, which says nothing
    about a step that hardly grows; `off` does."""
    off: float
    """How far the step is off the line at most, as a share of the step."""
    bend: str
    """What the step does instead of growing linearly, empty where it grows so."""
    rounds: int
    ratios: dict[int, Quantity]
    """What a step takes over one with the job's own rows, of those that were measured: a median over rounds,
    because what slows down a round slows down both."""

    @property
    def linear(self) -> bool:
        """Say whether a fixed cost and a cost per row describe the step."""
        return not self.bend

    @property
    def largest(self) -> int:
        """Give the largest size that was measured."""
        return max(self.steps)

    def at_nothing(self) -> Quantity:
        """Give the step at no rows: the fixed cost, or where there is none what the two smallest tell."""
        if isinstance(self.fixed, Quantity):
            return self.fixed
        small, next_ = sorted(self.steps)[:2]
        rise = (self.steps[next_].value - self.steps[small].value) / (next_ - small)
        value = max(0.0, self.steps[small].value - small * rise)
        return Quantity(value, "s", origin="estimated", source="the two smallest batches that were replayed")

    def fixed_share(self) -> float | None:
        """Give the part of the job's own step that is fixed cost, None where that is not known."""
        now = self.steps[self.rows].value
        return self.fixed.value / now if isinstance(self.fixed, Quantity) and now > 0 else None

    def at(self, rows: int) -> Maybe:
        """Give the step at a size: measured, between two that were measured, or beyond them on the line."""
        if rows in self.steps:
            return self.steps[rows]
        known = sorted(self.steps)
        if not known[0] < rows < known[-1]:
            return self._beyond(rows)
        low = max(size for size in known if size < rows)
        high = min(size for size in known if size > rows)
        part = (rows - low) / (high - low)
        ends = [
            (1 - part) * one + part * other
            for one, other in zip(_ends(self.steps[low]), _ends(self.steps[high]), strict=True)
        ]
        return Quantity(ends[1], "s", ends[0], ends[2], "estimated", "between two sizes that were replayed")

    def _beyond(self, rows: int) -> Maybe:
        if isinstance(self.fixed, Missing) or isinstance(self.per_row, Missing):
            return Missing(f"the step does not grow linearly, and {rows} rows were not tried")
        (low, value, high), (low_row, row, high_row) = _ends(self.fixed), _ends(self.per_row)
        # The ends of both are not reached at once: a larger fixed cost goes with cheaper rows.
        middle = value + rows * row
        spread = math.hypot(high - low, rows * (high_row - low_row)) / 2 + self.off * middle
        return Quantity(
            middle, "s", max(0.0, middle - spread), middle + spread, "estimated",
            "the line through the sizes that were replayed",
        )  # fmt: skip


def batch_scaling(measured: Scaling | Missing) -> BatchScaling | Missing:
    """Fit a line through the sizes, and say how good it is."""
    if isinstance(measured, Missing):
        return measured
    sizes = [each for each in measured.sizes if len(each.round_s) >= _LEAST_ROUNDS]
    if len(sizes) < _LEAST_SIZES or measured.rows not in {each.rows for each in sizes}:
        return Missing("the step was run at fewer than three batch sizes")
    per_step = 1.0 / measured.steps_per_call
    steps = {each.rows: _step(each, per_step) for each in sizes}
    rows = [float(each.rows) for each in sizes]
    times = [steps[each.rows].value for each in sizes]
    fixed, per_row = _line(rows, times)
    fitted = [fixed + per_row * count for count in rows]
    off = max(abs(time - guess) / time for time, guess in zip(times, fitted, strict=True))
    rounds = [
        _line(rows, [s * per_step for s in each]) for each in zip(*(s.round_s for s in sizes), strict=True)
    ]
    bend = _bend(rows, times, fixed, per_row, off)
    why = Missing(f"the step does not grow linearly with its batch: {bend}")
    return BatchScaling(
        rows=measured.rows,
        steps=steps,
        fixed=why if bend else _of_rounds(fixed, [each for each, _ in rounds], "s"),
        per_row=why if bend else _of_rounds(per_row, [each for _, each in rounds], "s"),
        r_squared=_r_squared(times, fitted),
        off=off,
        bend=bend,
        rounds=len(rounds),
        ratios={each.rows: _ratio(each, measured.rows, sizes) for each in sizes},
    )


def _step(size: SizeTimes, per_step: float) -> Quantity:
    values = [seconds * per_step for seconds in size.round_s]
    low, high = _interval(values)
    middle = median(values)
    return Quantity(middle, "s", min(low, middle), max(high, middle), source=_SOURCE, count=size.calls)


def _ratio(size: SizeTimes, rows: int, sizes: Sequence[SizeTimes]) -> Quantity:
    (own,) = [each for each in sizes if each.rows == rows]
    values = [then / now for then, now in zip(size.round_s, own.round_s, strict=True)]
    low, high = _interval(values)
    middle = median(values)
    return Quantity(middle, "x", min(low, middle), max(high, middle), source=_SOURCE, count=len(values))


def _line(rows: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """Give fixed cost and cost per row by least squares of relative errors; neither is negative.

    Times are known to a share of themselves, so that the largest batch must not count most.
    """
    weights = [1 / time**2 if time > 0 else 0.0 for time in times]
    total = sum(weights) or 1.0
    centre = sum(w * x for w, x in zip(weights, rows, strict=True)) / total
    height = sum(w * y for w, y in zip(weights, times, strict=True)) / total
    spread = sum(w * (x - centre) ** 2 for w, x in zip(weights, rows, strict=True))
    joint = sum(w * (x - centre) * (y - height) for w, x, y in zip(weights, rows, times, strict=True))
    slope = joint / spread if spread > 0 else 0.0
    if slope < 0:
        return height, 0.0
    if height - slope * centre < 0:
        # Through zero: what is left is the cost per row.
        squares = sum(w * x**2 for w, x in zip(weights, rows, strict=True))
        return 0.0, sum(w * x * y for w, x, y in zip(weights, rows, times, strict=True)) / squares
    return height - slope * centre, slope


def _of_rounds(value: float, rounds: Sequence[float], unit: str) -> Quantity:
    low, high = _interval(rounds)
    return Quantity(
        value, unit, min(low, value), max(high, value), "estimated",
        f"a line through {_SOURCE}", len(rounds),
    )  # fmt: skip


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Give the interval of the median by ranks, which holds for any distribution."""
    ordered = sorted(values)
    count = len(ordered)
    half = 0.5 * _WIDEN * math.sqrt(count)
    low = max(0, math.floor(count / 2 - half) - 1)
    high = min(count - 1, math.ceil(count / 2 + half))
    return ordered[low], ordered[high]


def _r_squared(times: Sequence[float], fitted: Sequence[float]) -> float:
    centre = fmean(times)
    whole = sum((time - centre) ** 2 for time in times)
    left = sum((time - guess) ** 2 for time, guess in zip(times, fitted, strict=True))
    # A step that does not grow at all is described by its fixed cost; errors are weighed otherwise here.
    return max(0.0, 1.0 - left / whole) if whole > 0 else 1.0


def _bend(rows: list[float], times: list[float], fixed: float, per_row: float, off: float) -> str:
    if off <= _BENT:
        return ""
    place = max(range(len(rows)), key=lambda at: abs(times[at] - fixed - per_row * rows[at]) / times[at])
    guess = fixed + per_row * rows[place]
    return (
        f"{rows[place]:g} rows take {times[place] * 1e3:.3g} ms, where the line through all sizes "
        f"has {guess * 1e3:.3g} ms"
    )


def _ends(quantity: Quantity) -> tuple[float, float, float]:
    low, high = quantity.low, quantity.high
    return (
        quantity.value if low is None else low,
        quantity.value,
        quantity.value if high is None else high,
    )

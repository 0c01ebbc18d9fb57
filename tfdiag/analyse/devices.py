"""What calls of several sizes say about devices: fixed cost, cost of a row, and where one begins to win."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdiag import stats
from tfdiag.model.devices import DeviceRun, SizeTimes
from tfdiag.model.quantity import Maybe, Missing, Origin, Quantity

__all__ = ["Costs", "costs_of", "crossing", "median_of", "round_trip", "speedup_at"]

_RESAMPLES = 400
_STRAIGHT = 0.25
"""A line that misses a size by more than this does not describe the calls."""
_BEYOND = 16.0
"""A crossing this far beyond the sizes that were called can still be told from lines."""
_MOSTLY = 0.8
"""Lines that do not meet in more of the draws than the rest may not meet at all."""
_CLEAR = 0.1
"""A difference of this part is no noise."""
_MOST = 0.975

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Costs:
    """A call as a function of its size."""

    fixed: Maybe
    per_row: Maybe
    straight: bool


def median_of(series: tuple[float, ...], source: str) -> Maybe:
    """Give the median of a series with its interval."""
    if not series:
        return Missing("not measured")
    found = stats.median(np.asarray(series, dtype=np.float64))
    if found.count < 2:
        return Quantity(found.value, "s", source=source, count=found.count)
    return Quantity(found.value, "s", found.low, found.high, source=source, count=found.count)


def round_trip(size: SizeTimes, *, copies_inside: bool = False) -> tuple[float, ...]:
    """Give calls whose data come from the host and go back to it.

    `copies_inside`: the call copies its arguments itself.
    """
    more = 0.0 if copies_inside or not size.there_s else float(np.median(size.there_s))
    more += float(np.median(size.back_s)) if size.back_s else 0.0
    return tuple(call + more for call in size.call_s)


def costs_of(run: DeviceRun) -> Costs:
    """Split calls into what is fixed and what each row adds."""
    if len(run.sizes) < 3:
        reason = Missing("it takes calls of three sizes to tell what grows with the size")
        return Costs(reason, reason, False)
    rows = _rows(run.sizes)
    seconds = np.array([float(np.median(size.call_s)) for size in run.sizes])
    drawn = _drawn([size.call_s for size in run.sizes])
    fixed, slope = _line(rows, seconds)
    told = f"a line through calls of {len(rows)} sizes"
    ends = np.array([_line(rows, each) for each in drawn])
    if _miss(rows, seconds, fixed, slope) <= _STRAIGHT:
        return Costs(
            _quantity(fixed, ends[:, 0], "s", told), _quantity(slope, ends[:, 1], "s/row", told), True
        )
    # What is not a line has ends: the smallest call is fixed cost at most, the largest show the growth.
    told = f"from {int(rows[-2]):,} to {int(rows[-1]):,} rows"
    step = rows[-1] - rows[-2]
    slopes = (drawn[:, -1] - drawn[:, -2]) / step
    least = _quantity(
        seconds[0],
        drawn[:, 0],
        "s",
        f"at most: a call with {'one row' if rows[0] == 1 else f'{int(rows[0]):,} rows'}",
    )
    growth = _quantity(
        max(0.0, float((seconds[-1] - seconds[-2]) / step)), np.maximum(0.0, slopes), "s/row", told
    )
    return Costs(least, growth, False)


def speedup_at(host: DeviceRun, device: DeviceRun, rows: float) -> Maybe:
    """Give how many times as fast a call is on `device`, at a size that was called on both."""
    sizes = host.at(rows), device.at(rows)
    if sizes[0] is None or sizes[1] is None:
        return Missing("it was not called on both devices")
    ratio = float(np.median(sizes[0].call_s) / max(1e-9, np.median(sizes[1].call_s)))
    drawn = _drawn([sizes[0].call_s, sizes[1].call_s])
    return _quantity(ratio, drawn[:, 0] / np.maximum(1e-9, drawn[:, 1]), "x", "calls by turns", measured=True)


def crossing(
    host: DeviceRun, device: DeviceRun, *, transfers: bool = False, copies_inside: bool = False
) -> Maybe:
    """Give the size from which `device` is faster than `host`, or say why there is none."""
    pairs = [(size, other) for size in host.sizes if (other := device.at(size.rows)) is not None]
    if len(pairs) < 2:
        return Missing("calls of one size don't tell it")

    def series(size: SizeTimes) -> tuple[float, ...]:
        return round_trip(size, copies_inside=copies_inside) if transfers else size.call_s

    rows = _rows(tuple(size for size, _ in pairs))
    ours, theirs = [series(size) for size, _ in pairs], [series(size) for _, size in pairs]
    medians = [np.array([float(np.median(each)) for each in both]) for both in (ours, theirs)]
    drawn = [_drawn(both, seed) for seed, both in enumerate((ours, theirs))]
    gain = np.log(np.maximum(1e-9, medians[0]) / np.maximum(1e-9, medians[1]))
    gains = np.log(np.maximum(1e-9, drawn[0]) / np.maximum(1e-9, drawn[1]))
    least, most = int(rows[0]), int(rows[-1])
    at = _turn(rows, gain)
    if _turns_back(rows, gain, at):
        return Missing(
            f"between {least:,} and {most:,} rows there is no size from which {device.device} stays ahead"
        )
    if at == 0:
        return Missing(f"{device.device} is faster at every size that was tried, from {least:,} rows on")
    ends = np.array([_turn(rows, each) for each in gains])
    if math.isinf(at):
        return _beyond(rows, medians, drawn, host.device)
    low, high = np.quantile(ends, [1 - _MOST, _MOST], method="nearest")
    return Quantity(
        at,
        "rows",
        min(at, float(low)) if low > 0 else None,
        max(at, float(high)) if math.isfinite(high) else None,
        source=f"between sizes that were called on both, {least:,} to {most:,} rows",
        count=len(rows),
    )


def _beyond(rows: Floats, medians: list[Floats], drawn: list[Floats], host: str) -> Maybe:
    """Carry both lines on behind the largest size that was called."""
    least, most = int(rows[0]), int(rows[-1])
    never = Missing(f"never within {least:,} to {most:,} rows: {host} is faster at every size that was tried")

    def ahead(ours: Floats, theirs: Floats) -> Floats:
        """Give the rows until both take the same, by what the last step added to each."""
        step = rows[-1] - rows[-2]
        closing = ((ours[..., -1] - ours[..., -2]) - (theirs[..., -1] - theirs[..., -2])) / step
        behind = theirs[..., -1] - ours[..., -1]
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(closing > 0, rows[-1] + behind / closing, math.inf)
        return np.asarray(left, dtype=np.float64)

    at = float(ahead(medians[0], medians[1]))
    ends = ahead(drawn[0], drawn[1])
    low, high = (float(end) for end in np.quantile(ends, [1 - _MOST, _MOST], method="nearest"))
    meets = float(np.mean(np.isfinite(ends)))
    if not math.isfinite(at) or at > _BEYOND * most or meets < _MOSTLY:
        return never
    return Quantity(
        at,
        "rows",
        min(at, low),
        max(at, high) if math.isfinite(high) else None,
        "estimated",
        f"both lines carried on beyond {most:,} rows, where {host} is still faster",
        len(rows),
    )


def _rows(sizes: tuple[SizeTimes, ...]) -> Floats:
    return np.array([float(size.rows) for size in sizes])


def _drawn(series: list[tuple[float, ...]], seed: int = 0) -> Floats:
    """Give medians of series as other draws of the same rounds would have them, a column each."""
    rng = np.random.default_rng(seed)
    columns = []
    for each in series:
        values = np.asarray(each, dtype=np.float64)
        columns.append(np.median(values[rng.integers(0, len(values), (_RESAMPLES, len(values)))], axis=1))
    return np.stack(columns, axis=1)


def _line(rows: Floats, seconds: Floats) -> tuple[float, float]:
    """Fit fixed cost and cost of a row, neither below nothing; each size counts by its relative miss."""
    weight = 1.0 / np.maximum(seconds, 1e-12)
    columns = np.stack([weight, rows * weight], axis=1)
    ones = np.ones(len(rows))
    fixed, slope = (float(each) for each in np.linalg.lstsq(columns, ones, rcond=None)[0])
    if fixed < 0:
        return 0.0, float(columns[:, 1] @ ones / (columns[:, 1] @ columns[:, 1]))
    if slope < 0:
        return float(columns[:, 0] @ ones / (columns[:, 0] @ columns[:, 0])), 0.0
    return fixed, slope


def _miss(rows: Floats, seconds: Floats, fixed: float, slope: float) -> float:
    return float(np.max(np.abs((fixed + slope * rows) / np.maximum(seconds, 1e-12) - 1)))


def _turn(rows: Floats, gain: Floats) -> float:
    """Give the size at which `gain` turns from below to above zero; 0 or inf where it does not.

    The turn is where fewest sizes are on the wrong side, so that noise at one of them moves it little.
    """
    capped = np.clip(gain, -1.0, 1.0)
    scores = [float(capped[index:].sum() - capped[:index].sum()) for index in range(len(rows) + 1)]
    index = int(np.argmax(scores))
    if index == 0:
        return 0.0
    if index == len(rows):
        return math.inf
    before, after = gain[index - 1], gain[index]
    part = -before / (after - before) if before < 0 < after else 0.5
    return float(math.exp(math.log(rows[index - 1]) + part * math.log(rows[index] / rows[index - 1])))


def _turns_back(rows: Floats, gain: Floats, at: float) -> bool:
    """Say whether a size is clearly on the wrong side of the turn."""
    return bool(np.any((rows > at) & (gain < -_CLEAR)) or np.any((rows < at) & (gain > _CLEAR)))


def _quantity(value: float, drawn: Floats, unit: str, source: str, *, measured: bool = False) -> Quantity:
    low, high = (float(end) for end in np.quantile(drawn, [1 - _MOST, _MOST]))
    origin: Origin = "measured" if measured else "estimated"
    return Quantity(value, unit, min(low, value), max(high, value), origin, source)

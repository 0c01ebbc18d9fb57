"""When a series has settled, and how well its mean and median are known; numpy only.

Below all stages: the live run uses it to know when it has seen enough, the analysis to state intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Estimate", "mean", "median", "outliers", "warmup_end"]

Floats = npt.NDArray[np.float64]

_RESAMPLES = 400
_LEAST_BLOCKS = 10
_MOST_BLOCKS = 200
_Z95 = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float
    count: int

    @property
    def relative_half_width(self) -> float:
        """Half of the interval, as a share of the value."""
        return 0.5 * (self.high - self.low) / self.value if self.value > 0 else math.inf


def warmup_end(series: Floats, batch: int = 5) -> int:
    """Give the index from which the series is steady.

    The rule is MSER: cut where the standard error of the mean of what is left is smallest. Single
    slow steps would pull the cut behind them, so batches are cut off at a high quantile of the second
    half first. At most half of the series is called warm-up.
    """
    count = len(series)
    if count < 4 * batch:
        # Too short for a rule: the first step alone is known to be special.
        return 1 if count > 2 else 0
    tail = series[count // 2 :]
    ceiling = float(np.quantile(tail, 0.9)) * 1.5
    clipped = np.minimum(series, max(ceiling, float(np.median(tail))))
    # Keep a floor under what is clipped, or else a slow start would look like a normal one.
    slow_start = series > 3 * ceiling
    clipped = np.where(slow_start, 3 * ceiling, clipped)
    batches = clipped[: count - count % batch].reshape(-1, batch).mean(axis=1)
    n = len(batches)
    reverse = batches[::-1]
    left = np.arange(1, n + 1)
    total = np.cumsum(reverse)
    squares = np.cumsum(reverse**2)
    error = (squares - total**2 / left) / left**2
    # error[k - 1] belongs to the last k batches; the cut may take half of them at most.
    candidates = error[n // 2 :]
    keep = n // 2 + int(np.argmin(candidates)) + 1
    return int((n - keep) * batch) or 1


def mean(series: Floats, seed: int = 0) -> Estimate:
    """Give the mean with a bootstrap interval over blocks, so that neighbours may be alike."""
    count = len(series)
    if count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    value = float(np.mean(series))
    if count == 1:
        return Estimate(value, -math.inf, math.inf, 1)
    # Blocks as long as neighbours may be alike, but enough of them to draw from.
    blocks = np.array([part.mean() for part in np.array_split(series, _block_count(count))])
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(blocks), size=(_RESAMPLES, len(blocks)))
    means = blocks[drawn].mean(axis=1)
    low, high = (float(end) for end in np.quantile(means, [0.025, 0.975]))
    # Few blocks know their own spread badly: Student's factor over the normal one, and the bias of n.
    widen = (1 + 1.3 / (len(blocks) - 1)) * math.sqrt(len(blocks) / (len(blocks) - 1))
    return Estimate(
        value, min(value, value - widen * (value - low)), max(value, value + widen * (high - value)), count
    )


def _block_count(count: int) -> int:
    if count < 2 * _LEAST_BLOCKS:
        return count
    return min(_MOST_BLOCKS, max(_LEAST_BLOCKS, round(float(np.cbrt(count)) ** 2 / 1.2)))


def median(series: Floats) -> Estimate:
    """Give the median with its rank interval, which holds for any distribution."""
    count = len(series)
    if count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    ordered = np.sort(series)
    half = 0.5 * _Z95 * math.sqrt(count)
    low = max(0, math.floor(count / 2 - half) - 1)
    high = min(count - 1, math.ceil(count / 2 + half))
    return Estimate(float(np.median(ordered)), float(ordered[low]), float(ordered[high]), count)


def outliers(series: Floats) -> int:
    """Count the values beyond three times the interquartile range."""
    if len(series) < 8:
        return 0
    low, high = np.quantile(series, [0.25, 0.75])
    reach = 3.0 * (high - low)
    return int(np.count_nonzero((series > high + reach) | (series < low - reach)))

"""What two jobs that ran by turns say about the gain of one over the other: pure.

Turns come in pairs, A B, B A, A B …, so that a machine that slows down meanwhile slows both. A pair gives one
ratio; several give an interval, by Student's t over their logarithms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

__all__ = [
    "PAIRS_CLAIMED", "Gain", "Noise", "Pairs", "decided", "gain_of", "noise_of", "pairs_needed", "verdict_of",
]  # fmt: skip

_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
_Z95 = 1.96
_PAIRS_LEAST = 4
PAIRS_CLAIMED = _PAIRS_LEAST - 1
"""With fewer nothing is said of a gain."""
_AWAY = 0.1
"""Of the cores, in a pair of turns: from here on it shows in what the pair gives."""
_NOISE_LEAST = 0.01
_PRECISE = 0.025
"""Half of an interval that is narrow enough, as a share of the gain."""
_WORTH = 1.05
"""What surely gains less than this is no advice."""
REPEATS = 0.02
"""How well a gain repeats at best from one run of a job to the next: memory lies elsewhere, threads on other
cores. What is claimed is what the next run shows as well."""
_REPEATS_OF_GAIN = 0.05
"""How much less well a larger one repeats, as a share of its logarithm: what was changed meets these anew.

As the input suite's jobs showed when they were really rewritten (2026-11-19): twice as fast came out 6 to 8 %
off, eight times as fast 20 to 30 %, whatever the turns of the trial agreed on.
"""


@dataclass(slots=True)
class Pairs:
    """Pairs of turns of two jobs, a and b.

    A virtual machine's host may take its cores for a second and give them back: what ran meanwhile says
    nothing of either job, whichever of them it was, so a pair in which that happened does not count.
    """

    a: list[float] = field(default_factory=list)
    """The mean step of each turn."""
    b: list[float] = field(default_factory=list)
    away: list[float] = field(default_factory=list)
    """The share of the cores that was taken away during each pair."""

    def add(self, a: float, b: float, away: float) -> None:
        """Add a pair."""
        self.a.append(a)
        self.b.append(b)
        self.away.append(away)

    @property
    def disturbed(self) -> int:
        """Give how many pairs don't count; none where too few others would be left."""
        many = sum(away > _AWAY for away in self.away)
        return many if len(self.away) - many >= PAIRS_CLAIMED else 0

    def counted(self) -> tuple[list[float], list[float]]:
        """Give the turns that count."""
        keep = [away <= _AWAY or not self.disturbed for away in self.away]
        return list(itertools.compress(self.a, keep)), list(itertools.compress(self.b, keep))


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster B is than A, with what its interval rests on."""

    value: float
    low: float
    high: float
    pairs: int
    spread: float
    """Standard deviation of the logarithms of the pairs' ratios."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What the same job against itself showed on this machine, now."""

    share: float
    """A difference up to this is no difference."""
    pairs: int


def gain_of(a: Sequence[float], b: Sequence[float], noise: Noise | None = None) -> Gain:
    """Give the gain of pairs of turns; each value is the mean step of a turn."""
    ratios = np.log(np.asarray(a, dtype=float) / np.asarray(b, dtype=float))
    count = len(ratios)
    middle = float(np.mean(ratios))
    if count < 2:
        return Gain(math.exp(middle), 0.0, math.inf, count, math.inf)
    spread = float(np.std(ratios, ddof=1))
    half = _t95(count - 1) * spread / math.sqrt(count)
    repeats = _Z95 * math.hypot(REPEATS, _REPEATS_OF_GAIN * middle)
    unsure = math.hypot(half, repeats, 0.0 if noise is None else noise.share)
    return Gain(math.exp(middle), math.exp(middle - unsure), math.exp(middle + unsure), count, spread)


def noise_of(a: Sequence[float], b: Sequence[float]) -> Noise:
    """Give the noise that a job shows against itself."""
    gain = gain_of(a, b)
    error = gain.spread / math.sqrt(gain.pairs) if math.isfinite(gain.spread) else 1.0
    return Noise(max(_NOISE_LEAST, min(abs(math.log(gain.value)) + error, 1.0)), gain.pairs)


def decided(gain: Gain, noise: Noise) -> bool:
    """Say whether more turns would change nothing."""
    if gain.pairs < _PAIRS_LEAST:
        return False
    half = _t95(gain.pairs - 1) * gain.spread / math.sqrt(gain.pairs)
    return half <= max(_PRECISE, noise.share)


def verdict_of(gain: Gain, noise: Noise, promised: float) -> Literal["confirmed", "refuted", "untried"]:
    """Say what it is, `untried` where the noise hides it; `promised` is the least that was.

    The noise is in the gain's interval already, so that a gain whose lower end is above 1 is larger than it.
    """
    least = 1 + max(noise.share, REPEATS)  # less is no gain, however quiet the machine was just now
    if gain.pairs < PAIRS_CLAIMED:
        return "untried"
    if gain.low > 1 and gain.value > max(least, _WORTH):
        return "confirmed"
    none_seen = gain.value <= least or (gain.low <= 1 and gain.value <= _WORTH)
    if gain.high <= _WORTH or (none_seen and gain.high < promised):
        return "refuted"
    return "untried"


def pairs_needed(gain: Gain, noise: Noise) -> int:
    """Give how many pairs of turns it would take to tell this gain from none."""
    distance = math.log(gain.value) - noise.share
    if distance <= 0 or not math.isfinite(gain.spread):
        return 0
    return math.ceil((_Z95 * gain.spread / distance) ** 2)


def _t95(degrees: int) -> float:
    return _T95[degrees - 1] if degrees <= len(_T95) else _Z95 + 2.5 / degrees

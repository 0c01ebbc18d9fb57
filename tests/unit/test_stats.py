"""When a series has settled, and whether intervals hold what they promise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tfdiag import stats
from tfdiag.stats import Estimate, Floats

Draw = Callable[[np.random.Generator, int], Floats]


def steady(generator: np.random.Generator, count: int) -> Floats:
    """Steps of one second with 5 % noise."""
    return 1 + 0.05 * generator.standard_normal(count)


def cuts(draw: Draw, count: int, runs: int = 60) -> list[int]:
    """Where the warm-up of so many series ends."""
    return [stats.warmup_end(draw(np.random.default_rng(seed), count)) for seed in range(runs)]


def coverage(draw: Draw, truth: float, count: int, estimate: Callable[[Floats], Estimate]) -> float:
    """How often the interval of a series holds the truth."""
    found = [estimate(draw(np.random.default_rng(seed), count)) for seed in range(300)]
    return sum(one.low <= truth <= one.high for one in found) / len(found)


@pytest.mark.parametrize("slower", [0.5, 2.0, 50.0])
@pytest.mark.parametrize(("count", "first"), [(60, 20), (200, 20), (200, 57), (200, 90)])
def test_a_slow_start_is_cut_off(slower: float, count: int, first: int):
    """A step change at the start is found to the batch of five, and hardly any of it stays."""

    def draw(generator: np.random.Generator, size: int) -> Floats:
        return steady(generator, size) + slower * (np.arange(size) < first)

    found = cuts(draw, count)
    assert min(found) >= first - 2
    assert np.median(found) <= first + 5


def test_a_fast_start_is_cut_off():
    """Buffers that were full at the start make the first steps faster, and they don't count either."""

    def draw(generator: np.random.Generator, size: int) -> Floats:
        return steady(generator, size) - 0.8 * (np.arange(size) < 30)

    found = cuts(draw, 200)
    assert min(found) == 30
    assert np.median(found) == 30


def test_a_steady_series_keeps_nearly_all():
    """Without a warm-up only the first step goes, in most series."""
    assert np.median(cuts(steady, 200)) == 1


@pytest.mark.parametrize("size", [0.5, 5.0, 1000.0])
@pytest.mark.parametrize("at", [105, 150, 199])
def test_a_late_outlier_does_not_move_the_cut(size: float, at: int):
    """One slow step in the second half is no end of a warm-up, give or take a batch."""
    for seed in range(20):
        plain = steady(np.random.default_rng(seed), 200)
        hit = plain.copy()
        hit[at] += size
        assert stats.warmup_end(hit) <= stats.warmup_end(plain) + 5


def test_at_most_half_is_warm_up():
    """A series that goes on falling, or changes late, keeps its second half."""
    falling = np.linspace(10, 1, 100)
    late = np.concatenate([np.full(90, 5.0), np.full(10, 1.0)])
    assert stats.warmup_end(falling) <= 50
    assert stats.warmup_end(late) <= 50


def test_a_ramp_is_cut_where_it_ends():
    """A start that gets faster bit by bit is over when it has settled."""

    def draw(generator: np.random.Generator, size: int) -> Floats:
        return steady(generator, size) + np.maximum(0, 1 - np.arange(size) / 40)

    found = cuts(draw, 200)
    assert min(found) >= 35
    assert np.median(found) <= 45


@pytest.mark.parametrize(("count", "cut"), [(0, 0), (1, 0), (2, 0), (3, 1), (19, 1)])
def test_short_series_lose_their_first_step(count: int, cut: int):
    """Under twenty steps there is no rule but that the first one is special, if others are left."""
    assert stats.warmup_end(np.ones(count)) == cut


@pytest.mark.parametrize("count", [20, 21, 24, 25, 1003])
def test_any_length_can_be_cut(count: int):
    """The last steps, which fill no batch, do no harm."""
    series = steady(np.random.default_rng(1), count)
    assert 1 <= stats.warmup_end(series) <= count // 2


def normal(generator: np.random.Generator, count: int) -> Floats:
    """Noise with a mean and median of ten."""
    return generator.normal(10, 1, count)


def skewed(generator: np.random.Generator, count: int) -> Floats:
    """Log-normal noise, of median 1, as the times of steps are."""
    return generator.lognormal(0, 0.5, count)


def dependent(generator: np.random.Generator, count: int) -> Floats:
    """Noise around ten in which each value is half like the one before it."""
    shocks = generator.normal(0, 1, count + 50)
    values = np.zeros(count + 50)
    for i in range(1, count + 50):
        values[i] = 0.5 * values[i - 1] + shocks[i]
    return 10 + values[50:]


@pytest.mark.parametrize("count", [60, 300, 1000])
@pytest.mark.parametrize(("draw", "truth"), [(normal, 10.0), (skewed, math.exp(0.125))])
def test_the_mean_lies_in_its_interval(draw: Draw, truth: float, count: int):
    """The interval of the mean holds the truth in about 95 of 100 series."""
    assert 0.90 <= coverage(draw, truth, count, stats.mean) <= 0.98


@pytest.mark.parametrize("count", [60, 300, 1000])
@pytest.mark.parametrize(("draw", "truth"), [(normal, 10.0), (skewed, 1.0)])
def test_the_median_lies_in_its_interval(draw: Draw, truth: float, count: int):
    """The rank interval of the median holds the truth in at least about 95 of 100 series."""
    assert 0.93 <= coverage(draw, truth, count, stats.median) <= 0.99


def test_a_dependent_series_gets_an_honest_interval():
    """Neighbours that are alike widen the interval, so that it still holds the truth in most series."""
    assert coverage(dependent, 10.0, 600, stats.mean) >= 0.88
    alike = dependent(np.random.default_rng(0), 600)
    mixed = np.random.default_rng(1).permutation(alike)
    assert stats.mean(alike).relative_half_width > 1.3 * stats.mean(mixed).relative_half_width


def test_estimates_are_ordered_and_repeatable():
    """Low, value and high come in this order, and the same series gives the same interval."""
    series = skewed(np.random.default_rng(3), 100)
    for estimate in (stats.mean(series), stats.median(series)):
        assert estimate.low <= estimate.value <= estimate.high
        assert estimate.count == 100
    assert stats.mean(series) == stats.mean(series.copy())
    assert stats.mean(series).value == pytest.approx(float(np.mean(series)))
    assert stats.median(series).value == float(np.median(series))


def test_more_steps_say_more():
    """Four times the steps halve the interval."""
    long = normal(np.random.default_rng(0), 1600)
    ratio = stats.mean(long[:400]).relative_half_width / stats.mean(long).relative_half_width
    assert ratio == pytest.approx(2, rel=0.25)


def test_without_values_nothing_is_known():
    """No value gives no number; one value gives a number without an end to its interval."""
    for nothing in (stats.mean(np.array([])), stats.median(np.array([]))):
        assert math.isnan(nothing.value)
        assert nothing.count == 0
    one = stats.mean(np.array([2.0]))
    assert (one.value, one.low, one.high, one.count) == (2.0, -math.inf, math.inf, 1)
    assert stats.median(np.array([2.0])).value == 2.0


def test_half_width_is_a_share_of_the_value():
    """Half of the interval over the value; nothing can be a share of zero."""
    assert Estimate(10.0, 9.0, 12.0, 5).relative_half_width == pytest.approx(0.15)
    assert Estimate(0.0, 0.0, 1.0, 5).relative_half_width == math.inf


def test_outliers_are_counted_on_both_sides():
    """Beyond three times the interquartile range from the quartiles a value is an outlier."""
    series = np.arange(101.0)  # quartiles 25 and 75, so the fences stand at -125 and 225
    assert stats.outliers(np.append(series, [224.0, -124.0])) == 0
    assert stats.outliers(np.append(series, [240.0, -140.0])) == 2


def test_few_values_have_no_outliers():
    """Of seven values none is called an outlier, of eight one can be."""
    assert stats.outliers(np.array([1.0, 1, 1, 1, 1, 1, 99])) == 0
    assert stats.outliers(np.array([1.0, 1, 1, 1, 1, 1, 1, 99])) == 1

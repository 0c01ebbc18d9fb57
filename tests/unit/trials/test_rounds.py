"""Gains from pairs of turns: what is claimed, what is refuted, and what the noise hides."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tfdiag.trials.rounds import (
    REPEATS,
    Gain,
    Noise,
    Pairs,
    decided,
    gain_of,
    noise_of,
    pairs_needed,
    verdict_of,
)  # fmt: skip

QUIET = Noise(0.01, 4)


def turns(gain: float, spread: float, pairs: int = 8, seed: int = 0) -> tuple[list[float], list[float]]:
    """Give the mean steps of turns of a job and of one that is so much faster, on a machine that drifts."""
    generator = np.random.default_rng(seed)
    drift = np.linspace(1.0, 1.5, pairs)
    noise = np.exp(spread * generator.standard_normal((2, pairs)))
    return list(0.010 * drift * noise[0]), list(0.010 / gain * drift * noise[1])


def test_drift_is_no_gain():
    """A machine that gets slower slows both turns of a pair."""
    gain = gain_of(*turns(1.0, 0.0))
    assert gain.value == pytest.approx(1.0)
    assert gain.spread == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("true", [0.8, 1.0, 1.3, 4.0])
def test_intervals_hold_the_truth(true: float):
    """In at least 95 of 100 draws the interval holds the gain that is there."""
    inside = 0
    for seed in range(200):
        gain = gain_of(*turns(true, 0.03, pairs=5, seed=seed))
        inside += gain.low <= true <= gain.high
    assert inside >= 190


def test_nothing_is_known_better_than_it_repeats():
    """However alike the turns of one run are, the next run may differ: more so the more was changed."""
    width = {gain: gain_of(*turns(gain, 0.0)) for gain in (1.0, 1.5, 6.0)}
    wide = [math.log(gain.high / gain.low) / 2 / 1.96 for gain in width.values()]
    assert wide == pytest.approx([REPEATS, math.hypot(REPEATS, 0.05 * math.log(1.5)), 0.0918], rel=0.01)


def test_one_pair_has_no_interval():
    """A single pair tells a value, and nothing of its spread."""
    gain = gain_of([2.0], [1.0])
    assert (gain.value, gain.low, gain.high) == (pytest.approx(2.0), 0.0, math.inf)
    assert verdict_of(gain, QUIET, 1.5) == "untried"
    assert not decided(gain, QUIET)


def test_noise_is_what_the_job_shows_against_itself():
    """At least a hundredth; more where the same job's turns differ."""
    assert noise_of(*turns(1.0, 0.0)).share == pytest.approx(0.01)
    assert noise_of(*turns(1.0, 0.1)).share > 0.03


def gain(value: float, low: float, high: float, pairs: int = 6, spread: float = 0.02) -> Gain:
    """Give a gain with these ends."""
    return Gain(value, low, high, pairs, spread)


@pytest.mark.parametrize(
    ("found", "promised", "verdict"),
    [
        (gain(1.50, 1.44, 1.56), 1.3, "confirmed"),
        (gain(1.43, 1.12, 1.82), 1.3, "confirmed"),
        (gain(1.07, 1.001, 1.13), 1.3, "confirmed"),
        (gain(1.07, 0.999, 1.13), 1.3, "untried"),
        (gain(1.04, 1.02, 1.06), 1.3, "untried"),  # surely a gain, but no advice
        (gain(1.03, 1.02, 1.04), 1.3, "refuted"),
        (gain(0.99, 0.94, 1.049), 1.3, "refuted"),
        (gain(1.00, 0.90, 1.11), 1.3, "refuted"),  # no gain, and the promise is out of reach
        (gain(1.04, 0.98, 1.10), 1.3, "refuted"),
        (gain(1.06, 0.99, 1.13), 1.3, "untried"),
        (gain(1.00, 0.70, 1.42), 1.3, "untried"),  # the promise may still be true
        (gain(1.30, 0.90, 1.88), 1.3, "untried"),
    ],
)
def test_verdicts(found: Gain, promised: float, verdict: str):
    """Confirmed beyond the noise, refuted where nothing can be left, and nothing in between."""
    assert verdict_of(found, QUIET, promised) == verdict


def test_a_noisy_machine_confirms_less():
    """The same gain on a machine whose jobs differ by a tenth from themselves."""
    assert verdict_of(gain(1.09, 1.05, 1.13), Noise(0.1, 4), 1.05) == "untried"


def test_the_noise_is_held_against_a_gain_once():
    """A job that differs from itself by a tenth: the interval holds that, so that no end of it does again."""
    noise = Noise(0.1, 4)
    clear, hidden = (gain_of(*turns(value, 0.0), noise) for value in (1.2, 1.08))
    assert 1 < clear.low < 1.1
    assert verdict_of(clear, noise, 1.2) == "confirmed"
    assert verdict_of(hidden, noise, 1.05) == "untried"


def test_turns_go_on_until_the_interval_is_narrow():
    """Four pairs at least, and then as many as it takes."""
    assert not decided(gain_of(*turns(1.5, 0.0, pairs=3)), QUIET)
    assert decided(gain_of(*turns(1.5, 0.0, pairs=4)), QUIET)
    assert not decided(gain_of(*turns(1.5, 0.2, pairs=6)), QUIET)


def test_says_how_many_pairs_it_would_take():
    """More for a smaller gain; none where there is nothing to find."""
    small = pairs_needed(gain(1.05, 0.9, 1.2, spread=0.2), QUIET)
    large = pairs_needed(gain(1.50, 1.2, 1.9, spread=0.2), QUIET)
    assert small > large > 0
    assert pairs_needed(gain(1.0, 0.9, 1.1), QUIET) == 0


def test_what_no_run_would_show_again_is_refuted():
    """A quiet moment makes 1 % look like something; a gain repeats to 2 % at best, and much was promised."""
    assert verdict_of(Gain(1.012, 0.96, 1.064, 5, 0.02), QUIET, 2.4) == "refuted"
    assert verdict_of(Gain(1.012, 0.96, 1.064, 5, 0.02), QUIET, 1.05) == "untried"


def test_pairs_in_which_the_cores_were_away_do_not_count():
    """Whatever they came to; a fourth of a second taken from a pair says nothing of the change."""
    pairs = Pairs()
    for a, b, away in (
        (10.0, 5.0, 0.0),
        (10.0, 40.0, 0.4),
        (10.0, 5.0, 0.02),
        (30.0, 5.0, 0.3),
        (10.0, 5.0, 0.0),
    ):
        pairs.add(a, b, away)
    assert pairs.disturbed == 2
    assert pairs.counted() == ([10.0] * 3, [5.0] * 3)
    assert gain_of(*pairs.counted()).value == pytest.approx(2.0)


def test_on_a_machine_that_is_never_there_all_pairs_count():
    """Too few are left for a claim: then all count, and their spread says how little they tell."""
    pairs = Pairs()
    for away in (0.4, 0.0, 0.3, 0.0):
        pairs.add(10.0, 5.0, away)
    assert pairs.disturbed == 0
    assert len(pairs.counted()[0]) == 4

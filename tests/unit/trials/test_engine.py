"""What is said of a gain that is not claimed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.synthetic import MS, Part, analysed, sampled
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.trials.engine import _Conductor, _hidden
from tfdiag.trials.epochs import Epochs
from tfdiag.trials.lane import Arm
from tfdiag.trials.rounds import Gain, Noise, gain_of


def test_few_turns_are_not_called_noise():
    """A gain far beyond the noise, by too few turns to claim it: time was short, and that is said."""
    said = _hidden(Gain(1.27, 1.17, 1.38, 2, 0.01), Noise(0.056, 4), 1.0)
    assert "2 pairs of turns" in said
    assert "no time" in said
    assert "noise" not in said


def test_what_the_noise_hides_says_how_long_it_would_take():
    """A gain within the noise of its turns, and how many more would show it."""
    said = _hidden(Gain(1.27, 0.9, 1.8, 4, 0.4), Noise(0.05, 4), 1.0)
    assert "within the noise" in said
    assert "pairs of turns of 1 s instead of 4" in said


def test_a_sure_but_small_gain_is_not_called_noise():
    """What gains a little for sure is no advice, and nobody is told to look longer."""
    said = _hidden(Gain(1.04, 1.02, 1.06, 6, 0.01), Noise(0.01, 4), 1.0)
    assert said == "tried: 1.04x (1.02 to 1.06) is too small for an advice"


@pytest.mark.parametrize(
    ("arm", "beside"),
    [
        ({}, 3.0 + 0.5 + 2.0 + 1.0 + 0.8),
        ({"steps_per_call": 4}, 3.0 / 4 + 0.5 + 2.0 + 1.0 + 0.8),
        ({"samples": 4.0}, 3.0 / 4 + 0.5 + 2.0 + 1.0 + 0.8),
        ({"epochs": Epochs(100, 1.0)}, 3.0 + 0.5 + 2.0),
    ],
    ids=["as it is", "several steps a call", "larger batches", "with its epochs"],
)
def test_what_no_copy_does_is_added(arm: dict, beside: float):
    """Hooks around batches by their number, what comes once an epoch by that of epochs, which stays."""
    analysis = analysed(
        calls_per_epoch=100, epochs=6, callbacks={"Each": 3 * MS}, epoch_callbacks={"Once": 50 * MS},
        validation=200 * MS, between_epochs=100 * MS, restart=80 * MS,
    )  # fmt: skip
    conductor = _Conductor(None, analysis, lambda recorder: None)
    assert conductor._beside_s(Arm(None, {}, **arm)) == pytest.approx(beside * MS, rel=0.02)


@pytest.mark.parametrize(
    ("base", "tunable", "copy_ms", "wider"),
    [("Map", True, 50, 2.0), ("Map", True, 98, 1.0), ("Map", False, 50, 1.0), ("Prefetch", True, 50, 1.0)],
)
def test_a_job_that_is_slower_than_its_copy(base: str, tunable: bool, copy_ms: float, wider: float):
    """Copies have all cores at once; what the runtime tunes may not: the gain may be larger by as much."""
    of = sampled(
        Part("Range", "range(…)"), Part("Map", "map(decode)", 4 * MS), Part("Prefetch", "prefetch(…)")
    )
    analysis = analysed(wait=40 * MS, compute=59 * MS, dispatch=1 * MS, pipeline=of)
    assert isinstance(analysis.pipeline, PipelineModel)
    stages = [replace(one, tunable=tunable and one.base == base) for one in analysis.pipeline.stages]
    assert any(one.tunable for one in stages) is tunable
    analysis = replace(analysis, pipeline=replace(analysis.pipeline, stages=tuple(stages)))
    conductor = _Conductor(None, analysis, lambda recorder: None, noise=Noise(0.05, 4))
    before, after = [copy_ms * MS] * 5, [20 * MS] * 5
    gain = gain_of(before, after, conductor.noise)
    suggestion = Suggestion("a/b", "a", "", "", Missing("not predicted"))
    found = conductor._judged(suggestion, gain, before, after, 1.0).measured
    assert isinstance(found, Quantity)
    assert found.value == pytest.approx(copy_ms / 20)
    assert found.low == gain.low
    assert found.high == pytest.approx(gain.high * wider)
    assert ("as long as its copy" in found.source) is (wider > 1)

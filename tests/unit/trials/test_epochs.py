"""Which jobs are tried by whole epochs, and whose caches a copy may fill."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, analysed, sampled
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.trials.epochs import caches_fit, short_epochs

SHORT: dict[str, Any] = {"epochs": 6, "calls_per_epoch": 50, "between_epochs": 100 * MS}
ROOM_S = 24.0
GAIN = 2.0


def test_short_epochs_are_those_of_the_job() -> None:
    """Their steps, and what one takes from beginning to beginning, but without validation."""
    found = short_epochs(analysed(**SHORT, validation=0.5), {}, ROOM_S, GAIN)
    assert found is not None
    assert found.steps == 50
    assert found.seconds == pytest.approx(50 * 11 * MS + 100 * MS, rel=0.02)


@pytest.mark.parametrize(
    "job",
    [
        {**SHORT, "calls_per_epoch": 90},
        {**SHORT, "between_epochs": 10 * MS},
        {**SHORT, "epochs": 2},
        {**SHORT, "epochs": 1, "ends": False},
    ],
    ids=["long", "ends that take nothing", "one end alone", "none"],
)
def test_other_jobs_have_no_end(job: dict[str, Any]) -> None:
    """The end of a long epoch is a small part of it, and what was hardly seen says nothing."""
    assert short_epochs(analysed(**job), {}, ROOM_S, GAIN) is None


def test_a_small_gain_is_told_without_ends() -> None:
    """Ends of 15 % that stay instead of getting shorter are an error of 5 % of a gain of 1.33."""
    assert short_epochs(analysed(**SHORT), {}, ROOM_S, 1.30) is None
    assert short_epochs(analysed(**SHORT), {}, ROOM_S, 1.40) is not None


def test_an_input_that_goes_on_has_no_end() -> None:
    """With steps_per_epoch the next epoch reads on where the last one stopped."""
    assert short_epochs(analysed(**SHORT), {"steps_per_epoch": 50}, ROOM_S, GAIN) is None
    assert short_epochs(analysed(**SHORT), {"steps_per_epoch": None}, ROOM_S, GAIN) is not None


@pytest.mark.parametrize(("megabytes", "fits"), [(23, True), (25, False)])
def test_a_copy_fills_caches_that_are_small(megabytes: int, fits: bool) -> None:
    """Two copies exist at a time, and the caller's data must not be held twice without a bound."""
    read = sampled(
        Part("TensorSlice", "from_tensor_slices(…)", node={"cardinality": 1000}),
        Part("Map", "map(decode)", 1 * MS, node={"cardinality": 1000}),
        Part("Cache", "cache()", node={"cardinality": 1000}),
        bytes_each=megabytes * 2**20 / 1000,
    )
    analysis = analysed(pipeline=read)
    assert isinstance(analysis.pipeline, PipelineModel)
    assert caches_fit(read.graph, analysis) is fits
    assert caches_fit(read.graph[:2], analysis), "without a cache there is nothing to hold"
    assert not caches_fit(read.graph, analysed()), "nobody knows what it would hold"

"""summary-writing: summaries take a share of every step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.unit.checks.running import only, results, value
from tfdiag.checks.host.slow_callback import CHECK as SLOW
from tfdiag.checks.host.summary_writing import CHECK
from tfdiag.model.host_work import CallbackFacts, HostWork

BOARD = CallbackFacts(
    "TensorBoard",
    ("TensorBoard",),
    (("update_freq", "1"), ("histogram_freq", "1"), ("write_images", "False")),
    batch_hook=True,
)


def writing(share: float, name: str = "TensorBoard", **did: Any) -> dict[str, Any]:
    """Give a step of 100 ms of which a callback takes this share."""
    return {
        "callbacks": {name: share * 100 * MS},
        "compute": (99 - share * 100) * MS,
        "dispatch": 1 * MS,
        "did": {name: did},
        "host_work": HostWork((BOARD,), ("sync", "save", "summary")),
    }


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_at_a_twentieth_of_the_step(share: float, fires: bool):
    """All of the time of Keras' own callback is summaries, and none of it a slow callback."""
    assert bool(results(CHECK, **writing(share))) is fires
    assert not results(SLOW, **writing(share)) or not fires


@pytest.mark.parametrize(("written", "fires"), [(4.9, False), (5.2, True)])
def test_a_callback_of_ones_own_counts_for_what_it_writes(written: float, fires: bool):
    """Of any other callback it is the time inside of `tf.summary`."""
    assert bool(results(CHECK, **writing(0.4, "Mine", summaries=3, summary_s=written * MS))) is fires


def test_says_how_it_is_set_and_what_to_change():
    """The settings that cost are in the code, those that don't are not."""
    found = only(CHECK, **writing(0.3, summaries=2))
    assert found.finding.title == "TensorBoard writes summaries for 30% of each step"
    assert found.finding.detail == "update_freq=1, histogram_freq=1, write_images=False"
    assert value(found, "summaries and flushes per step") == pytest.approx(2)
    assert found.suggestions[0].code == (
        "- TensorBoard(update_freq=1, histogram_freq=1)\n+ TensorBoard(update_freq='epoch', histogram_freq=0)"
    )


def test_suggests_to_write_rarely():
    """Code of one's own is guarded, a step of one's own records every hundredth time."""
    own = only(CHECK, **writing(0.4, "Mine", summaries=1, summary_s=30 * MS))
    assert "+         if batch % 100:" in own.suggestions[0].code
    parts = {"job": {"loop": "custom"}, "loop_did": {"step": {"summaries": 1, "summary_s": 2 * MS}}}
    assert "tf.summary.record_if(step % 100 == 0)" in only(CHECK, **parts).suggestions[0].code

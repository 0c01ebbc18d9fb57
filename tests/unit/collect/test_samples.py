"""What sampling the stages of a pipeline holds of the caller's data."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf

from tfdiag.collect import samples
from tfdiag.collect.samples import sample_stages
from tfdiag.compat.tfgraph import DatasetGraph

ELEMENT_BYTES = 4 * 250_000


@pytest.mark.parametrize(
    ("room", "kinds"), [(3 * ELEMENT_BYTES, {"prefix", "parallel"}), (3 * ELEMENT_BYTES - 1, {"prefix"})]
)
def test_threads_share_the_room(monkeypatch: pytest.MonkeyPatch, room: int, kinds: set[str]) -> None:
    """A function runs on all cores only where an element for each, and one more, may be held at once."""
    monkeypatch.setattr(samples, "_TOGETHER_BYTES", room)
    dataset = tf.data.Dataset.range(1 << 40).map(lambda _: tf.random.uniform((250_000,)))
    found = sample_stages(
        DatasetGraph.of(dataset, ""),
        cores=2,
        until=time.perf_counter() + 20.0,
        clock=time.perf_counter,
        should_stop=lambda: False,
    )
    assert {sample.kind for sample in found.samples} == kinds

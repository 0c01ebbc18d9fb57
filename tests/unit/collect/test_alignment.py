"""Waits that the recorder derives from a real tf.data iterator are those that really were."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfdiag.collect.recorder import Recorder
from tfdiag.compat.tfdata import ModelReader


class Marked:
    """A pipeline of known waits: each element works for a time of its own, and notes how long it took."""

    def __init__(self, count: int | None) -> None:
        """Make it serial, so that all of an element's work is waited for."""
        self.waits: list[float] = []

        def work(k: np.int64) -> np.int64:
            begin = time.perf_counter()
            while time.perf_counter() - begin < _PLAN[int(k) % len(_PLAN)]:
                pass
            self.waits.append(time.perf_counter() - begin)
            return k

        dataset = tf.data.Dataset.range(10**6 if count is None else count)
        dataset = dataset.map(lambda k: tf.numpy_function(work, [k], tf.int64))
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        self.dataset = dataset.with_options(options)


_PLAN = 0.0002 + 0.0006 * np.random.default_rng(0).integers(0, 6, 500)
"""How long each element works: no neighbours alike, so that a wait given to another call shows."""


def record(calls: int, per_call: int, *, count: int | None = None, epochs: int = 1) -> tuple[Recorder, Any]:
    """Go through a marked pipeline by calls of so many steps, and give what was recorded and what was."""
    marked = Marked(count)
    recorder = Recorder(time.perf_counter, steps_per_call=per_call)

    def train(iterator: Any) -> None:
        taken = 0
        for _ in range(per_call):
            batch = iterator.get_next_as_optional()
            if not batch.has_value():
                break
            taken += 1
        if not taken:
            raise StopIteration

    step = recorder.instrument(train, None)
    for _ in range(epochs):
        recorder.event("epoch_begin")
        iterator = iter(marked.dataset)
        for _ in range(calls):
            try:
                step(iterator)
            except StopIteration:
                break
        recorder.event("epoch_end")
        recorder.look(iterator)
    return recorder, marked


def by_call(waits: list[float], per_call: int) -> np.ndarray:
    """Add up the waits of each whole call."""
    whole = len(waits) // per_call * per_call
    return np.array(waits[:whole]).reshape(-1, per_call).sum(axis=1)


def off(found: np.ndarray, real: np.ndarray) -> float:
    """Say how far waits are from real ones, but for what taking any batch costs on this machine."""
    more = found - real
    return float(np.median(np.abs(more - np.median(more))))


def in_place(found: np.ndarray, real: np.ndarray) -> bool:
    """Say whether waits fit the calls they were given to, and no others near them."""
    here = off(found, real)
    there = min(off(found[shift:], real[:-shift]) for shift in (1, 2))
    elsewhere = min(off(found[:-shift], real[shift:]) for shift in (1, 2))
    more = float(np.median(found - real))  # taking a batch costs something, and far less than these waits
    return 0 <= more < 0.5 * float(np.median(real)) and here < 0.5 * min(there, elsewhere)


@pytest.mark.parametrize(("calls", "per_call"), [(30, 1), (240, 1), (60, 2), (45, 3), (30, 12)])
def test_waits_of_an_endless_input(calls: int, per_call: int) -> None:
    """Each call has the wait for its own batches over many looks, and the last one is open."""
    recorder, marked = record(calls, per_call)
    found, real = np.array(recorder.waits), by_call(marked.waits, per_call)
    assert len(found) == calls
    assert np.isnan(found[-1])
    assert not np.isnan(found[:-1]).any()
    assert in_place(found[:-1], real[: calls - 1])


@pytest.mark.parametrize(("count", "per_call"), [(33, 1), (130, 1), (60, 3), (130, 2), (61, 3), (131, 2)])
def test_waits_of_epochs_that_run_out(count: int, per_call: int) -> None:
    """An epoch whose end nobody knew gives no call the wait of another."""
    recorder, marked = record(10**6, per_call, count=count, epochs=2)
    found = np.array(recorder.waits)
    calls = -(-count // per_call)
    assert len(found) == 2 * calls
    known = 0
    for epoch in range(2):
        whole = count // per_call
        real = by_call(marked.waits[epoch * count : (epoch + 1) * count], per_call)
        part = found[epoch * calls :][:whole]
        assert np.isnan(found[(epoch + 1) * calls - 1])
        seen = ~np.isnan(part)
        assert in_place(part[seen], real[seen])
        known += int(seen.sum())
    assert known >= calls


def test_reasons_for_no_model() -> None:
    """Without autotune the runtime keeps no model, and both the reader and the recorder say so."""
    options = tf.data.Options()
    options.autotune.enabled = False
    iterator = iter(tf.data.Dataset.range(10).with_options(options))
    recorder = Recorder(time.perf_counter)
    step = recorder.instrument(next, None)
    for _ in range(5):
        step(iterator)
    live = recorder.live()
    assert np.isnan(live.wait_s).all()
    assert "tf.data keeps no model of this pipeline" in live.wait_missing
    assert recorder.stages_missing() == live.wait_missing
    reader = ModelReader()
    assert reader.gaps(object()) is None
    assert "this iterator has no model" in reader.missing


def test_stages_of_a_real_pipeline() -> None:
    """The runtime's stages come with their elements and the way they are connected."""
    iterator = iter(tf.data.Dataset.range(100).map(lambda x: x + 1, num_parallel_calls=2).batch(4))
    for _ in range(5):
        next(iterator)
    found = ModelReader().stages(iterator)
    assert found is not None
    stages, output = found.stages, found.output
    by_id = {stage.id: stage for stage in stages}
    assert all(source in by_id for stage in stages for source in stage.inputs)
    names = []
    at: int | None = output
    while at is not None:
        names.append(by_id[at].name)
        at = by_id[at].inputs[0] if by_id[at].inputs else None
    assert names[-1] == "Range"
    assert any("Map" in name for name in names)
    assert any(stage.asynchronous for stage in stages)
    assert by_id[output].elements == 5

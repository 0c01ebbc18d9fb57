"""The stage that stamps: elements stay what they are, and each has one stamp on our clock."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.integration import jobs
from tests.unit.collect.test_replay import SPECS
from tests.unit.fakes import FakeClock
from tfdiag.compat import stamps as subject
from tfdiag.compat.stamps import Stamps, can_be_stamped

MORE: dict[str, Callable[[], tf.data.Dataset]] = {
    "nested": lambda: tf.data.Dataset.from_tensor_slices(
        ({"a": tf.zeros((9, 2)), "b": (tf.ones(9), tf.range(9))}, tf.zeros((9, 1)))
    ).batch(4),
    "a tuple of one": lambda: tf.data.Dataset.from_tensor_slices((tf.zeros((9, 2)),)).batch(4),
    "strings": lambda: tf.data.Dataset.from_tensor_slices((["a", "b"], [1, 2])).batch(2),
    "a sparse part": lambda: tf.data.Dataset.from_tensor_slices((tf.sparse.eye(5), tf.zeros(5))).batch(2),
}


def stamped(dataset: tf.data.Dataset, stamps: Stamps | None = None) -> tf.data.Dataset:
    """Give the dataset with the stage, which must be there."""
    staged = (stamps or Stamps(time.perf_counter)).stage(dataset)
    assert staged is not None
    return staged


@pytest.mark.parametrize("name", SPECS | MORE)
def test_elements_and_their_spec_stay(name: str) -> None:
    """Whatever its structure, an element comes out as it went in, and so does what is known of it."""
    dataset = jobs.no_autotune((SPECS | MORE)[name]())
    staged = stamped(dataset)
    assert staged.element_spec == dataset.element_spec
    assert staged.options() == dataset.options()
    assert staged.cardinality() == dataset.cardinality()
    pairs = list(zip(dataset, staged, strict=True))
    assert pairs
    for before, after in pairs:
        tf.nest.assert_same_structure(before, after, expand_composites=True)
        for one, other in zip(
            *(tf.nest.flatten(each, expand_composites=True) for each in (before, after)), strict=True
        ):
            assert np.array_equal(one, other)


def test_each_element_has_a_stamp_on_our_clock() -> None:
    """The stamp of an element lies between asking for it and having it, and is read once."""
    stamps = Stamps(time.perf_counter)
    iterator = iter(stamped(jobs.no_autotune(jobs.slow(jobs.batches(6), 0.002)), stamps))
    assert len(stamps.read()) == 0
    calls = []
    for _ in range(5):
        begin = time.perf_counter()
        next(iterator)
        calls.append((begin, time.perf_counter()))
    found = stamps.read()
    assert len(found) == 5
    close = 1e-4  # the stamps are those of another clock
    for at, (begin, end) in zip(found, calls, strict=True):
        assert begin + 0.002 - close <= at <= end + close
    assert len(stamps.read()) == 0
    next(iterator)
    assert len(stamps.read()) == 1


def test_the_ring_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """More elements than the ring has places leave the newest, in their order."""
    monkeypatch.setattr(subject, "_SIZE", 8)
    stamps = Stamps(time.perf_counter)
    begin = time.perf_counter()
    for _ in stamped(jobs.no_autotune(jobs.batches(19)), stamps):
        pass
    found = stamps.read()
    assert len(found) == 8
    assert list(found) == sorted(found)
    assert found[0] > begin - 1e-4


def test_stamps_of_a_clock_that_was_set_are_dropped() -> None:
    """Where the two clocks moved apart between two readings, nobody knows when a stamp was."""
    clock = FakeClock(time.time())
    clock_of = Stamps(lambda: time.time() + clock.at)
    iterator = iter(stamped(jobs.no_autotune(jobs.batches(6)), clock_of))
    next(iterator)
    clock.advance(0.5)
    assert len(clock_of.read()) == 0
    next(iterator)
    assert len(clock_of.read()) == 1


def test_a_stage_that_tensorflow_no_longer_has_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the private stage nothing is stamped."""
    monkeypatch.setattr(subject.importlib, "import_module", lambda _: object())
    assert Stamps(time.perf_counter).stage(jobs.batches(2)) is None


def test_only_serial_pipelines_can_be_stamped() -> None:
    """With autotuning a prefetch would stand behind the stamp; what is no plain dataset has no stage."""
    assert can_be_stamped(jobs.no_autotune(jobs.batches(2)))
    assert not can_be_stamped(jobs.batches(2))
    assert not can_be_stamped([1, 2])
    slack = tf.data.Options()
    slack.experimental_slack = True
    assert not can_be_stamped(jobs.no_autotune(jobs.batches(2)).with_options(slack))


def test_what_a_stamp_costs_is_measured() -> None:
    """It is next to nothing, but it is a number, and measuring it is told from batches of the job."""
    stamps = Stamps(time.perf_counter)
    iterator = iter(stamped(jobs.no_autotune(jobs.batches(4)), stamps))
    stamps.measure_cost()
    assert 0 <= stamps.cost_s < 0.01
    stamps.read()
    next(iterator)
    assert len(stamps.read()) == 1


def test_stamps_die_with_their_dataset() -> None:
    """Nothing of TensorFlow's keeps the ring alive."""
    stamps = Stamps(time.perf_counter)
    staged = stamped(jobs.no_autotune(jobs.batches(2)), stamps)
    list(staged)
    ring = weakref.ref(stamps._ring)
    del stamps, staged
    gc.collect()
    assert ring() is None

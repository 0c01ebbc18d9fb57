"""What a PyDataset costs, from real ones that sleep or spin, with bounds that a busy machine keeps too."""

from __future__ import annotations

import threading
import time
from typing import Any

import keras
import numpy as np
import pytest

from tfdiag.collect.py_input import measure_py_input


class Sleeps(keras.utils.PyDataset):
    """Waits for each batch."""

    def __init__(self, **workers: Any) -> None:
        super().__init__(**workers)
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> np.ndarray:
        self.asked.append(index)
        time.sleep(0.02)
        return np.zeros(1)


class Spins(Sleeps):
    """Computes in Python, with the lock held."""

    def __getitem__(self, index: int) -> np.ndarray:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return np.zeros(1)


class Breaks(Sleeps):
    """Is not made for threads."""

    def __getitem__(self, index: int) -> np.ndarray:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("one thread only")
        return np.zeros(1)


class Locked(Sleeps):
    """Can't be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Heavy(Sleeps):
    """Has more than goes to another process."""

    def __init__(self) -> None:
        super().__init__()
        self.data = np.zeros(65 * 2**20, np.uint8)


def measured(dataset: Any, *, cores: int = 4, seconds: float = 60.0, stop: bool = False) -> Any:
    """Measure it with real clocks."""
    return measure_py_input(
        dataset,
        cores=cores,
        until=time.perf_counter() + seconds,
        clock=time.perf_counter,
        should_stop=lambda: stop,
    )


def test_waits_overlap():
    """On four threads a batch takes a quarter, and hardly a processor works."""
    dataset = Sleeps(workers=3)
    found = measured(dataset)
    item = np.median(found.item_s)
    assert (found.workers, found.use_multiprocessing, found.length) == (3, False, 7)
    assert len(found.item_s) >= 3
    assert item >= 0.02
    assert found.cpu_s < 0.5 * sum(found.item_s)
    assert np.median(found.threads_item_s) < 0.6 * item
    assert set(dataset.asked) <= set(range(7))
    assert found.picklable == ""


def test_spinning_does_not_overlap():
    """What computes in Python takes its time for each batch, on two threads as well."""
    found = measured(Spins(), cores=2)
    assert found.cpu_s > 0.8 * 0.02 * len(found.item_s)
    assert np.median(found.threads_item_s) > 0.8 * 0.02


def test_threads_are_joined():
    """None is left, and one that fails is an answer."""
    before = threading.active_count()
    assert measured(Breaks()).threads_item_s == ()
    assert threading.active_count() == before


def test_time_is_kept():
    """With no time left there is one call, and nothing from threads."""
    found = measured(Sleeps(), seconds=0.0)
    assert len(found.item_s) == 1
    assert found.threads_item_s == ()
    assert measured(Sleeps(), stop=True).item_s == ()


@pytest.mark.parametrize(("dataset", "why"), [(Locked, "lock"), (Heavy, "64 MiB")])
def test_says_why_it_can_not_be_pickled(dataset: Any, why: str):
    """Processes get a pickle, which has its limits."""
    assert why in measured(dataset(), seconds=0.0).picklable


@pytest.mark.parametrize(("cores", "tried"), [(4, True), (5, False)])
def test_threads_are_not_given_more_than_may_be_held(cores: int, tried: bool) -> None:
    """Where a batch for each core would not fit, nobody asks for them at once."""

    class Large(Sleeps):
        def __getitem__(self, index: int) -> Any:
            time.sleep(0.002)
            return np.empty(16 << 20, np.uint8)

    found = measure_py_input(
        Large(),
        cores=cores,
        until=time.perf_counter() + 20.0,
        clock=time.perf_counter,
        should_stop=lambda: False,
    )
    assert bool(found.threads_item_s) is tried

"""How many workers a tf.data service takes, and what they give."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, analysed
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.remedies import data_service

STEP: dict[str, Any] = {"wait": 60 * MS, "compute": 39 * MS, "dispatch": 1 * MS, "cores": 4}
"""A step of 100 ms, of which 60 ms are waits."""


@pytest.mark.parametrize(("cpu", "number"), [(1, 1), (160, 1), (161, 2), (320, 2), (321, 3), (1600, 10)])
def test_workers_keep_up_with_the_step(cpu: float, number: int):
    """A worker of four cores does 160 ms of work in the 40 ms that the step itself takes."""
    assert data_service.workers(analysed(**STEP), cpu * MS) == number


def test_the_step_is_left():
    """Two workers make a batch in 37.5 ms, behind 40 ms of step; they may be a quarter slower."""
    gain = data_service.predict(analysed(**STEP), 300 * MS)
    assert isinstance(gain, Quantity)
    assert (gain.low, gain.value, gain.high) == pytest.approx((2, 2.5, 2.5))


def test_a_step_without_rest_takes_one():
    """Nobody can keep up with nothing."""
    assert data_service.workers(analysed(calls_per_epoch=2), 1.0) == 1
    assert isinstance(data_service.predict(analysed(calls_per_epoch=2), 1.0), Missing)


@pytest.mark.parametrize(("number", "text"), [(1, "on another machine"), (3, "on each of 3 other machines")])
def test_the_code_says_where_each_part_runs(number: int, text: str):
    """A dispatcher, workers, and the job."""
    code = data_service.code(number)
    assert text in code
    assert all(line[:2] in ("+ ", "  ") for line in code.splitlines())
    assert code.count("join()") == 2

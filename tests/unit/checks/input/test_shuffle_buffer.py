"""shuffle-buffer: filling a buffer takes long, or its elements the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, Part, Synthetic, pipeline, sampled
from tests.unit.checks.running import evidence, is_sound, not_run, only, results, value, with_wait
from tfdiag.analyse.analysis import Analysis, analyse
from tfdiag.checks.input.shuffle_buffer import CHECK
from tfdiag.model.measurements import InputAlone
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Missing, Quantity

DECODE = Function("decode")


def shuffled(
    size: int = 500,
    *,
    each: float = 10 * MS,
    count: int | None = 10**6,
    function: Function = DECODE,
    below: tuple[Part, ...] = (),
    behind: tuple[Part, ...] = (),
    size_of: float = 1000.0,
) -> Pipeline:
    """Give a pipeline that shuffles elements which cost so much each."""
    return sampled(
        Part("TensorSlice", "from_tensor_slices(…)", 1e-9, node={"cardinality": count}),
        *below,
        Part("Map", "map(decode)", each, 1.0, {"function": function, "cardinality": count}),
        Part("Shuffle", f"shuffle({size})", 0.0, node={"size": size, "random": True}),
        *behind,
        Part("Batch", "batch(10)", 0.0, node={"size": 10}),
        bytes_each=size_of,
    )


REPEAT = Part("Repeat", "repeat()", 0.0, node={"size": -1})


@pytest.mark.parametrize(("size", "fires"), [(98, False), (102, True)])
def test_fires_from_a_twentieth_of_the_epoch(size: int, fires: bool):
    """200 steps of 100 ms: 100 elements of 10 ms take a second of twenty."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=shuffled(size))) is fires


def test_does_not_need_a_steady_wait():
    """The steps between may be as fast as they can."""
    assert results(CHECK, **with_wait(0.0), pipeline=shuffled())


def test_a_buffer_holds_no_more_than_there_is():
    """A buffer of a million over fifty elements fills with fifty."""
    assert not results(CHECK, **with_wait(0.4), pipeline=shuffled(10**6, count=50))


@pytest.mark.parametrize(("restart", "fires"), [(0.9, False), (1.2, True)])
def test_fires_when_epochs_really_begin_late(restart: float, fires: bool):
    """Where the ends of epochs were seen, their first batches must have waited."""
    parts: dict[str, Any] = {**with_wait(0.4), "epochs": 3, "restart": restart}
    found = results(CHECK, **parts, pipeline=shuffled())
    assert bool(found) is fires


@pytest.mark.parametrize(("size", "fires"), [(2**31 / 1000 + 1000, True), (2**31 / 1000 - 1000, False)])
def test_fires_from_a_quarter_of_the_memory(size: float, fires: bool):
    """1000 elements of 2 MiB are a quarter of 8 GiB."""
    of = shuffled(1000, each=0.1 * MS, size_of=size)
    found = results(CHECK, **with_wait(0.4), pipeline=of)
    assert bool(found) is fires
    if found:
        assert "GiB" in found[0].finding.title


def endless(first_s: float, size: int = 500) -> Analysis:
    """Analyse a job whose shuffle lies behind its repeat, and whose first batch took so long."""
    of = shuffled(size, below=(REPEAT,), count=None)
    measured = Synthetic(**with_wait(0.4), pipeline=of).measurements()
    alone = InputAlone((50 * MS,) * 60, 1.0, first_s)
    return analyse(replace(measured, input_alone=alone))


@pytest.mark.parametrize(("first_s", "fires"), [(9.9, False), (10.1, True)])
def test_an_endless_job_must_have_started_late(first_s: float, fires: bool):
    """Where the buffer is filled once, the first batch tells."""
    found = list(CHECK.run(endless(first_s)))
    assert bool(found) is fires
    for one in found:
        assert all(isinstance(s.predicted, Missing) for s in one.suggestions)


@pytest.mark.parametrize(("size", "fires"), [(299, False), (301, True)])
def test_an_endless_job_is_held_against_a_minute(size: int, fires: bool):
    """Three seconds are a twentieth of it."""
    assert bool(list(CHECK.run(endless(20.0, size)))) is fires


def test_a_repeated_shuffle_fills_in_each_pass():
    """The steps of a pass come from the elements, not from the epoch."""
    of = shuffled(500, count=4000, behind=(REPEAT,))
    found = only(CHECK, **with_wait(0.4), pipeline=of, epoch_known=False)
    # 400 steps of 100 ms a pass, five seconds of filling.
    assert found.finding.cost.value == pytest.approx(5 / 40)


def test_suggests_to_shuffle_first_and_less():
    """Below the map the elements cost nothing; a smaller buffer is the caller's choice."""
    found = only(CHECK, **with_wait(0.4), pipeline=shuffled())
    is_sound(CHECK, found)
    fill = evidence(found, "time to fill it")
    assert fill.threshold is not None
    assert (value(found, fill.name), fill.threshold.value) == pytest.approx((5, 1))
    first, smaller = found.suggestions
    assert first.edits == (Edit("swap", 2),)
    assert isinstance(first.predicted, Quantity)
    assert first.predicted.value == pytest.approx(1 / 0.75)
    assert smaller.edits == ()
    assert "+     .shuffle(125)" in smaller.code


@pytest.mark.parametrize("function", [Function("f", stateful=True), Function("f", python=True)])
def test_only_pure_maps_are_passed(function: Function):
    """A map with state may mind the order."""
    found = only(CHECK, **with_wait(0.4), pipeline=shuffled(function=function))
    assert [s.id for s in found.suggestions] == ["shuffle-buffer/smaller-buffer"]


def test_silent_without_a_shuffle():
    """There is no buffer."""
    of = sampled(Part("Range", "range(…)", 1 * MS), Part("Batch", "batch(10)", 0.0, node={"size": 10}))
    assert not results(CHECK, **with_wait(0.4), pipeline=of)


def test_undecided_without_times():
    """What an element costs is not known from the graph."""
    assert "sampled" in not_run(CHECK, **with_wait(0.4), pipeline=pipeline("range(…)", "shuffle(10)"))
    assert not results(CHECK, **with_wait(0.4), pipeline=pipeline("range(…)"))


def test_undecided_without_the_pipeline():
    """A pipeline that nobody knows is not called fine."""
    assert "gone" in not_run(CHECK, **with_wait(0.4), pipeline=Missing("gone"))
    assert not results(CHECK, **with_wait(0.0), pipeline=Missing("gone"))

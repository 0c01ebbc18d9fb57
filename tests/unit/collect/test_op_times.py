"""From the spans of a trace to what ops of a kind cost."""

from __future__ import annotations

import pytest

from tfdiag.collect.op_times import beside, copy_times, op_times, seconds_of_each
from tfdiag.compat.op_spans import OpSpan, Spans
from tfdiag.model.placement import Kind, PlacedOp

PYTHON = PlacedOp("net/py", "EagerPyFunc", "python", "/CPU:0")
MARKED = {("net/py", "EagerPyFunc"): PYTHON}
KINDS: dict[tuple[str, str], Kind] = {at: op.kind for at, op in MARKED.items()}


def py(begin: float, end: float, line: int = 0) -> OpSpan:
    """Give a run of the Python function."""
    return OpSpan("StatefulPartitionedCall/net/py", "EagerPyFunc", line, begin, end)


def op(begin: float, end: float, line: int = 1) -> OpSpan:
    """Give a run of another op."""
    return OpSpan("net/dense/MatMul", "MatMul", line, begin, end)


@pytest.mark.parametrize(
    ("others", "alone"),
    [
        ([], 4.0),
        ([op(1, 2), op(3, 9)], 1.0 + 1.0),
        ([op(0, 10)], 0.0),
        ([op(1, 2, line=0)], 4.0),
        ([op(-1, 6, line=0)], 4.0),
        ([op(4, 5)], 4.0),
    ],
)
def test_alone_is_when_no_other_op_runs(others: list[OpSpan], alone: float):
    """Ops that run inside it, or around it on its thread, are a part of the same."""
    (time,) = op_times(Spans((py(0, 4), *others)), KINDS, calls=1)
    assert (time.kind, time.busy_s, time.alone_s) == ("python", 4.0, alone)


def test_runs_at_the_same_time_count_once():
    """Two threads in the function are one time; each run counts for the op itself."""
    spans = Spans((py(0, 4), py(2, 6, line=3), py(10, 12)))
    (time,) = op_times(spans, KINDS, calls=2)
    assert time.busy_s == 8.0 / 2
    assert seconds_of_each(spans, MARKED, 2) == {("net/py", "EagerPyFunc"): 10.0 / 2}


@pytest.mark.parametrize(
    ("others", "alone"), [([], 6.0), ([op(3.5, 4)], 4.0), ([op(5, 9)], 5.0), ([op(-2, 0)], 6.0)]
)
def test_dispatch_between_two_of_them_is_theirs(others: list[OpSpan], alone: float):
    """A gap in which nothing else runs belongs to the ops around it; the wait for the next call does not."""
    (time,) = op_times(Spans((py(0, 3), py(5, 6), *others)), KINDS, 1)
    assert time.alone_s == pytest.approx(alone)


@pytest.mark.parametrize(
    ("others", "part", "whole"),
    [
        ([], 0.0, 0.0),
        ([op(1, 2), op(3, 9)], 0.5 + 0.5, 2.0),
        ([op(0, 4), op(0, 4, line=2)], 4.0 / 3, 4.0),
        ([op(1, 3), py(1, 2, line=3)], 2 / 3 + 0.5, 2.0),
        ([op(1, 2, line=0)], 0.0, 0.0),
        ([op(4, 9)], 0.0, 0.0),
    ],
    ids=["nobody", "one", "two", "two of these", "inside", "behind"],
)
def test_time_beside_others_is_shared(others: list[OpSpan], part: float, whole: float):
    """Each moment belongs in equal parts to the threads that work in it; a device waits for none of them."""
    spans = Spans((py(0, 4), *others))
    mine = [span for span in spans.ops if span.op == "EagerPyFunc"]
    assert beside(mine, spans) == (pytest.approx(part), pytest.approx(whole))
    assert beside(mine, Spans(spans.ops, kernels=((0.0, 1.0),))) == (0.0, 0.0)


def test_ops_that_did_not_run_have_no_time():
    """Nothing is not zero."""
    assert op_times(Spans((op(0, 1),)), KINDS, 1) == ()


@pytest.mark.parametrize(
    ("copies", "alone"),
    [
        ((), 4.0),
        ((("device to host", 8.0, 10.0), ("host to device", 14.0, 15.0)), 7.0),
        ((("host to device", 6.0, 7.0),), 4.0),
        ((("device to host", 14.5, 15.0),), 4.0),
        ((("device to host", 1.0, 2.0),), 4.0),
    ],
)
def test_on_a_gpu_the_idle_time_around_counts(copies: tuple, alone: float):
    """With what is copied to the op before it and from it after it; not with the batch, nor with launches."""
    kernels = ((0.0, 5.0), (18.0, 20.0))
    spans = Spans((py(10, 14), op(9, 15)), kernels, copies)
    (time,) = op_times(spans, KINDS, 1)
    assert time.alone_s == pytest.approx(alone)


def test_on_a_gpu_what_runs_beside_kernels_costs_nothing():
    """Only where the device is idle it waits."""
    (time,) = op_times(Spans((py(1, 4),), ((0.0, 5.0),)), KINDS, 1)
    assert (time.busy_s, time.alone_s) == (3.0, 0.0)
    (half,) = op_times(Spans((py(1, 8),), ((0.0, 5.0), (6.0, 7.0))), KINDS, 1)
    assert half.alone_s == pytest.approx(2.0)


def test_copies_count_where_no_kernel_runs():
    """By direction, for each call."""
    spans = Spans(
        (py(0, 1),),
        ((2.0, 4.0),),
        (("host to device", 0.0, 3.0), ("host to device", 5.0, 6.0), ("device to host", 2.0, 4.0)),
    )
    times = {time.direction: time for time in copy_times(spans, calls=2)}
    assert (times["host to device"].alone_s, times["host to device"].count) == (1.5, 1.0)
    assert times["device to host"].alone_s == 0.0

"""Traces of functions: that each is seen, and what was different."""

from __future__ import annotations

import time
from typing import Any

import pytest
import tensorflow as tf

from tfdiag.compat.traces import Traced, TraceWatch, difference


@pytest.fixture
def seen() -> Any:
    """Give the traces that are made."""
    found: list[Traced] = []
    watch = TraceWatch(time.perf_counter, found.append)
    watch.start()
    assert not watch.missing
    yield found
    watch.stop()


def told(seen: list[Traced]) -> list[tuple[str, str, str, str]]:
    """Say what was different in each."""
    return [difference(each) for each in seen]


def test_a_python_value(seen: list[Traced]) -> None:
    """Each new number is a trace, and it is named."""

    @tf.function
    def step(x: Any, rate: float) -> Any:
        return x * rate

    for rate in (0.5, 0.5, 0.25):
        step(tf.constant(1.0), rate)
    assert told(seen) == [("first", "", "", ""), ("value", "rate", "0.5", "0.25")]
    assert [each.function for each in seen] == ["step", "step"]
    assert seen[0].where.startswith("test_traces.py:")
    assert all(each.seconds > 0 for each in seen)


def test_shapes_and_types_inside_of_structures(seen: list[Traced]) -> None:
    """The part of the argument that is different is found."""

    @tf.function
    def step(batch: Any) -> Any:
        return batch["x"][0] + 1

    step({"x": (tf.zeros((8, 4)), tf.zeros(1))})
    step({"x": (tf.zeros((7, 4)), tf.zeros(1))})
    step({"x": (tf.zeros((7, 4), tf.float64), tf.zeros(1))})
    assert told(seen)[1:] == [
        ("shape", "batch['x'][0]", "float32 (8, 4)", "float32 (7, 4)"),
        ("type", "batch['x'][0]", "float32 (7, 4)", "float64 (7, 4)"),
    ]


def test_it_is_compared_with_the_trace_that_is_most_alike(seen: list[Traced]) -> None:
    """A shape that comes back with another value differs in the value."""

    @tf.function
    def step(x: Any, training: bool) -> Any:
        return x if training else -x

    step(tf.zeros(2), True)
    step(tf.zeros(3), True)
    step(tf.zeros(2), False)
    assert told(seen)[2] == ("value", "training", "True", "False")


def test_a_function_made_anew(seen: list[Traced]) -> None:
    """The same arguments, but another `tf.function` around the same Python function."""

    def plain(x: Any) -> Any:
        return x + 1

    for _ in range(2):
        tf.function(plain)(tf.constant(1.0))
    assert told(seen)[1] == ("made anew", "", "", "")


def test_functions_inside_of_functions_are_part_of_them(seen: list[Traced]) -> None:
    """A trace inside a trace is no trace of its own."""
    inner = tf.function(lambda x: x + 1)
    outer = tf.function(lambda x: inner(x) * 2)
    outer(tf.constant(1.0))
    assert len(seen) == 1


def test_it_is_put_back() -> None:
    """After the end nothing is told, and tracing is TensorFlow's own."""
    from tensorflow.python.eager.polymorphic_function import tracing_compilation

    before = tracing_compilation._create_concrete_function
    found: list[Traced] = []
    watch = TraceWatch(time.perf_counter, found.append)
    watch.start()
    assert tracing_compilation._create_concrete_function is not before
    watch.stop()
    assert tracing_compilation._create_concrete_function is before
    tf.function(lambda x: x)(tf.constant(1.0))
    assert not found

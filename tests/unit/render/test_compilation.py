"""What a report says of traces and of XLA."""

from __future__ import annotations

from tfdiag.model.compilation import BatchShape, Compilation, Trace
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.compilation import compilation_lines


def test_a_first_trace_says_nothing():
    """Every function is traced once."""
    assert not list(compilation_lines(Compilation((Trace("step", "a.py:1", 0, 0.5, "step", "first"),))))
    assert not list(compilation_lines(Missing("not watched")))


def test_the_latest_difference_is_shown():
    """How often, how long, and what was different."""
    first = Trace("step", "a.py:1", 0, 0.5, "step", "first")
    second = Trace("step", "a.py:1", 9, 0.25, "step", "shape", "x", "float32 (8, 4)", "float32 (7, 4)")
    (line,) = compilation_lines(Compilation((first, second)))
    assert line[0] == "step"
    assert line[1] == "traced 2 times, 750 ms in all; x was float32 (8, 4), then float32 (7, 4)"


def test_what_xla_takes_for_a_shape():
    """The time of a new shape, and how many there were."""
    shapes = (BatchShape("(8, 4)", 3), BatchShape("(7, 4)", 1))
    (line,) = compilation_lines(
        Compilation(shapes=shapes, different=2, looked=4, xla_compile=Quantity(0.05, "s"))
    )
    assert line == ("XLA, for a new shape", "50.0 ms; 4 batches had 2 shapes")

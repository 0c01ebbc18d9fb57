"""Numbers and names as a person reads them."""

from __future__ import annotations

import math

import pytest

from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.render.format import (
    cells,
    clean,
    clean_code,
    clip,
    duration,
    interval,
    number,
    quantity,
    share,
    size,
    speedup,
    with_interval,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (1e-13, "under 0.01 ns"),
        (1.2e-9, "1.20 ns"),
        (4.56e-6, "4.56 µs"),
        (0.000_999_4, "999 µs"),
        (0.000_999_6, "1.00 ms"),
        (0.0483, "48.3 ms"),
        (1, "1.00 s"),
        (90, "90.0 s"),
        (200, "3.33 min"),
        (86_400 * 3, "72.0 h"),
        (-0.003, "-3.00 ms"),
        (math.nan, "unknown"),
        (math.inf, "unknown"),
    ],
)
def test_duration(value: float, text: str) -> None:
    """A time has three digits and the unit that fits, and never reads as zero when it is not."""
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1,000 B"), (1024, "1.00 KiB"), (4_816_896, "4.59 MiB")],
)
def test_size(value: float, text: str) -> None:
    """Bytes are whole below a kibibyte and scaled from there."""
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 %"),
        (0.0004, "under 0.1 %"),
        (0.004, "0.4 %"),
        (0.06, "6.0 %"),
        (0.664, "66 %"),
        (0.994, "99.4 %"),
        (1, "100 %"),
        (-0.006, "-0.6 %"),
        (math.nan, "unknown"),
    ],
)
def test_share(value: float, text: str) -> None:
    """A small share is not rounded to nothing, a large one not to all."""
    assert share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (1_234_567, "1,234,567"),
        (0.5, "0.500"),
        (1e-9, "1.00e-09"),
        (1e300, "1.00e+300"),
        (math.inf, "unknown"),
    ],
)
def test_number(value: float, text: str) -> None:
    """Whole numbers are whole, others have three digits, and no number fills the screen."""
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.003, "1.00x"), (0.992, "0.99x"), (2.9, "2.90x"), (38.6, "38.6x"), (0.0123, "0.0123x")],
)
def test_speedup(value: float, text: str) -> None:
    """Speed-ups that are compared have two decimals."""
    assert speedup(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Quantity(0.0121, "s"), "12.1 ms"),
        (Quantity(0.0121, "s", origin="estimated"), "~12.1 ms"),
        (Quantity(8, "cores", origin="given"), "8 cores"),
        (Quantity(1, "cores"), "1 core"),
        (Quantity(1, "batches"), "1 batch"),
        (Quantity(3.25e8, "B/s"), "310 MiB/s"),
        (Quantity(2, ""), "2"),
        (Quantity(2, "\x1b[31m\n"), r"2 \x1b[31m"),
        (Missing("no clock"), "not measured"),
    ],
)
def test_quantity(value: Maybe, text: str) -> None:
    """A quantity is shown in its own unit, marked where it is an estimate."""
    assert quantity(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Quantity(0.0321, "s", 0.0315, 0.0328), "31.5 to 32.8 ms"),
        (Quantity(0.0009, "s", 0.0008, 0.0011), "800 to 1,100 µs"),
        (Quantity(0.66, "share", 0.65, 0.68), "65 to 68 %"),
        (Quantity(1.9, "x", 1.7, 2.1), "1.70x to 2.10x"),
        (Quantity(6.4, "cores", 6.1, 6.7), "6.10 to 6.70 cores"),
        (Quantity(0.66, "share", 0.656, 0.664), ""),
        (Quantity(3, "s", 2), "at least 2.00 s"),
        (Quantity(3, "s", None, 4), "at most 4.00 s"),
        (Quantity(3, "s", -math.inf, 4), "at most 4.00 s"),
        (Quantity(3, "s", math.nan, math.inf), ""),
        (Quantity(3, "s"), ""),
        (Quantity(0, "s", 0, 0.001), "0 to 1.00 ms"),
        (Missing("no clock"), ""),
    ],
)
def test_interval(value: Maybe, text: str) -> None:
    """Both ends have the unit of the value, once; an interval that tells nothing is not shown."""
    assert interval(value) == text


def test_with_interval() -> None:
    """The interval follows in brackets where there is one."""
    assert with_interval(Quantity(1.9, "x", 1.7, 2.1)) == "1.90x (1.70x to 2.10x)"
    assert with_interval(Quantity(1.9, "x")) == "1.90x"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("conv2d", "conv2d"),
        ("größe 深い", "größe 深い"),
        (" a\r\n\tb  c\u2028d ", "a b c d"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("\u202eevil\u200b\ud800", r"\u202eevil\u200b\ud800"),
    ],
)
def test_clean(name: str, text: str) -> None:
    """A name keeps its letters and loses line breaks, controls and what can't be seen."""
    assert clean(name) == text


def test_clean_code() -> None:
    """Code keeps lines and indentation, and shows what can't be seen."""
    code = "\n-if x:\r\n-\ty = '\x1b'  \n+    y\n"
    assert clean_code(code) == "-if x:\n-   y = '\\x1b'\n+    y"


def test_cells() -> None:
    """Wide characters take two columns, combining ones none."""
    assert [cells("abc"), cells("深い"), cells("e\u0301")] == [3, 4, 1]


@pytest.mark.parametrize("text", ["short", "a" * 10_000, "深" * 50, "深い" + "x" * 10])
def test_clip(text: str) -> None:
    """A clipped text fits, and only what did not fit is marked."""
    clipped = clip(text, 9)
    assert cells(clipped) <= 9
    assert (clipped == text) == (cells(text) <= 9)
    assert clipped == text or clipped.endswith("…")

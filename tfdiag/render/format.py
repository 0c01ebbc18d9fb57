"""Numbers and names as a person reads them: three digits, the unit that fits, no harm in a name.

Units that have a form of their own: `s`, `B`, `B/s`, `FLOP`, `FLOP/s`, `share` (shown in percent), `x`
(a speed-up). Any other is written after the number as it is. An estimated quantity is marked with `~`.
"""

from __future__ import annotations

import math
import unicodedata

from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = [
    "cells",
    "clean",
    "clean_code",
    "clip",
    "duration",
    "interval",
    "number",
    "operations",
    "quantity",
    "share",
    "size",
    "speedup",
    "with_interval",
]

_UNKNOWN = "unknown"
_ROUNDS_UP = 0.9995  # 999.6 µs reads "1.00 ms": the unit is chosen after rounding
_LEAST, _TINY, _LARGE = 0.01, 1e-6, 1e15
# Unit, its size, and from where on it is used: people think of 90 s, not of 1.50 min.
_DURATIONS = (
    ("h", 3600.0, 3.0),
    ("min", 60.0, 3.0),
    ("s", 1.0, 1.0),
    ("ms", 1e-3, 1.0),
    ("µs", 1e-6, 1.0),
    ("ns", 1e-9, 0.0),
)
_SIZES = (
    ("TiB", 2.0**40, 1.0),
    ("GiB", 2.0**30, 1.0),
    ("MiB", 2.0**20, 1.0),
    ("KiB", 2.0**10, 1.0),
    ("B", 1.0, 0.0),
)
_OPERATIONS = (
    ("TFLOP", 1e12, 1.0),
    ("GFLOP", 1e9, 1.0),
    ("MFLOP", 1e6, 1.0),
    ("kFLOP", 1e3, 1.0),
    ("FLOP", 1.0, 0.0),
)


def number(value: float) -> str:
    """Give a whole number in full, any other with three significant digits."""
    if not math.isfinite(value):
        return _UNKNOWN
    whole = value == int(value) and abs(value) < _LARGE
    return f"{int(value):,}" if whole else _digits(value)


def _digits(value: float) -> str:
    """Give three significant digits and keep their zeros, so that columns and intervals agree."""
    rounded = float(f"{value:.2e}")
    if rounded == 0:
        return "0"
    if not _TINY <= abs(rounded) < _LARGE:
        return f"{value:.2e}"
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{value:,.{decimals}f}"


def _scaled(value: float, table: tuple[tuple[str, float, float], ...]) -> tuple[str, float]:
    return next((unit, factor) for unit, factor, least in table if abs(value) >= factor * least * _ROUNDS_UP)


def duration(seconds: float) -> str:
    """Give seconds as `12.3 ms`, `4.56 µs` or `1.50 h`."""
    return _with_unit(seconds, _DURATIONS, "s")


def size(count: float) -> str:
    """Give bytes as `1.50 MiB`."""
    return f"{int(count)} B" if abs(count) < 1000 and count == int(count) else _with_unit(count, _SIZES, "B")


def operations(count: float) -> str:
    """Give floating-point operations as `1.50 GFLOP`."""
    return _with_unit(count, _OPERATIONS, "FLOP")


def _with_unit(value: float, table: tuple[tuple[str, float, float], ...], base: str) -> str:
    if not math.isfinite(value):
        return _UNKNOWN
    if value == 0:
        return f"0 {base}"
    unit, factor = _scaled(value, table)
    if abs(value) < _LEAST * factor:
        return f"under {_LEAST} {unit}"
    return f"{_digits(value / factor)} {unit}"


def share(value: float) -> str:
    """Give a share from 0 to 1 in percent; a small one never reads as nothing."""
    if not math.isfinite(value):
        return _UNKNOWN
    percent = value * 100
    if 0 < abs(percent) < 0.1:
        return "under 0.1 %"
    # Near either end whole percents would claim "none" or "all".
    whole = percent == 0 or 9.95 <= abs(percent) < 99 or round(percent, 1) >= 100
    return f"{percent:.0f} %" if whole else f"{percent:.1f} %"


def speedup(value: float) -> str:
    """Give a speed-up as `1.85x`."""
    if not math.isfinite(value):
        return _UNKNOWN
    # Digits that a reader compares: "0.99x to 1.01x".
    return f"{value:.2f}x" if 0.1 <= value < 10 else f"{_digits(value)}x"


def _plain(value: float, unit: str) -> str:
    forms = {"s": duration, "B": size, "FLOP": operations, "share": share, "x": speedup}
    if unit in forms:
        return forms[unit](value)
    if unit in ("B/s", "FLOP/s"):
        return f"{forms[unit[:-2]](value)}/s"
    unit = clean(unit)
    if value == 1 and len(unit) > 2:
        unit = unit.removesuffix("es") if unit.endswith("ches") else unit.removesuffix("s")
    return f"{number(value)} {unit}".rstrip()


def quantity(value: Maybe) -> str:
    """Give a quantity with its unit, or say that there is none."""
    if isinstance(value, Missing):
        return "not measured"
    return ("~" if value.origin == "estimated" else "") + _plain(value.value, value.unit)


def interval(value: Maybe) -> str:
    """Give the interval as `31.5 to 32.8 ms`, in the value's unit; empty where there is none."""
    if isinstance(value, Missing):
        return ""
    ends = [end for end in (value.low, value.high) if end is not None and math.isfinite(end)]
    if not ends:
        return ""
    texts = _ends(ends, value)
    if len(ends) == 1:
        return f"at {'least' if ends[0] == value.low else 'most'} {texts[0]}"
    low, high = texts
    if low == high:
        return ""
    number_of_low, _, unit_of_low = low.partition(" ")
    same_unit = unit_of_low and high.endswith(f" {unit_of_low}")
    return f"{number_of_low if same_unit else low} to {high}"


def _ends(ends: list[float], value: Quantity) -> list[str]:
    table = {"s": _DURATIONS, "B": _SIZES}.get(value.unit)
    if table is None or not math.isfinite(value.value):
        return [_plain(end, value.unit) for end in ends]
    unit, factor = _scaled(value.value or max(ends, key=abs), table)
    return [f"{_digits(end / factor)} {unit}" for end in ends]


def with_interval(value: Maybe) -> str:
    """Give a quantity followed by its interval in brackets."""
    ends = interval(value)
    return quantity(value) + (f" ({ends})" if ends else "")


def clean(text: str) -> str:
    """Make a name safe to show on one line: no line breaks, no control or invisible characters."""
    if not text.isprintable():
        text = "".join(map(_visible, text))
    return " ".join(text.split())


def clean_code(text: str) -> str:
    """Make code safe to show; it keeps its lines and its indentation."""
    lines = text.expandtabs(4).strip("\n").splitlines()
    return "\n".join("".join(map(_visible, line)).rstrip() for line in lines)


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")


def cells(text: str) -> int:
    """Count the columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def clip(text: str, width: int) -> str:
    """Cut a text to so many columns, and show that it was cut."""
    if cells(text) <= width:
        return text
    while cells(text) >= width:
        # Long names are cut by halves first, so that this stays cheap.
        text = text[: max(width, len(text) // 2)] if len(text) > 2 * width else text[:-1]
    return text.rstrip() + "…"

"""What really went wrong, out of an error that TensorFlow put the caller's own into."""

from __future__ import annotations

import re

__all__ = ["root_cause"]

_ERROR_LINE = re.compile(
    r"^\s*(?:\S+: )?([A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning): .+)$", re.MULTILINE
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Keras writes some of its messages in bold, which no log or file shows as such."""


def root_cause(error: BaseException) -> str:
    """Give the line that says what went wrong: TensorFlow puts the caller's error inside its own."""
    text = _COLOURS.sub("", str(error)).strip()
    if inner := _ERROR_LINE.search(text):
        return inner[1].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if line != "Graph execution error:" and "Detected at node" not in line]
    return f"{type(error).__name__}: {' '.join(said[:4])}" if said else type(error).__name__

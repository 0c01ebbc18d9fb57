"""Compares what a test made with a file in tests/golden; `UPDATE_GOLDEN=1` rewrites the file."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["assert_golden"]

FOLDER = Path(__file__).with_name("golden")


def assert_golden(name: str, text: str) -> None:
    """Fail unless the golden file holds exactly this text."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.is_file(), f"{path} is missing: run the tests with UPDATE_GOLDEN=1 and look at it"
    assert text == path.read_text(encoding="utf-8"), f"{path} differs: see UPDATE_GOLDEN=1"

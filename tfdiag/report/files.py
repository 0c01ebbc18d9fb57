"""Reports on disk: read with errors that say what to do, written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from tfdiag.errors import ReportError, UsageError
from tfdiag.model.report import SCHEMA_VERSION
from tfdiag.version import __version__

__all__ = ["check_version", "read", "write"]

_WANTED = "pass the .json file of a report (.html and .md are for reading only)"


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the JSON in a file; whether it is a report is for `check_version` to say."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ReportError(f"{path}: no such file; pass one written by report.save('….json')") from None
    except OSError as error:
        raise ReportError(f"{path}: can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{path}: not a text file; {_WANTED}") from error
    try:
        data: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not JSON ({error}); {_WANTED}") from error
    return data


def check_version(data: object) -> dict[str, Any]:
    """Give the data back if it claims to be a report that this version can read."""
    if not isinstance(data, dict) or "schema_version" not in data:
        got = "an object without 'schema_version'" if isinstance(data, dict) else type(data).__name__
        raise ReportError(f"not a report of tfdiag: got {got}; {_WANTED}")
    version = data["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:
        newer = type(version) is int and version > SCHEMA_VERSION
        advice = "upgrade tfdiag to read it" if newer else "run the diagnosis again"
        raise ReportError(
            f"the report has schema_version {version!r}, "
            f"and tfdiag {__version__} reads {SCHEMA_VERSION}: {advice}"
        )
    return data


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a file so that a reader never sees half of it."""
    # Through a link, as `open` would: the file that it points to is replaced, not the link.
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise UsageError(f"{os.fspath(path)}: the folder {target.parent} does not exist; create it first")
    part = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        # Not `tempfile`: its files are private, and a report gets what the umask gives.
        with open(part, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)

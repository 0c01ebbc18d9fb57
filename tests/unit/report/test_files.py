"""Reports on disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tfdiag.errors import ReportError, UsageError
from tfdiag.report.files import check_version, read, write


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing fails half-way, the old file is as it was and no part is left behind."""
    path = tmp_path / "report.json"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_file_gets_the_usual_permissions(tmp_path: Path) -> None:
    """A saved report can be read by whom the umask allows, unlike a temporary file."""
    before = os.umask(0o022)
    try:
        write(tmp_path / "report.md", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report.md").stat().st_mode) == 0o644


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Saving through a link writes the file that it points to."""
    target, link = tmp_path / "real.json", tmp_path / "latest.json"
    target.write_text("old")
    link.symlink_to(target)
    write(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """A folder that does not exist is an error of usage that says which one."""
    with pytest.raises(UsageError, match=r"the folder .*nowhere does not exist"):
        write(tmp_path / "nowhere" / "report.json", "x")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A file that does not exist is an error of the report with its path and what to pass."""
    with pytest.raises(ReportError, match=r"gone\.json: no such file; pass one written by"):
        read(tmp_path / "gone.json")


def test_a_folder_is_no_report(tmp_path: Path) -> None:
    """What can't be opened is told with the system's reason."""
    with pytest.raises(ReportError, match=r"can't be read: "):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"<!doctype html>", b"", b"[" * 100_000, b'{"a": ', b"1" * 5000])
def test_what_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    """Text that is no JSON, however odd, gives an error that says what to pass."""
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=r"pass the \.json file"):
        check_version(read(path))


def test_binary_is_refused(tmp_path: Path) -> None:
    """A file that is no text gives an error that says what to pass."""
    path = tmp_path / "report.json"
    path.write_bytes(b"\x80\x81\xff")
    with pytest.raises(ReportError, match=r"not a text file; pass the \.json file"):
        read(path)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    """A file that an editor saved with a byte order mark can be read."""
    path = tmp_path / "report.json"
    path.write_bytes(b'\xef\xbb\xbf{"schema_version": 1}')
    assert read(path) == {"schema_version": 1}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "not a report of tfdiag: got list"),
        ({"a": 1}, "not a report of tfdiag: got an object without 'schema_version'"),
        ({"schema_version": 2}, "schema_version 2, .* upgrade tfdiag to read it"),
        ({"schema_version": 0}, "schema_version 0, .* run the diagnosis again"),
        ({"schema_version": True}, "schema_version True"),
        ({"schema_version": "1"}, "schema_version '1'"),
    ],
)
def test_what_is_not_a_known_report_is_refused(data: object, message: str) -> None:
    """The error says what was received and what to do."""
    with pytest.raises(ReportError, match=message):
        check_version(data)

"""The command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from tests.sample_reports import empty, full
from tfdiag.cli import main
from tfdiag.report.schema import report_schema
from tfdiag.version import __version__


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Give a saved report."""
    path = tmp_path / "report.json"
    full().save(path)
    return path


@dataclass(frozen=True)
class FakeCheck:
    """A check as the registry gives it."""

    id: str
    doc: str


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put two checks into the registry."""
    module = ModuleType("tfdiag.checks.registry")
    checks = (FakeCheck("eager-step", "Eager.\n\nMore.\n"), FakeCheck("tiny-steps", "Tiny."))
    module.all_checks = lambda: checks  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tfdiag.checks.registry", module)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], f"{full()}\n"),
        (["--format", "terminal"], f"{full()}\n"),
        (["--format", "markdown"], full().to_markdown()),
        (["--format", "html"], full().to_html()),
        (["--format", "json"], full().to_json() + "\n"),
    ],
)
def test_show(saved: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str) -> None:
    """A saved report is shown in each form, without colour where nobody watches."""
    assert main(["show", str(saved), *arguments]) == 0
    assert capsys.readouterr() == (text, "")


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("out.html", [], full().to_html()),
        ("out.md", [], full().to_markdown()),
        ("out.txt", [], f"{full()}\n"),
        ("out.html", ["--format", "markdown"], full().to_markdown()),
    ],
)
def test_show_to_a_file(saved: Path, tmp_path: Path, name: str, arguments: list[str], text: str) -> None:
    """The form of a file is what was asked for, else what its name ends on."""
    assert main(["show", str(saved), "-o", str(tmp_path / name), *arguments]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8") == text


def test_show_in_colour(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets colour."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["show", str(saved)]) == 0
    assert "\x1b[" in stream.getvalue()
    assert "Steps wait for input 66 % of the time." in stream.getvalue()


def test_a_bad_file_is_one_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What can't be read ends with 1 and one line, no traceback."""
    assert main(["show", str(tmp_path / "gone.json")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tfdiag: ")
    assert "no such file" in err
    assert err.count("\n") == 1


def test_a_file_that_cannot_be_written(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that does not exist is an error of usage, told in one line."""
    assert main(["show", str(saved), "-o", str(saved.parent / "no" / "a.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["shw"], ["show"], ["show", "x", "--format", "pdf"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A command that does not exist ends with 2 and the usage."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: tfdiag" in capsys.readouterr().err


@pytest.mark.usefixtures("registry")
def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    """A check is explained by its own documentation."""
    assert main(["explain", "eager-step"]) == 0
    assert capsys.readouterr().out == "Eager.\n\nMore.\n"


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("check", "advice"),
    [("eager-steps", "did you mean 'eager-step'?"), ("xyz", "there are: eager-step, tiny-steps")],
)
def test_explain_an_unknown_check(check: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An id that does not exist ends with 2 and those that do."""
    assert main(["explain", check]) == 2
    assert advice in capsys.readouterr().err


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """The schema is printed as JSON."""
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == report_schema()


def test_version_as_a_module() -> None:
    """`python -m tfdiag` is the command, and says its version."""
    command = [sys.executable, "-m", "tfdiag", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"tfdiag {__version__}\n"


@pytest.mark.parametrize("form", ["terminal", "html"])
def test_a_closed_pipe_is_no_crash(tmp_path: Path, form: str) -> None:
    """A reader that stops early, like `head`, gets no traceback, for short output and for long."""
    empty().save(tmp_path / "report.json")
    command = [sys.executable, "-m", "tfdiag", "show", f"{tmp_path}/report.json", "--format", form]
    # With a buffer, what is short is still there to be flushed at exit, into the closed pipe.
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=buffered) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (1, b"")


def test_a_narrow_encoding_is_no_crash(saved: Path) -> None:
    """A console that can't show a bar shows something else."""
    command = [sys.executable, "-m", "tfdiag", "show", str(saved)]
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"input wait       ????" in done.stdout

"""`tfdiag` on the command line: shows saved reports, explains checks, prints the schema."""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence

from tfdiag.errors import TfdiagError, UsageError
from tfdiag.render import terminal
from tfdiag.render.report import Report, load
from tfdiag.report import files
from tfdiag.report.schema import schema_text
from tfdiag.version import __version__

__all__ = ["main"]

_DONE, _FAILED, _USAGE = 0, 1, 2
_FORMS: dict[str, Callable[[Report], str]] = {
    "terminal": lambda report: f"{report}\n",
    "markdown": Report.to_markdown,
    "html": Report.to_html,
    "json": lambda report: f"{report.to_json()}\n",
}
_FORM_OF_SUFFIX = {".md": "markdown", ".html": "html", ".json": "json"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 when it worked, 1 when it did not, 2 when it was asked for wrongly."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A console that can't show a bar shows "?" and goes on.
        sys.stdout.reconfigure(errors="replace")
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; nothing may flush into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    except (TfdiagError, OSError) as error:
        print("tfdiag:", " ".join(str(error).split()), file=sys.stderr)
        return _USAGE if isinstance(error, UsageError) else _FAILED
    return _DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tfdiag", description="Says why a Keras training step is slow.")
    parser.add_argument("--version", action="version", version=f"tfdiag {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    show = commands.add_parser("show", help="show a saved report")
    show.add_argument("report", metavar="REPORT.json")
    show.add_argument("--format", choices=list(_FORMS), help="default: what -o ends on, else terminal")
    show.add_argument("-o", "--output", metavar="FILE", help="write to a file")
    show.set_defaults(run=_show)

    explain = commands.add_parser("explain", help="say what a check looks for and how to fix what it finds")
    explain.add_argument("check", metavar="CHECK_ID")
    explain.set_defaults(run=_explain)

    schema = commands.add_parser("schema", help="print the JSON Schema of a saved report")
    schema.set_defaults(run=_schema)
    return parser


def _show(arguments: argparse.Namespace) -> None:
    report = load(arguments.report)
    form = arguments.format
    if arguments.output:
        suffix = os.path.splitext(arguments.output)[1].lower()
        form = form or _FORM_OF_SUFFIX.get(suffix, "terminal")
        files.write(arguments.output, _FORMS[form](report))
    elif form in (None, "terminal") and sys.stdout.isatty():
        terminal.print_colour(report, sys.stdout)
    else:
        sys.stdout.write(_FORMS[form or "terminal"](report))


def _explain(arguments: argparse.Namespace) -> None:
    checks = importlib.import_module("tfdiag.checks.registry").all_checks()
    docs = {check.id: check.doc for check in checks}
    if arguments.check not in docs:
        near = difflib.get_close_matches(arguments.check, docs, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(docs))}"
        raise UsageError(f"no check is called {arguments.check!r}; {advice}")
    sys.stdout.write(docs[arguments.check].strip() + "\n")


def _schema(_: argparse.Namespace) -> None:
    sys.stdout.write(schema_text())

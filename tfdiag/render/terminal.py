"""The report for a terminal or a log: aligned text, in colour where somebody watches."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeAlias

from tfdiag.model.report import ReportData
from tfdiag.render.format import cells, clip
from tfdiag.render.view import LEGEND, Bar, Change, Problem, Row, View, view

__all__ = ["WIDTH", "print_colour", "to_text"]

WIDTH = 100
_LEAST_WIDTH = 60

Span: TypeAlias = tuple[str, str]
"""A text and its style, in the words of rich."""
Line: TypeAlias = tuple[Span, ...]

_HEADING = "bold"
_DIM = "dim"
_STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
_EIGHTHS = " ▏▎▍▌▋▊▉"
_NAME = 16


def to_text(report: ReportData, width: int = WIDTH) -> str:
    """Give the report as plain text without a trailing line break."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in _lines(view(report), width))


def print_colour(report: ReportData, file: TextIO) -> None:
    """Print the report in colour, as wide as the terminal but no wider than reads well."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True)
    for line in _lines(view(report), max(_LEAST_WIDTH, min(WIDTH, console.width))):
        # `Text`, not markup: a layer named "[red]" is a name.
        console.print(Text.assemble(*line))


def _lines(what: View, width: int) -> Iterator[Line]:
    yield from _verdict(what, width)
    if what.step:
        yield from _section("Where a step's time goes")
        yield from _step(what, width)
    if what.bounds:
        yield from _section("What there is to gain")
        yield from _rows(what.bounds, width)
    if what.stages:
        yield from _section("The input, stage by stage")
        yield from _rows(what.stages, width)
    if what.placement:
        yield from _section("Where ops run")
        yield from _rows(what.placement, width)
    yield from _section("Findings")
    if what.no_problem:
        yield from _wrap(what.no_problem, width)
    for number, problem in enumerate(what.problems, 1):
        yield from _problem(number, problem, width)
    if what.changes:
        yield from _section("What to change, best first")
        for number, change in enumerate(what.changes, 1):
            yield from _change(number, change, width)
    if what.withdrawn:
        yield from _section("Tried and withdrawn")
        for number, change in enumerate(what.withdrawn, 1):
            yield from _change(number, change, width)
    if what.unmeasured:
        yield from _section("Not measured")
        for gap in what.unmeasured:
            yield from _wrap(f"- {gap}", width, hang=2)
    if what.notes:
        yield from _section("Notes")
        for note in what.notes:
            yield from _wrap(f"- {note}", width, hang=2)
    yield from _section("This diagnosis")
    cost = f"{what.cost}; {what.phases}" if what.phases else what.cost
    yield from _rows([Row("cost", cost), Row("on", what.environment), LEGEND], width)


def _section(title: str) -> Iterator[Line]:
    yield ()
    yield ((title, _HEADING),)


def _fold(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)
    return lines or [""]


def _wrap(text: str, width: int, indent: int = 2, hang: int = 0, style: str = "") -> Iterator[Line]:
    first, later = " " * indent, " " * (indent + hang)
    for line in _fold(text, width, first, later):
        yield ((line, style),)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def _rows(rows: Iterable[Row], width: int, indent: int = 2) -> Iterator[Line]:
    """Give names in one column and texts in the other."""
    rows = list(rows)
    widest = min(max((cells(row.name) for row in rows), default=0), width // 2)
    room = max(20, width - indent - widest - 2)
    for row in rows:
        name = clip(row.name, widest)
        for text in _fold(row.text, room):
            yield ((" " * indent, ""), (_pad(name, widest), _DIM), (f"  {text}", ""))
            name = ""


def _verdict(what: View, width: int) -> Iterator[Line]:
    left, right = what.code.upper(), what.confidence
    gap = " " * max(2, width - cells(left) - cells(right))
    yield ((left, "bold reverse"), (gap, ""), (right, ""))
    yield from _wrap(what.headline, width, indent=0, style=_HEADING)
    if what.needed:
        yield from _wrap("To say more: " + "; ".join(what.needed), width, indent=0, hang=2)
    yield from _wrap(what.job, width, indent=0, style=_DIM)


def _step(what: View, width: int) -> Iterator[Line]:
    yield from _wrap(f"{what.step} a step", width)
    yield from _wrap(what.step_note, width, style=_DIM)
    yield from _bars(what.bars, width)
    if what.once:
        once = ", ".join(f"{row.name} {row.text}" for row in what.once)
        yield from _wrap(f"Once, at the start, not in the step: {once}", width, hang=2, style=_DIM)


def _bars(bars: tuple[Bar, ...], width: int) -> Iterator[Line]:
    time, portion, ends = (
        max(len(text) for text in column)
        for column in zip(*((bar.time, bar.share, bar.interval) for bar in bars), strict=True)
    )
    room = max(4, width - 2 - _NAME - 1 - 2 - time - 3 - portion - 3 - ends)
    for bar in bars:
        numbers = f"  {bar.time:>{time}}   {bar.share:>{portion}}"
        yield from _bar(bar, numbers, room, width)


def _bar(bar: Bar, numbers: str, room: int, width: int) -> Iterator[Line]:
    if bar.code:
        drawn = _blocks(bar.fraction, room)
        style = _DIM if bar.code == "unexplained" else "cyan"
        left: Line = ((f"  {_pad(clip(bar.name, _NAME), _NAME)} ", ""), (_pad(drawn, room), style))
    else:
        space = _NAME + 1 + room - 2
        left = ((f"    {_pad(clip(bar.name, space), space)}", _DIM),)
    yield (*left, (numbers, "" if bar.code else _DIM), (f"   {bar.interval}", _DIM))
    if bar.note:
        yield from _wrap(bar.note, width, indent=6, style=_DIM)


def _blocks(fraction: float, width: int) -> str:
    eighths = round(fraction * width * 8)
    if fraction > 0:
        eighths = max(1, eighths)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _numbered(number: int, text: str, right: str, width: int, style: str) -> Iterator[Line]:
    """Give a numbered title with something at the right end of its first line."""
    lead = f"  {number}  "
    lines = _fold(text, width - len(lead) - cells(right) - 2)
    gap = " " * max(2, width - len(lead) - cells(lines[0]) - cells(right))
    yield ((lead, ""), (lines[0], style), (gap, ""), (right, ""))
    for line in lines[1:]:
        yield ((" " * len(lead), ""), (line, style))


def _problem(number: int, problem: Problem, width: int) -> Iterator[Line]:
    if number > 1:
        yield ()
    yield from _numbered(number, problem.title, problem.cost, width, _HEADING)
    where = f" in {problem.where}" if problem.where else ""
    style = _STYLES.get(problem.severity, "")
    first, *later = _fold(f"{problem.severity}: {problem.check}{where}", width - 5)
    said = len(problem.severity)
    yield (("     ", ""), (first[:said], style), (first[said:], ""))
    for line in later:
        yield ((f"       {line}", ""),)
    if problem.detail:
        yield from _wrap(problem.detail, width, indent=5)
    yield from _rows(problem.evidence, width, indent=7)


def _change(number: int, change: Change, width: int) -> Iterator[Line]:
    if number > 1:
        yield ()
    yield from _numbered(number, change.text, clip(change.id, width // 2), width, _HEADING)
    yield from _rows(change.facts, width, indent=5)
    styles = {"+": "green", "-": "red"}
    # Never wrapped: code is there to be copied.
    for line in change.code.splitlines():
        yield ((f"       {line}".rstrip(), styles.get(line[:1], "")),)

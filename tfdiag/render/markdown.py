"""The report as Markdown, for issues, pull requests and notes (CommonMark with GitHub's tables)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tfdiag.model.report import ReportData
from tfdiag.render.view import LEGEND, Change, Problem, Row, View, view

__all__ = ["to_markdown"]

# An underscore inside a word is no emphasis: `from_generator` stays readable in the source.
# A tilde before a word ends nothing, so that "~3 ms" stays readable too.
_SPECIAL = re.compile(r"[\\`*\[\]<>|&$]|(?<!\w)_|_(?!\w)|(?<=\S)~")
_BLOCK_START = re.compile(r"^(\d*)([-=]{2,}|#|~~|[-+=.)](?=\s|$))")


def to_markdown(report: ReportData) -> str:
    """Give the report as a Markdown document."""
    return "\n".join(_lines(view(report))) + "\n"


def _text(text: str) -> str:
    """Escape what Markdown or HTML would take for more than a text."""
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    return _BLOCK_START.sub(r"\1\\\2", escaped)


def _code(text: str) -> str:
    """Give a code span that nothing in the text can end; for outside of tables."""
    if not text:
        return ""
    fence = "`" * (_longest_run(text) + 1)
    space = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _table(head: tuple[str, ...], align: str, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    marks = {"l": ":--", "r": "--:"}
    yield ""
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join(marks[side] for side in align) + " |"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _lines(what: View) -> Iterator[str]:
    yield f"# {_text(what.code)}: {_text(what.headline)}"
    yield ""
    yield " · ".join(_text(text) for text in (what.confidence, what.job) if text)
    if what.needed:
        yield ""
        yield "To say more: " + "; ".join(map(_text, what.needed))
    if what.step:
        yield from _section("Where a step's time goes")
        yield from _step(what)
    if what.bounds:
        yield from _section("What there is to gain")
        yield from _list(what.bounds)
    if what.stages:
        yield from _section("The input, stage by stage")
        yield from _list(what.stages)
    if what.placement:
        yield from _section("Where ops run")
        yield from _list(what.placement)
    yield from _section("Findings")
    if what.no_problem:
        yield _text(what.no_problem)
    for number, problem in enumerate(what.problems, 1):
        yield from _problem(number, problem)
    for title, changes in (
        ("What to change, best first", what.changes),
        ("Tried and withdrawn", what.withdrawn),
    ):
        if changes:
            yield from _section(title)
        for number, change in enumerate(changes, 1):
            yield from _change(number, change)
    if what.unmeasured:
        yield from _section("Not measured")
        yield from (f"- {_text(gap)}" for gap in what.unmeasured)
    if what.notes:
        yield from _section("Notes")
        yield from (f"- {_text(note)}" for note in what.notes)
    yield from _section("This diagnosis")
    phases = f"; {what.phases}" if what.phases else ""
    yield from _list([Row("cost", what.cost + phases), Row("on", what.environment), LEGEND])


def _section(title: str) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""


def _list(rows: tuple[Row, ...] | list[Row], indent: str = "") -> Iterator[str]:
    for row in rows:
        yield f"{indent}- {_text(row.name)}: {_text(row.text)}"


def _step(what: View) -> Iterator[str]:
    yield f"**{_text(what.step)} a step**, {_text(what.step_note)}"
    rows = []
    for bar in what.bars:
        name = _text(bar.name) if bar.code else f"↳ {_text(bar.name)}"
        if bar.note:
            name += f" ({_text(bar.note)})"
        drawn = "█" * max(1, round(bar.fraction * 20)) if bar.code and bar.fraction > 0 else ""
        rows.append((name, drawn, _text(bar.time), _text(bar.share), _text(bar.interval)))
    yield from _table(("part", "", "time", "share", "95 % interval"), "llrrl", rows)
    if what.once:
        once = ", ".join(f"{_text(row.name)} {_text(row.text)}" for row in what.once)
        yield f"Once, at the start, not in the step: {once}"


def _problem(number: int, problem: Problem) -> Iterator[str]:
    if number > 1:
        yield ""
    where = f" in {_code(problem.where)}" if problem.where else ""
    yield f"{number}. **{_text(problem.title)}**: {_text(problem.cost)}"
    indent = " " * len(f"{number}. ")
    yield ""
    yield f"{indent}{_text(problem.severity)}: {_code(problem.check)}{where}"
    if problem.detail:
        yield ""
        yield indent + _text(problem.detail)
    if problem.evidence:
        yield ""
        yield from _list(problem.evidence, indent)


def _change(number: int, change: Change) -> Iterator[str]:
    if number > 1:
        yield ""
    indent = " " * len(f"{number}. ")
    yield f"{number}. **{_text(change.text)}** ({_code(change.id)})"
    yield ""
    yield from _list(change.facts, indent)
    if change.code:
        fence = "`" * max(3, _longest_run(change.code) + 1)
        yield ""
        yield f"{indent}{fence}diff"
        yield from (f"{indent}{line}".rstrip() for line in change.code.splitlines())
        yield indent + fence

"""The report as one HTML file, for a person with any screen, or none.

No script, nothing fetched, light and dark, readable on a phone and by a screen reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib.resources import files

from tfdiag.model.report import ReportData
from tfdiag.render.view import LEGEND, Bar, Change, Problem, Row, View, view

__all__ = ["to_fragment", "to_html"]

# Whatever a name slips past the escaping: the page may load nothing and run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def to_html(report: ReportData) -> str:
    """Give the report as a whole page."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>tfdiag: {_text(view(report).code)}</title>
<style>
body {{ margin: 0; background: light-dark(#fff, #14171a); }}
{_style()}</style>
</head>
<body>
<main class="tfdiag">
{_body(report)}
</main>
</body>
</html>
"""


@cache
def _style() -> str:
    return files("tfdiag.render").joinpath("report.css").read_text(encoding="utf-8")


def to_fragment(report: ReportData) -> str:
    """Give the report as a part of a page, for a notebook."""
    return f'<div class="tfdiag">\n<style>\n{_style()}</style>\n{_body(report)}\n</div>\n'


def _body(report: ReportData) -> str:
    return "\n".join(_parts(view(report)))


def _text(text: str) -> str:
    return escape(text, quote=True)


def _parts(what: View) -> Iterator[str]:
    confidence = f'<span class="dim">{_text(what.confidence)}</span>'
    yield f'<p class="top"><span class="code">{_text(what.code)}</span>{confidence}</p>'
    yield f"<h1>{_text(what.headline)}</h1>"
    if what.needed:
        yield f"<p>To say more: {_text('; '.join(what.needed))}</p>"
    yield f'<p class="dim">{_text(what.job)}</p>'
    if what.step:
        yield from _step(what)
    if what.bounds:
        yield "<h2>What there is to gain</h2>"
        yield _rows(what.bounds)
    if what.stages:
        yield "<h2>The input, stage by stage</h2>"
        yield _rows(what.stages)
    if what.placement:
        yield "<h2>Where ops run</h2>"
        yield _rows(what.placement)
    yield "<h2>Findings</h2>"
    if what.no_problem:
        yield f"<p>{_text(what.no_problem)}</p>"
    yield from map(_problem, what.problems)
    if what.changes:
        yield "<h2>What to change, best first</h2>"
        yield from map(_change, what.changes)
    if what.withdrawn:
        yield "<h2>Tried and withdrawn</h2>"
        yield from map(_change, what.withdrawn)
    if what.unmeasured:
        yield "<h2>Not measured</h2>"
        yield _bullets(map(_text, what.unmeasured))
    if what.notes:
        yield "<h2>Notes</h2>"
        yield _bullets(map(_text, what.notes))
    yield "<h2>This diagnosis</h2>"
    cost = [Row("cost", what.cost), *([Row("of which", what.phases)] if what.phases else [])]
    yield _rows([*cost, Row("on", what.environment), LEGEND])


def _rows(rows: Iterable[Row]) -> str:
    items = "".join(f"<dt>{_text(row.name)}</dt><dd>{_text(row.text)}</dd>" for row in rows)
    return f"<dl>{items}</dl>"


def _bullets(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _step(what: View) -> Iterator[str]:
    yield "<h2>Where a step's time goes</h2>"
    yield f"<p><strong>{_text(what.step)} a step</strong></p>"
    yield f'<p class="dim">{_text(what.step_note)}</p>'
    # The table says the same in words, so the picture is not read out.
    strip = "".join(
        f'<i style="flex:{bar.fraction:.4f} 0 0;background:{_colour(bar)}"></i>'
        for bar in what.bars
        if bar.code and bar.fraction > 0
    )
    yield f'<div class="strip" aria-hidden="true">{strip}</div>'
    yield '<div class="scroll"><table><thead><tr><th scope="col">part</th>'
    yield '<th scope="col" class="num">time</th><th scope="col" class="num">share</th>'
    yield '<th scope="col" class="num wide">95 % interval</th></tr></thead><tbody>'
    yield from map(_bar, what.bars)
    yield "</tbody></table></div>"
    if what.once:
        once = ", ".join(f"{row.name} {row.text}" for row in what.once)
        yield f'<p class="dim">Once, at the start, not in the step: {_text(once)}</p>'


def _colour(bar: Bar) -> str:
    known = bar.code.isidentifier() and bar.code.isascii()
    return f"var(--{bar.code},var(--unexplained))" if known else "var(--unexplained)"


def _bar(bar: Bar) -> str:
    mark = f'<i style="background:{_colour(bar)}" aria-hidden="true"></i>' if bar.code else ""
    note = f'<br><span class="dim">{_text(bar.note)}</span>' if bar.note else ""
    cells = "".join(
        f'<td class="{kind}">{_text(text)}</td>'
        for kind, text in (("num", bar.time), ("num", bar.share), ("num wide", bar.interval))
    )
    row = "" if bar.code else ' class="part"'
    return f'<tr{row}><th scope="row">{mark}{_text(bar.name)}{note}</th>{cells}</tr>'


def _problem(problem: Problem) -> str:
    where = f" in <code>{_text(problem.where)}</code>" if problem.where else ""
    detail = f"<p>{_text(problem.detail)}</p>" if problem.detail else ""
    evidence = _rows(problem.evidence) if problem.evidence else ""
    return (
        f'<article class="{_text(problem.severity)}">'
        f'<div class="top"><h3>{_text(problem.title)}</h3><span>{_text(problem.cost)}</span></div>'
        f"<p><b>{_text(problem.severity)}</b>: <code>{_text(problem.check)}</code>{where}</p>"
        f"{detail}{evidence}</article>"
    )


def _change(change: Change) -> str:
    code = f'<pre tabindex="0"><code>{_diff(change.code)}</code></pre>' if change.code else ""
    return (
        f'<article><div class="top"><h3>{_text(change.text)}</h3>'
        f'<code class="dim">{_text(change.id)}</code></div>{_rows(change.facts)}{code}</article>'
    )


def _diff(code: str) -> str:
    tags = {"+": "ins", "-": "del"}
    lines = []
    for line in code.splitlines():
        tag = tags.get(line[:1])
        lines.append(f"<{tag}>{_text(line)}</{tag}>" if tag else _text(line))
    return "\n".join(lines)

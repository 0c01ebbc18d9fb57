"""The forms of a report that a person reads: golden files, and what no form may do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from io import StringIO

import pytest
from markdown_it import MarkdownIt

from tests.golden_files import assert_golden
from tests.sample_reports import NASTY, SAMPLES, empty, full, measurements, nasty, seconds, tried
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import HostItem, Step
from tfdiag.render.format import clean
from tfdiag.render.report import Report
from tfdiag.render.terminal import WIDTH, print_colour, to_text

FORMS: dict[str, Callable[[Report], str]] = {
    "txt": lambda report: f"{report}\n",
    "md": Report.to_markdown,
    "html": Report.to_html,
}
VOID = {"meta", "br"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_golden(name: str, form: str) -> None:
    """Each sample in each form looks as it did when a person last looked at it."""
    assert_golden(f"{name}.{form}", FORMS[form](SAMPLES[name]()))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_tells_the_same(form: str) -> None:
    """The numbers that matter are in every form: segments, costs, gains, gaps, overhead."""
    text = " ".join(FORMS[form](tried()).split())
    for words in (
        "98 % confidence",
        "48.3 ms",
        "32.1 ms",
        "unexplained",
        "66 % of the step",
        "31.1 ms (30.2 to 32.0 ms), threshold: above 4.80 ms",
        "2.71x as fast (2.60x to 2.82x), confirmed",
        "1.00x as fast (0.99x to 1.01x), refuted",
        "device timelines are not read yet",
        "first step 3.21 s",
        "the instrument adds 12.0 µs to a step",
        "TensorFlow 2.21.0",
    ):
        assert words in text, words


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_invisible_gets_through(name: str, form: str) -> None:
    """No control character, direction mark or lone surrogate reaches a screen or a file."""
    text = FORMS[form](SAMPLES[name]())
    assert all(character == "\n" or character.isprintable() for character in text)
    text.encode("utf-8")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["full", "empty", "tried"])
def test_nothing_reads_as_zero_that_is_not(name: str, form: str) -> None:
    """No time or share is rounded to nothing."""
    assert not re.search(r"\b0\.0+ (ns|µs|ms|s|%)", FORMS[form](SAMPLES[name]()))


# Terminal


@pytest.mark.parametrize("width", [60, 80, WIDTH])
@pytest.mark.parametrize("name", ["full", "empty", "tried"])
def test_lines_keep_to_the_width(name: str, width: int) -> None:
    """No line is wider than asked, but for code, which is there to be copied."""
    report = SAMPLES[name]()
    code = {f"       {line}" for each in report.suggestions for line in each.code.splitlines()}
    for line in to_text(report, width).splitlines():
        assert len(line) <= width or line in code, line
        assert line == line.rstrip()


def columns_of(text: str, unit: str) -> set[int]:
    """Give the columns at which a unit ends in the lines of the step."""
    start, end = text.index("Where a step"), text.index("What there is")
    lines = [line for line in text[start:end].splitlines() if " %" in line]
    return {line.index(unit) for line in lines if unit in line}


def test_shares_stand_in_one_column() -> None:
    """Segments and their parts are aligned, so that a column can be read down."""
    assert len(columns_of(str(full()), " %")) == 1


def test_bars_are_as_long_as_their_shares() -> None:
    """Twice the time is twice the bar."""
    step = full().step
    assert isinstance(step, Step)
    half = replace(step, mean_s=1.0, segments={"input_wait": seconds(0.5), "launch": seconds(0.25)})
    text = str(replace(full(), step=half))
    bars = {line.split()[0]: line.count("█") for line in text.splitlines() if "█" in line}
    assert bars["input"] == pytest.approx(2 * bars["launch"], abs=1)


def test_a_tiny_segment_has_a_bar() -> None:
    """What takes any time at all can be seen."""
    step = full().step
    assert isinstance(step, Step)
    text = str(replace(full(), step=replace(step, segments={"launch": seconds(1e-6)})))
    assert re.search(r"^  launch +▏ ", text, re.MULTILINE)


def test_zero_segments_are_left_out_but_unexplained_never() -> None:
    """A segment of zero is no news; an unexplained rest of zero is."""
    step = full().step
    assert isinstance(step, Step)
    none_left = {**step.segments, "unexplained": Quantity(0.0, "s")}
    text = str(replace(full(), step=replace(step, segments=none_left)))
    assert not re.search(r"^  compile ", text, re.MULTILINE)
    assert re.search(r"^  unexplained .* 0 s +0 %", text, re.MULTILINE)
    unknown = {**step.segments, "unexplained": Missing("no sum")}
    text = str(replace(full(), step=replace(step, segments=unknown)))
    assert re.search(r"^  unexplained +unknown$", text, re.MULTILINE)


def test_many_host_items_are_summed_up() -> None:
    """The longest parts are shown, the rest as one line with its sum."""
    step = full().step
    assert isinstance(step, Step)
    items = tuple(HostItem(f"callback C{i}", seconds(0.001 * (20 - i))) for i in range(20))
    text = str(replace(full(), step=replace(step, host_items=items)))
    assert "callback C7 " in text
    assert "callback C8 " not in text
    assert re.search(r"12 more +78\.0 ms", text)


def test_equal_reasons_share_a_line() -> None:
    """What is missing for one reason is listed once, with all its names."""
    text = to_text(empty(), 500)
    assert text.count("the budget of 5.00 s ran out in the first step") == 1
    assert "input alone: a one-shot generator can't be read twice" in text
    assert "- stages of the input, check sequential-map: the input is no tf.data pipeline" in text


def test_gaps_inside_what_was_measured_are_told() -> None:
    """A run whose waits, stages or graph are unknown says so, although the parts are there."""
    base = measurements()
    assert not isinstance(base.live, Missing)
    assert not isinstance(base.replay, Missing)
    assert not isinstance(base.pipeline, Missing)
    gaps = replace(
        base,
        job=replace(base.job, run_eagerly=True),
        live=replace(base.live, wait_missing="no gap times", cut="Ctrl-C"),
        replay=replace(base.replay, graph_missing="it can't be traced"),
        pipeline=replace(base.pipeline, missing="no proto"),
    )
    text = str(replace(full(), measurements=gaps))
    assert "- wait for input: no gap times" in text
    assert "- stages of the input: no proto" in text
    assert "- the step as a graph: it can't be traced" in text
    assert "- The run was cut short: Ctrl-C" in text


def test_no_findings_is_not_healthy_when_checks_could_not_run() -> None:
    """A report without findings says how many checks could not be decided."""
    assert "None, but 2 checks could not be decided" in str(empty())
    assert "None.\n" in str(replace(empty(), not_run=()))


class Terminal(StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_colour_adds_nothing_but_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal the same text is coloured; names that look like markup stay names."""
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "50"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    report = replace(full(), warnings=("[red]layer[/red]",))
    stream = Terminal()
    print_colour(report, stream)
    assert "\x1b[" in stream.getvalue()
    plain = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())
    assert [line.rstrip() for line in plain.splitlines()] == str(report).splitlines()


# HTML


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects them with the text."""

    def __init__(self, page: str) -> None:
        """Parse a page."""
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag."""
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the text."""
        self.text += data


@pytest.mark.parametrize("render", [Report.to_html, Report._repr_html_])
@pytest.mark.parametrize("name", SAMPLES)
def test_html_is_closed_and_harmless(name: str, render: Callable[[Report], str]) -> None:
    """The page is well-formed, and has no script, no handler, no link and nothing to fetch."""
    page = Page(render(SAMPLES[name]()))
    assert page.open == []
    assert not page.tags & {"script", "img", "iframe", "link", "a", "object", "form"}
    names = {name for name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on") or name in {"src", "href"}}
    assert not any(value and "url(" in value for _, value in page.attributes)


def test_html_shows_names_as_they_are() -> None:
    """A name that looks like markup is shown, not run."""
    assert '<script>alert("1")</script> **x** `y`' in Page(nasty().to_html()).text


def test_html_for_a_notebook_touches_nothing_else() -> None:
    """In a notebook every style applies to the report alone, and there is no second page."""
    page = full()._repr_html_()
    style = page[page.index("<style>") + 7 : page.index("</style>")]
    selectors = re.findall(r"([^{}]+)\{", re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL))
    for selector in ",".join(selectors).split(","):
        assert re.match(r"\s*(\.tfdiag\b|@media)", selector), selector
    assert not re.search(r"<(html|body|head)\b", page)


# Markdown


def test_markdown_tables_keep_their_columns() -> None:
    """A bar in a name does not add a column."""
    rows = [line for line in nasty().to_markdown().splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_markdown_fences_hold() -> None:
    """Code that contains a fence is fenced by a longer one."""
    lines = nasty().to_markdown().splitlines()
    opening = next(line for line in lines if line.strip().endswith("diff"))
    fence = opening.strip().removesuffix("diff")
    assert len(fence) == 4
    assert opening.replace("diff", "") in lines
    assert any(line.strip() == "-```" for line in lines)


def test_markdown_has_no_markup_of_others() -> None:
    """A parser finds no tag, link or emphasis that a name brought along, and shows the name."""
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(nasty().to_markdown())
    page = Page(rendered)
    assert not page.tags & {"script", "a", "em"}
    assert "<strong>x" not in rendered
    assert '| <script>alert("1")</script> **x** `y` [l](http://h)' in page.text
    assert page.text.count(clean(NASTY)) > 20


@pytest.mark.parametrize("start", ["- ", "1. ", "12) ", "# ", "+ ", "---", "===", "> ", "~~~", "*** "])
def test_markdown_blocks_start_only_where_they_should(start: str) -> None:
    """A detail that looks like a list, a heading or a rule is a paragraph."""
    report = full()
    finding = replace(report.findings[2], detail=f"{start}x")
    text = replace(report, findings=(finding,), suggestions=(), warnings=()).to_markdown()
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    assert f"<p>{escape(start)}x</p>" in rendered


@pytest.mark.parametrize("form", FORMS)
def test_a_change_that_two_checks_suggest_is_shown_once(form: str) -> None:
    """With the names of both, and the data keep both."""
    report = full()
    first = report.suggestions[0]
    twin = replace(first, id="small-batch/twin", check="small-batch")
    report = replace(report, suggestions=(*report.suggestions, twin))
    shown = FORMS[form](report)
    assert shown.count(escape("small-batch/twin")) == 1
    assert shown.count(first.risk[:30]) == FORMS[form](full()).count(first.risk[:30])
    assert Report.from_dict(report.to_dict()).suggestions[-1] == twin

"""Write docs/checks/ from the docstrings of the checks.

With `--check` nothing is written: the exit status says whether a page is out of date.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from tfdiag.checks.registry import Check, all_checks

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "checks"
SECTIONS = (
    "What it measures",
    "Why it matters",
    "How to fix it",
    "When to ignore it",
    "References",
)


def source(check: Check) -> str:
    """Name the file of a check, as seen from the root."""
    return f"tfdiag/checks/{check.topic}/{check.id.replace('-', '_')}.py"


def parts_of(check: Check) -> tuple[str, dict[str, str]]:
    """Split a docstring into its summary and its sections, these without their indentation."""
    summary, *rest = inspect.cleandoc(check.doc).splitlines()
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in rest:
        if line and not line.startswith(" "):
            lines = found[line] = []
        else:
            lines.append(line)
    if tuple(found) != SECTIONS:
        has, needs = ", ".join(found) or "none", ", ".join(SECTIONS)
        sys.exit(f"{source(check)}: its docstring has the sections {has}; it needs {needs}")
    texts = {name: textwrap.dedent("\n".join(lines)).strip() for name, lines in found.items()}
    for name, text in texts.items():
        if not text:
            sys.exit(f"{source(check)}: the section {name!r} of its docstring is empty")
    return summary, texts


def page(check: Check) -> str:
    """Write the page of one check."""
    summary, texts = parts_of(check)
    texts["When to ignore it"] += (
        f'\n\nTo silence it: `tfdiag.diagnose(model, dataset, ignore=("{check.id}",))`.'
    )
    texts["References"] = re.sub(r"^(https?://\S+)$", r"- <\1>", texts["References"], flags=re.MULTILINE)
    parts = [
        f"<!-- Written by tools/generate_docs.py from {source(check)}. -->",
        f"# {check.id}",
        f"{summary} [All checks](index.md#{check.topic}).",
        *(f"## {name}\n\n{text}" for name, text in texts.items()),
    ]
    return "\n\n".join(parts) + "\n"


def index(checks: Iterable[Check]) -> str:
    """Write the list of all checks, by topic."""
    topics: dict[str, list[Check]] = {}
    for check in checks:
        topics.setdefault(check.topic, []).append(check)
    parts = [
        "<!-- Written by tools/generate_docs.py from tfdiag/checks/. -->",
        "# Checks",
        "A check fires on what a problem costs, not on how the code looks.",
        "Its id is what a report names, what `ignore=` takes, and what `tfdiag explain ID` prints.",
    ]
    for topic in sorted(topics):
        rows = [
            f"| [{check.id}]({check.id}.md) | {check.title} |"
            for check in sorted(topics[topic], key=lambda check: check.id)
        ]
        parts += [f"## {topic}", "\n".join(["| id | problem |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the pages that differ, or say which do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail where stale")
    only_check = parser.parse_args().check

    checks = all_checks()
    pages = {PAGES / f"{check.id}.md": page(check) for check in checks}
    pages[PAGES / "index.md"] = index(checks)
    stale = [
        path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    orphans = sorted(set(PAGES.glob("*.md")) - set(pages))
    if only_check:
        if stale or orphans:
            names = ", ".join(str(path.relative_to(ROOT)) for path in (*stale, *orphans))
            sys.exit(f"out of date: {names}; run tools/generate_docs.py")
        return
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(pages[path], encoding="utf-8")
    for path in orphans:
        path.unlink()


if __name__ == "__main__":
    main()

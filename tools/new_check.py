"""Begin a new check: its file, with the docstring that becomes its page, and its test.

Both are made to fail until they have been filled in.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tfdiag.checks.registry import all_checks

ROOT = Path(__file__).resolve().parents[1]
TOPICS = (
    "compile",
    "compute",
    "device",
    "distributed",
    "environment",
    "host",
    "input",
    "launch",
    "placement",
    "transfer",
)

CHECK = '''\
"""{title}.

What it measures
    Which numbers, from where, and when it fires.
Why it matters
    What the step loses by it.
How to fix it
    The change in the caller's code.
When to ignore it
    When it is meant to be so.
References
    Where to read on.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.report import Evidence, Finding

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the problem costs a share of the step worth naming."""
    seconds = 0.0  # what the problem costs per step; `Undecided` where that can't be told
    cost = analysis.share(seconds)
    if cost < facts.COST_SHARE:
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title="what happens, in the words of the caller's job",
            severity=severity_of(cost),
            cost=facts.share(cost),
            evidence=(Evidence("share of the step", facts.share(cost)),),
        ),
    )


CHECK = Check("{id}", "{title}", "{topic}", __doc__, run)
'''

TEST = '''\
"""{title}.

Both sides of the threshold, and what happens without the numbers.
"""

from __future__ import annotations

import pytest

from tfdiag.checks.{topic}.{name} import CHECK


def test_fires_above_the_threshold():
    """Just above the threshold there is one finding, with its numbers."""
    pytest.fail(f"{{CHECK.id}}: write this test")


def test_is_silent_below_the_threshold():
    """Just below the threshold there is none."""
    pytest.fail(f"{{CHECK.id}}: write this test")


def test_is_undecided_without_its_numbers():
    """Where a number is missing the check says so; it does not pass."""
    pytest.fail(f"{{CHECK.id}}: write this test")
'''


def write(path: Path, text: str) -> None:
    """Write a new file and say so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path.relative_to(ROOT))


def main() -> None:
    """Write the files of a check whose id is free."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("topic", choices=TOPICS)
    parser.add_argument("id", help="names the problem, never the fix: slow-storage")
    parser.add_argument("title", help="one sentence: what goes wrong")
    given = parser.parse_args()

    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", given.id):
        sys.exit(f"{given.id!r} is not an id: lower case words with hyphens, like slow-storage")
    if given.id in {check.id for check in all_checks()}:
        sys.exit(f"there is a check {given.id} already")
    if re.search(r'["\\\n]', given.title):
        sys.exit("the title goes into the code as it is: no quotes, backslashes or line breaks")

    name = given.id.replace("-", "_")
    words = {**vars(given), "name": name, "title": given.title.rstrip(".")}
    checks, tests = ROOT / "tfdiag/checks", ROOT / "tests/unit/checks"
    packages = {
        checks / given.topic / "__init__.py": f'"""Checks on the topic {given.topic}."""\n',
        tests / "__init__.py": "",
        tests / given.topic / "__init__.py": "",
    }
    for path, text in packages.items():
        if not path.exists():
            write(path, text)
    write(checks / given.topic / f"{name}.py", CHECK.format(**words))
    write(tests / given.topic / f"test_{name}.py", TEST.format(**words))
    print("next: the docstring, the check, its tests; then tools/generate_docs.py")


if __name__ == "__main__":
    main()

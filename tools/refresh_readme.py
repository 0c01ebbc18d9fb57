"""Show in README.md the report that `make demo` has left in tfdiag-report.json.

With `--check` nothing is written: the exit status says whether README.md tells another story. No
two runs measure the same numbers, and a check near its threshold may or may not fire; the verdict, the
sections and the first finding must be the same. A report of a machine that was given to others meanwhile
tells their story, and is not compared.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import tfdiag
from tfdiag.analyse.host import host_facts
from tfdiag.checks.registry import all_checks
from tfdiag.model.quantity import Missing

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
REPORT = ROOT / "tfdiag-report.json"
MOST = 0.15
"""Of the cores may be away while the example is diagnosed, as in the tests (tests/own_machine.py)."""
BLOCK = re.compile(r"(?<=<!-- report: begin -->\n```text\n).*?(?=```\n<!-- report: end -->)", re.DOTALL)


def story(text: str) -> tuple[str, list[str], str]:
    """Keep what does not change from one run to the next."""
    verdict = text.split(maxsplit=1)[0]
    # Behind the lines of the verdict, which say as well what this run could not know.
    lines = text.partition("\n\n")[2].splitlines()
    sections = [line for line in lines if line and not line.startswith(" ")]
    findings = text.partition("\nFindings\n")[2]
    named = sorted((findings.find(check.id), check.id) for check in all_checks() if check.id in findings)
    return verdict, sections, named[0][1] if named else ""


def given_away(report: tfdiag.Report) -> float:
    """Give the share of the cores that the host of a virtual machine took meanwhile."""
    facts = host_facts(report.measurements)
    taken = facts if isinstance(facts, Missing) else facts.rate("stolen")
    return 0.0 if isinstance(taken, Missing) else taken.value / report.measurements.environment.cores


def main() -> None:
    """Replace the block between the markers, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail where stale")
    only_check = parser.parse_args().check

    if not REPORT.exists():
        sys.exit("there is no tfdiag-report.json: run `make demo` first")
    report = tfdiag.load(REPORT)
    shown = str(report).rstrip() + "\n"
    text = README.read_text(encoding="utf-8")
    found = BLOCK.search(text)
    if found is None:
        sys.exit("README.md has no block between `report: begin` and `report: end`")
    if not only_check:
        README.write_text(text[: found.start()] + shown + text[found.end() :], encoding="utf-8")
    elif (taken := given_away(report)) > MOST:
        print(f"not compared with README.md: others had {taken:.0%} of the cores")
    elif story(found.group()) != story(shown):
        sys.exit(f"README.md shows another report than this one; run `make readme`\n\n{shown}")


if __name__ == "__main__":
    main()

"""Write the newest results of the benchmarks into docs/benchmarks.md.

With `--check` nothing is written: the exit status says whether the page shows other numbers.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(?<=<!-- results: begin -->\n).*?(?=<!-- results: end -->)", re.DOTALL)


def row(name: str, run: dict[str, Any], goal: dict[str, Any]) -> str:
    """Write one promise."""
    unit = f" {goal['unit']}" if goal["unit"] else ""
    spread = f" ({goal['low']:.4g} to {goal['high']:.4g})" if goal["low"] is not None else ""
    limit = f"{'at least' if goal['above'] else 'at most'} {goal['limit']:.4g}{unit}"
    kept = "yes" if goal["met"] else "**no**"
    date = run["date"][:10]
    command = run.get("command", f"python -m benchmarks.{name}")
    return f"| {goal['name']} | {limit} | {goal['value']:.4g}{unit}{spread} | {kept} | {date} | `{command}` |"


def table() -> str:
    """Write all promises, from the last run of each benchmark."""
    lines = ["| what | goal | value | kept | date | command |", "|---|---|---|---|---|---|"]
    machines = set()
    for path in sorted(RESULTS.glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))[-1]
        machine, versions = run["machine"], run["versions"]
        machines.add(
            f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, "
            + ", ".join(f"{package} {version}" for package, version in versions.items())
        )
        lines += [row(path.stem, run, goal) for goal in run["goals"]]
    return "\n".join([*lines, "", *sorted(f"Measured on: {machine}." for machine in machines), ""])


def main() -> None:
    """Replace the block between the markers, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail where stale")
    only_check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    found = BLOCK.search(text)
    if found is None:
        sys.exit("docs/benchmarks.md has no block between `results: begin` and `results: end`")
    if not only_check:
        PAGE.write_text(text[: found.start()] + table() + text[found.end() :], encoding="utf-8")
    elif found.group() != table():
        sys.exit(
            "docs/benchmarks.md shows other numbers than benchmarks/results: python tools/benchmark_table.py"
        )


if __name__ == "__main__":
    main()

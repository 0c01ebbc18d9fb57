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
GAINS = "input_gains"
TRIALS = "trials"


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


def _last(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))[-1]
    return found


def _gain(value: float, low: float | None, high: float | None) -> str:
    ends = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    return f"{value:.2f}{ends}"


def gains() -> str:
    """Write each suggestion of the input suite: predicted, tried, and what the rewritten job gave."""
    run = _last(GAINS)
    machine = run["machine"]
    tried = {
        (job["job"], pair["suggestion"]): _gain(pair["measured"], pair["low"], pair["high"])
        for job in _last(TRIALS)["figures"]
        for pair in job["pairs"]
    }
    lines = [
        f"{run['date'][:10]}, {machine['processor']}, {machine['cores']} cores, `{run['command']}`.",
        "",
        "| job | change | predicted | confirmed in a trial | the rewritten job | step, predicted wrong by |",
        "|---|---|---|---|---|---|",
    ]
    for one in run["figures"]:
        if "realised" not in one:
            continue
        cells = (
            one["job"],
            one["suggestion"],
            _gain(one["predicted"], one["low"], one["high"]),
            tried.get((one["job"], one["suggestion"]), ""),
            _gain(one["realised"], one["least"], one["most"]),
            f"{one['error']:+.0%}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


BLOCKS = {"results": table, "gains": gains}


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {name}: begin -->\n).*?(?=<!-- {name}: end -->)", re.DOTALL)


def main() -> None:
    """Replace the blocks between the markers, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail where stale")
    only_check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    for name, made in BLOCKS.items():
        found = _block(name).search(text)
        if found is None:
            sys.exit(f"docs/benchmarks.md has no block between `{name}: begin` and `{name}: end`")
        if only_check and found.group() != made():
            sys.exit(
                "docs/benchmarks.md shows other numbers than benchmarks/results: "
                "python tools/benchmark_table.py"
            )
        text = text[: found.start()] + made() + text[found.end() :]
    if not only_check:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

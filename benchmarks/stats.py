"""Statistics of the benchmarks, and the file that their results go to."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
RESAMPLES = 2000
ROUNDS_LEAST = 3
ROUNDS_MOST = 9
ROUNDS_ERROR = 0.02
"""The standard error of a known number, as a share of it: a fifth of what a diagnosis may be off."""


@dataclass(frozen=True)
class Goal:
    """A number that is promised, and what it came to."""

    name: str
    value: float
    limit: float
    above: bool = False
    """True when the value must not be below the limit, false when it must not be above."""
    unit: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def met(self) -> bool:
        """Tell whether the promise holds."""
        return self.value >= self.limit if self.above else self.value <= self.limit

    def __str__(self) -> str:
        """Give one line: the promise, the value, whether it holds."""
        relation = "at least" if self.above else "at most"
        interval = "" if self.low is None else f"  [{self.low:.4g}, {self.high:.4g}]"
        verdict = "pass" if self.met else "FAIL"
        return (
            f"{verdict}  {self.name}: {self.value:.4g} {self.unit}{interval}"
            f"  (goal: {relation} {self.limit:g} {self.unit})"
        )


def standard_error(rounds: Sequence[float]) -> float:
    """Give how well the mean of some rounds is known."""
    return statistics.stdev(rounds) / len(rounds) ** 0.5 if len(rounds) > 1 else float("inf")


def well_known(rounds: Sequence[float]) -> bool:
    """Say whether rounds agree well enough to hold something against them, or are many."""
    if len(rounds) < ROUNDS_LEAST:
        return False
    close = standard_error(rounds) <= ROUNDS_ERROR * abs(statistics.median(rounds))
    return close or len(rounds) >= ROUNDS_MOST


def bootstrap(
    samples: Sequence[float],
    statistic: Callable[[Sequence[float]], float] = statistics.median,
    *,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Give a statistic with its 95 % interval."""
    generator = random.Random(seed)
    drawn = sorted(statistic(generator.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    return (
        statistic(samples),
        drawn[int(0.025 * RESAMPLES)],
        drawn[int(0.975 * RESAMPLES)],
    )


def machine() -> dict[str, Any]:
    """Say what the figures were measured on, without naming anybody's machine."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def versions() -> dict[str, str]:
    """Say which versions were measured."""
    found = {"python": platform.python_version()}
    for name in ("tfdiag", "tensorflow", "tensorflow_cpu", "keras", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def report(name: str, goals: Sequence[Goal], figures: Any = None) -> None:
    """Print the goals, append them with the figures to the results, and exit by them."""
    sys.exit(not kept(name, goals, figures))


def with_earlier(name: str, rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Add the rows of the last run for what was not run now, each with the date that it is from.

    For jobs that were changed, or spoiled by something else on the machine; never for what came out badly.
    """
    path = RESULTS / f"{name}.json"
    kept_before = json.loads(path.read_text())[-1] if path.exists() else {"date": "", "figures": []}
    again = {row[key] for row in rows}
    earlier = [
        {"from": kept_before["date"], **row} for row in kept_before["figures"] if row[key] not in again
    ]
    return [*earlier, *rows]


def command() -> str:
    """Give the command that this process was started with; files and folders by their last name alone."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    name = f"-m {module.name}" if module is not None else Path(sys.argv[0]).name
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return " ".join(["python", name, *words])


def kept(name: str, goals: Sequence[Goal], figures: Any = None) -> bool:
    """Print the goals, append them with the figures to the results, and say whether they were met."""
    for goal in goals:
        print(goal)
    entry = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command(),
        "machine": machine(),
        "versions": versions(),
        "goals": [{**asdict(goal), "met": goal.met} for goal in goals],
        "figures": figures,
    }
    path = RESULTS / f"{name}.json"
    RESULTS.mkdir(exist_ok=True)
    before = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*before, entry], indent=1) + "\n")
    return all(goal.met for goal in goals)

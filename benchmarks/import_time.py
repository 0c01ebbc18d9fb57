"""Time `import tfdiag`, over `import sys` and as a ratio to `import numpy`.

    python -m benchmarks.import_time [--rounds N]

Each round starts a process for each import, one after the other, so that noise falls on all alike.
The milliseconds are those of the wall clock; the ratio is one of processor times, which other
processes disturb less.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.stats import Goal, bootstrap, report

LIMIT_MS = 60.0
LIMIT_RATIO = 1.0
STATEMENTS = ("import sys", "import numpy", "import tfdiag")


def cost_ms(statement: str) -> tuple[float, float]:
    """Give wall and processor time of a process that runs one statement."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, cwd=Path(__file__).parents[1])
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1000, spent * 1000


def main() -> None:
    """Measure, round by round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    chosen = parser.parse_args()

    for statement in STATEMENTS:
        cost_ms(statement)  # compiles what is not compiled yet
    rounds = [[cost_ms(statement) for statement in STATEMENTS] for _ in range(chosen.rounds)]
    over_sys = [ours[0] - nothing[0] for nothing, _, ours in rounds]
    ratios = [(ours[1] - nothing[1]) / (numpy[1] - nothing[1]) for nothing, numpy, ours in rounds]
    ms, ms_low, ms_high = bootstrap(over_sys)
    ratio, low, high = bootstrap(ratios)
    goals = [
        Goal("import tfdiag over import sys", ms, LIMIT_MS, unit="ms", low=ms_low, high=ms_high),
        Goal("import tfdiag over import numpy", ratio, LIMIT_RATIO, low=low, high=high),
    ]
    report("import_time", goals, {"statements": STATEMENTS, "wall_and_processor_ms": rounds})


if __name__ == "__main__":
    main()

"""How long does a trace take to analyse, against XProf's overview of the same file, and how does it grow?

    python -m benchmarks.trace_speed --xprof PYTHON_WITH_XPROF [--rounds N] [--traces FOLDER]

A Keras `fit` on the CPU is captured under `tf.profiler` until there are about 1, 2 and 5 million events. The
first file is analysed by `tfdiag.analyze_trace` and by XProf's `overview_page` in turns, each in a process of
its own with a copy of its own, as XProf keeps what it found beside the file; the larger ones by tfdiag.
Imports are not counted in the time, and all of the process is in the memory. XProf is no dependency of this
project:

    python -m venv xprof-venv; xprof-venv/bin/pip install xprof
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.stats import Goal, bootstrap, report

MILLIONS = (1, 2, 5)
RATIO = 0.2
MEMORY = 6.0
GROWTH = 1.25
"""Of the time for one event, from the smallest trace to the largest: noise, and caches that get too small."""
TIMEOUT_S = 900.0

CAPTURE = """
import sys, time
from pathlib import Path
import keras, numpy as np, tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

folder, wanted = Path(sys.argv[1]), float(sys.argv[2])
layers = [keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.BatchNormalization(),
          keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(32, "relu"),
          keras.layers.Dropout(0.2), keras.layers.Dense(10)]
model = keras.Sequential([keras.Input((16, 16, 3)), *layers])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
rng = np.random.default_rng(0)
x, y = rng.random((256, 16, 16, 3), "float32"), rng.integers(0, 10, 256)
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
data = data.map(lambda x, y: (x * 2 - 1, y)).batch(8).prefetch(2)

def capture(steps):
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
    tf.profiler.experimental.start(str(folder), options=options)
    model.fit(data, steps_per_epoch=steps, epochs=1, verbose=0)
    tf.profiler.experimental.stop()
    path, = folder.rglob("*.xplane.pb")
    return path

def count(path):
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    return sum(len(line.events) for plane in space.planes for line in plane.lines)

model.fit(data, steps_per_epoch=20, epochs=1, verbose=0)
steps = 200
path = capture(steps)
steps = int(steps * wanted / count(path))
path.unlink()
path = capture(steps)
print(path, count(path), steps)
"""
MEASURE = """
import json, resource, sys, time
{imports}
begin, cpu = time.perf_counter(), time.process_time()
{analyse}
took, cpu = time.perf_counter() - begin, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print("\\n" + json.dumps({{"took_s": took, "cpu_s": cpu, "peak_bytes": peak, "said": said}}))
"""
OURS = MEASURE.format(
    imports="import tfdiag; tfdiag.analyze_trace",
    analyse="""
found = tfdiag.analyze_trace(sys.argv[1])
said = {"verdict": found.verdict.code, "events": sum(found.measurements.device.events.values())}
""",
)
XPROF = MEASURE.format(
    imports="from xprof.convert import raw_to_tool_data",
    analyse="""
data, kind = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "overview_page", {})
said = {"bytes": len(data or b"")}
""",
)


def capture(folder: Path, millions: int) -> tuple[Path, int]:
    """Capture a trace of so many events, and count them."""
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "events.json"
    if not told.exists():
        done = subprocess.run(
            [sys.executable, "-c", CAPTURE, str(folder), str(millions * 1e6)],
            check=True, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        path, events, _ = done.stdout.strip().splitlines()[-1].rsplit(" ", 2)
        told.write_text(json.dumps({"path": str(Path(path).relative_to(folder)), "events": int(events)}))
    found = json.loads(told.read_text())
    return folder / found["path"], found["events"]


def analyse(python: str, script: str, trace: Path) -> dict[str, Any]:
    """Analyse a copy of a trace in a process of its own."""
    with tempfile.TemporaryDirectory(dir=trace.parent) as folder:
        copy = Path(folder) / trace.name
        shutil.copy(trace, copy)
        done = subprocess.run(
            [python, "-c", script, str(copy)], check=True, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def xprof_of(python: str) -> str:
    """Give the version of XProf that an interpreter finds; an empty text where there is none."""
    test = "from xprof.convert import raw_to_tool_data; from importlib.metadata import version"
    show = "print(version('xprof'))"
    try:
        done = subprocess.run([python, "-c", f"{test}; {show}"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def main() -> None:
    """Capture, analyse, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--xprof", default=sys.executable, help="a Python interpreter that has xprof")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--traces", type=Path, help="keep traces here, and use those that are there")
    parser.add_argument("--millions", type=int, nargs="+", default=MILLIONS, help="of events, in order")
    chosen = parser.parse_args()
    version = xprof_of(chosen.xprof)
    if not version:
        sys.exit(
            f"{chosen.xprof} has no XProf: python -m venv xprof-venv; xprof-venv/bin/pip install xprof; then "
            "python -m benchmarks.trace_speed --xprof xprof-venv/bin/python"
        )

    with tempfile.TemporaryDirectory() as temporary:
        folder = (chosen.traces or Path(temporary)).resolve()
        traces = {millions: capture(folder / f"{millions}", millions) for millions in chosen.millions}
        pairs = []
        path, events = traces[chosen.millions[0]]
        for _ in range(chosen.rounds):
            pairs.append((analyse(sys.executable, OURS, path), analyse(chosen.xprof, XPROF, path)))
            ours, theirs = pairs[-1]
            times = f"tfdiag {ours['took_s']:.2f} s, XProf {theirs['took_s']:.2f} s"
            print(f"{events:,} events: {times}", flush=True)
        sizes: dict[int, dict[str, Any]] = {}
        for millions, (path, events) in traces.items():
            runs = [analyse(sys.executable, OURS, path) for _ in range(chosen.rounds)]
            sizes[millions] = {
                "events": events,
                "bytes": path.stat().st_size,
                "counted": runs[0]["said"]["events"],
                "took_s": [run["took_s"] for run in runs],
                "per_event_s": min(run["took_s"] for run in runs) / events,
                "memory": max(run["peak_bytes"] for run in runs) / path.stat().st_size,
                "verdict": runs[0]["said"]["verdict"],
            }
            print(millions, sizes[millions], flush=True)
    ratio, low, high = bootstrap([ours["took_s"] / theirs["took_s"] for ours, theirs in pairs])
    each = [size["per_event_s"] for size in sizes.values()]
    goals = [
        Goal("time for a trace of 1 million events over XProf's overview", ratio, RATIO, low=low, high=high),
        Goal("time for an event of the largest trace over one of the smallest", each[-1] / each[0], GROWTH),
        Goal("peak memory over the size of the file", max(s["memory"] for s in sizes.values()), MEMORY),
        Goal(
            "events of the traces that are not accounted for",
            sum(abs(size["counted"] - size["events"]) for size in sizes.values()), 0,
        ),
    ]  # fmt: skip
    figures = {
        "sizes": sizes,
        "tfdiag_s": [ours["took_s"] for ours, _ in pairs],
        "xprof": version,
        "xprof_s": [theirs["took_s"] for _, theirs in pairs],
        "xprof_cpu_s": statistics.median(theirs["cpu_s"] for _, theirs in pairs),
    }
    report("trace_speed", goals, figures)


if __name__ == "__main__":
    main()

"""Measure what a diagnosis holds of the caller's data beyond what a plain `fit` of the same job holds.

    python -m benchmarks.memory [--only PART_OF_A_NAME] [--budget SECONDS]

Each job is trained with `fit` in one process, for as long as a diagnosis watches a job at most, and is
diagnosed in another one, as Keras keeps batches of a `fit` that is over. In both, large blocks go back to
the system as soon as they are free. What is compared is the kernel's peak of the resident memory (VmHWM,
set back before each phase), so that nothing short is missed: the peak of each phase of the diagnosis over the
peak of `fit`. This counts more than the data: all that a diagnosis needs memory for. Where Python makes
the batches, the bytes of those alive are counted too, from when they are made until they are gone.

The source that can be read once notes each batch that is taken from it, and begins again when somebody asks
for a second iterator: what it gives twice was read twice.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.stats import Goal, report

MIB = 1 << 20
LEAST_BYTES = 64 * MIB
GIVING_BACK = {
    "MALLOC_MMAP_THRESHOLD_": str(256 << 10),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 10),
    "TF_ENABLE_ONEDNN_OPTS": "0",  # or TensorFlow keeps what is freed in a pool of its own
}
TIMEOUT_S = 300.0
STEPS_AT_MOST = 1_000_000
WARMUP_S = 1.0
WATCHED = 0.5
"""Of the budget: as long as a diagnosis watches a job that can be trained as it is."""
LATE_S = 1.0
"""After a diagnosis: time in which nothing more may be taken from its source."""


class Alive:
    """Bytes of the arrays that were made and are not collected yet."""

    def __init__(self) -> None:
        """Count from nothing."""
        self._lock = threading.RLock()
        self.now = self.peak = 0

    def made(self, array: Any) -> Any:
        """Count an array."""
        weakref.finalize(array, self._add, -array.nbytes)
        self._add(array.nbytes)
        return array

    def reset(self) -> None:
        """Forget the peak."""
        self.peak = self.now

    def _add(self, size: int) -> None:
        with self._lock:
            self.now += size
            self.peak = max(self.peak, self.now)


class Once:
    """A source for one reading, which would show a second one."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        """Keep what makes a batch."""
        self._make = make
        self._next = 0
        self.taken: Counter[int] = Counter()

    def __iter__(self) -> Once:
        """Begin again."""
        self._next = 0
        return self

    def __next__(self) -> Any:
        """Give the next batch."""
        number = self._next
        self._next += 1
        self.taken[number] += 1
        return self._make(number)


@dataclass
class Made:
    """A job, ready for `fit` and for `diagnose`."""

    model: Any
    data: Any
    batch_bytes: int
    alive: Alive | None = None
    epoch: int | None = STEPS_AT_MOST
    """Steps; None where the data knows."""


def averaging(*shape: int) -> Any:
    """Give a model that makes nothing as large as its input."""
    import keras

    model = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.build((None, *shape))
    return model


def labelled(make: Callable[[Any], Any], rows: int) -> Callable[[Any], Any]:
    """Add labels to what is made of a number."""
    import tensorflow as tf

    return lambda number: (make(number), tf.zeros((rows, 1)))


def unprefetched(data: Any) -> Any:
    """Let tf.data add no prefetch, whose buffer would be tuned to another size in each run."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options)


def images(side: int = 500) -> Made:
    """Give batches of eight images that a map makes, with nothing prefetched: 24 MB with sides of 500."""
    import tensorflow as tf

    shape = (8, side, side, 3)
    data = tf.data.Dataset.range(1 << 40).map(labelled(lambda _: tf.random.uniform(shape), 8))
    return Made(averaging(*shape[1:]), unprefetched(data), 4 * 8 * side * side * 3)


def large_elements(*, cached: bool = False) -> Made:
    """Give batches of four elements of 4 MB, made by a map that takes whole batches as well."""
    import tensorflow as tf

    plane = tf.constant(1.0, shape=(1000, 1000, 1))

    def paint(number: Any) -> tuple[Any, Any]:
        value = tf.cast(number % 256, tf.float32)
        return tf.sin(plane + value[..., None, None, None]), value[..., None]

    data = tf.data.Dataset.range(20 if cached else 1 << 40).map(paint)
    if cached:
        data = data.cache().repeat()
    return Made(averaging(1000, 1000, 1), unprefetched(data.batch(4, drop_remainder=True)), 16_000_000)


def rows() -> Made:
    """Give many small rows, shuffled."""
    import tensorflow as tf

    def row(number: Any) -> tuple[Any, Any]:
        value = tf.cast(number % 256, tf.float32)
        return tf.fill((4, 4, 1), value), value[None]

    data = tf.data.Dataset.range(1 << 40).map(row).shuffle(10_000).batch(256, drop_remainder=True)
    return Made(averaging(4, 4, 1), unprefetched(data), 256 * 64)


def numpy_batch(alive: Alive, number: int) -> tuple[Any, Any]:
    """Make 16 MB."""
    import numpy as np

    return alive.made(np.full((4, 1000, 1000, 1), number % 256, np.float32)), np.zeros((4, 1), np.float32)


def py_dataset(**workers: Any) -> Made:
    """Give a PyDataset with batches of 16 MB."""
    import keras

    alive = Alive()

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> Any:
            return numpy_batch(alive, index)

    return Made(averaging(1000, 1000, 1), Batches(**workers), 16_000_000, alive, None)


def once() -> Made:
    """Give batches of 16 MB that can be read once."""
    alive = Alive()
    source = Once(lambda number: numpy_batch(alive, number))
    return Made(averaging(1000, 1000, 1), source, 16_000_000, alive)


JOBS: dict[str, Callable[[], Made]] = {
    "batches of 24 MB": images,
    "batches of 48 MB": lambda: images(707),
    "elements of 4 MB": large_elements,
    "cached elements of 4 MB": lambda: large_elements(cached=True),
    "small rows": rows,
    "PyDataset": py_dataset,
    "PyDataset with workers": lambda: py_dataset(workers=2, max_queue_size=4),
    "one-shot source": once,
}


# In the process of one job -------------------------------------------------------------------


class Peaks:
    """The most memory that was resident, phase by phase."""

    def __init__(self, alive: Alive | None) -> None:
        """Begin with a phase that has no name."""
        self.bytes: dict[str, int] = {}
        self.alive: dict[str, int] = {}
        self._counted = alive
        self._phase = ""
        self._begin("")

    def next(self, phase: str) -> None:
        """Close a phase and begin another one."""
        self.close()
        self._begin(phase)

    def close(self) -> None:
        """Take down the peak of the phase."""
        self.bytes[self._phase] = max(_status("VmHWM"), self.bytes.get(self._phase, 0))
        if self._counted is not None:
            self.alive[self._phase] = max(self._counted.peak, self.alive.get(self._phase, 0))

    def _begin(self, phase: str) -> None:
        self._phase = phase
        if self._counted is not None:
            self._counted.reset()
        Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def forget() -> None:
    """Give back what nobody holds."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def plain_fit(make: Callable[[], Made], seconds: float) -> Peaks:
    """Train without a diagnosis."""
    import keras

    made = make()
    end = time.perf_counter() + seconds

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = time.perf_counter() >= end

    data = made.data

    def batches() -> Iterator[Any]:
        yield from made.data

    if isinstance(data, Once):
        data = batches()
    peaks = Peaks(made.alive)
    made.model.fit(data, steps_per_epoch=made.epoch, callbacks=[Stop()], verbose=0)
    peaks.close()
    return peaks


def fitted(name: str, budget: float) -> dict[str, Any]:
    """Train, and give the peaks."""
    plain = plain_fit(JOBS[name], WATCHED * budget)
    return {"fit_bytes": plain.bytes[""], "fit_alive_bytes": plain.alive.get("", 0)}


def diagnosed(name: str, budget: float) -> dict[str, Any]:
    """Diagnose, and give the peaks of each phase."""
    import tfdiag

    made = JOBS[name]()
    peaks = Peaks(made.alive)
    found = tfdiag.diagnose(made.model, made.data, budget=budget, progress=peaks.next)
    peaks.close()
    result: dict[str, Any] = {
        "name": name,
        "batch_bytes": made.batch_bytes,
        "bound_bytes": max(LEAST_BYTES, 2 * made.batch_bytes),
        "phases_bytes": peaks.bytes,
        "verdict": found.verdict.code,
    }
    if made.alive is not None:
        result["phases_alive_bytes"] = peaks.alive
    if isinstance(made.data, Once):
        told = found.to_dict()["measurements"]["job"]["batches_used"]
        time.sleep(LATE_S)
        taken = made.data.taken
        result |= {
            "taken": taken.total(),
            "told": told,
            "taken_twice": sum(count - 1 for count in taken.values()),
        }
    return result


RUNS: dict[str, Callable[[str, float], dict[str, Any]]] = {"fit": fitted, "diagnose": diagnosed}


def run_job(name: str, run: str, budget: float) -> dict[str, Any]:
    """Train for a moment, which imports and starts threads, then train on or diagnose."""
    plain_fit(JOBS[name], WARMUP_S)
    forget()
    return RUNS[run](name, budget)


# In the process that compares them -----------------------------------------------------------


def in_process(name: str, run: str, budget: float) -> dict[str, Any]:
    """Do one run of a job in a new process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.memory",
        "--job",
        name,
        "--run",
        run,
        "--budget",
        str(budget),
    ]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S,
        cwd=Path(__file__).parents[1], env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **GIVING_BACK},
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compared(name: str, budget: float) -> dict[str, Any]:
    """Give what a diagnosis of a job holds beyond a plain fit."""
    row = in_process(name, "diagnose", budget) | in_process(name, "fit", budget)
    row["held_bytes"] = max(row["phases_bytes"].values()) - row["fit_bytes"]
    if "phases_alive_bytes" in row:
        row["held_alive_bytes"] = max(row["phases_alive_bytes"].values()) - row["fit_alive_bytes"]
    return row


def told_of(row: dict[str, Any]) -> str:
    """Give a line for each phase of a job."""
    held, fit, bound = (row[name] / MIB for name in ("held_bytes", "fit_bytes", "bound_bytes"))
    lines = [f"{row['name']:<24} {held:7.1f} MiB beyond fit's {fit:.0f}   of {bound:.0f}   {row['verdict']}"]
    for phase, peak in row["phases_bytes"].items():
        line = f"    {phase or 'facts and snapshot':<36} {(peak - row['fit_bytes']) / MIB:+7.1f} MiB"
        if "phases_alive_bytes" in row:
            alive = row["phases_alive_bytes"][phase] - row["fit_alive_bytes"]
            line += f"   arrays alive {alive / MIB:+7.1f} MiB"
        lines.append(line)
    if "taken" in row:
        lines.append(f"    taken {row['taken']}, told {row['told']}, twice {row['taken_twice']}")
    return "\n".join(lines)


def goals_of(rows: list[dict[str, Any]]) -> list[Goal]:
    """Compare the worst of the jobs with what is promised."""
    beyond = "beyond fit, over the larger of 64 MiB and two batches"
    goals = [Goal(f"memory {beyond}", max(row["held_bytes"] / row["bound_bytes"] for row in rows), 1.0)]
    arrays = [row["held_alive_bytes"] / row["bound_bytes"] for row in rows if "held_alive_bytes" in row]
    if arrays:
        goals.append(Goal(f"Python's batches alive {beyond}", max(arrays), 1.0))
    for row in rows:
        if "taken" in row:
            untold = abs(row["taken"] - row["told"])
            goals += [
                Goal("batches taken from a one-shot source and not told of", untold, 0.0),
                Goal("batches read twice from a one-shot source", row["taken_twice"], 0.0),
            ]
    return goals


def main() -> None:
    """Run all jobs, or some."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=float, default=15.0)
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()

    if chosen.job:
        print(json.dumps(run_job(chosen.job, chosen.run, chosen.budget)), flush=True)
        forget()  # an iterator that asks Python for a batch while the interpreter ends waits for ever
        return
    found = []
    for name in JOBS:
        if chosen.only in name:
            found.append(compared(name, chosen.budget))
            print(told_of(found[-1]), flush=True)
    if not found:
        parser.error(f"no job is named {chosen.only!r}")
    report("memory", goals_of(found), found)


if __name__ == "__main__":
    main()

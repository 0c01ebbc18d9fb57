"""Does the replay at several sizes tell what the job's own step takes with 2 and 4 times the batch?

    python -m benchmarks.batch_scaling [--budget SECONDS] [--rounds N] [--only PART_OF_A_NAME]

Each model is diagnosed with its own batch. Before and after that it is trained with once, twice and four
times the batch, by turns. How much longer a step takes with a larger batch, as the median of the rounds, is
held against what the diagnosis says of it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdiag
from benchmarks.quiet import MACHINE
from benchmarks.stats import Goal, report
from benchmarks.step_jobs.compute import arrays, conv_net, dense_net
from tfdiag.analyse.analysis import analyse
from tfdiag.analyse.scaling import BatchScaling
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.remedies.bigger_batch import step_with

layers = keras.layers
WITHIN = 0.15
FACTORS = (1, 2, 4)
SECONDS = 0.6
"""Of each size in each round."""
WARM = 5


@dataclass(frozen=True)
class Plan:
    """A model with a batch of so many rows."""

    name: str
    rows: int
    model: Callable[[], Any]
    batch: Callable[[int], tuple[np.ndarray, np.ndarray]]
    compile_args: tuple[tuple[str, Any], ...] = ()
    any_size: bool = False
    """The dataset does not know how many rows its batches have, as without drop_remainder."""


def tokens(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Give sentences as numbers."""
    generator = np.random.default_rng(0)
    return generator.integers(0, 5000, (rows, 24)), generator.standard_normal((rows, 1)).astype("float32")


def embedded() -> Any:
    """Give an embedding with some layers on top."""
    return keras.Sequential(
        [
            keras.Input((24,), dtype="int32"),
            layers.Embedding(5000, 48),
            layers.GlobalAveragePooling1D(),
            layers.Dense(128, activation="relu"),
            layers.Dense(1),
        ]
    )


def recurrent() -> Any:
    """Give a loop over time."""
    return keras.Sequential([keras.Input((12, 16)), layers.LSTM(32), layers.Dense(1)])


def attention() -> Any:
    """Give a block of attention."""
    inputs = keras.Input((16, 64))
    x = layers.LayerNormalization()(inputs + layers.MultiHeadAttention(4, 16)(inputs, inputs))
    x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(256, activation="gelu")(x)))
    return keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))


def separable() -> Any:
    """Give convolutions of single channels, with normalisation."""
    hidden: list[Any] = [layers.Conv2D(16, 3, padding="same")]
    for _ in range(3):
        hidden += [layers.SeparableConv2D(24, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
    end = [layers.GlobalAveragePooling2D(), layers.Dense(1)]
    return keras.Sequential([keras.Input((24, 24, 3)), *hidden, *end])


def deep() -> Any:
    """Give many small layers."""
    hidden = [layers.Dense(48, activation="tanh") for _ in range(20)]
    return keras.Sequential([keras.Input((48,)), *hidden, layers.Dense(1)])


def autoencoder() -> Any:
    """Give a funnel and its mirror image, ending in one number."""
    widths = (256, 64, 16, 64, 256)
    hidden = [layers.Dense(width, activation="relu") for width in widths]
    return keras.Sequential([keras.Input((512,)), *hidden, layers.Dropout(0.2), layers.Dense(1)])


def plans() -> list[Plan]:
    """Give all models."""
    adam = (("optimizer", "adam"),)
    return [
        Plan("tiny dense", 8, lambda: dense_net(8, 1, 4), lambda n: arrays(n, 4)),
        Plan("tiny dense, any size", 8, lambda: dense_net(8, 1, 4), lambda n: arrays(n, 4), any_size=True),
        Plan(
            "tiny dense, 4 steps a call", 8, lambda: dense_net(8, 1, 4), lambda n: arrays(n, 4),
            (("steps_per_execution", 4),),
        ),
        Plan("dense 256", 32, lambda: dense_net(256, 3, 256), lambda n: arrays(n, 256), adam),
        Plan("dense 1024, few rows", 8, lambda: dense_net(1024, 3, 1024), lambda n: arrays(n, 1024)),
        Plan("dense 512, many rows", 128, lambda: dense_net(512, 3, 512), lambda n: arrays(n, 512)),
        Plan("20 small layers", 16, deep, lambda n: arrays(n, 48), adam),
        Plan("autoencoder", 64, autoencoder, lambda n: arrays(n, 512), adam, any_size=True),
        Plan("small convolutions", 8, lambda: conv_net(16, 3, 16), lambda n: arrays(n, 16, 16, 3)),
        Plan("large convolutions", 16, lambda: conv_net(32, 3, 32), lambda n: arrays(n, 32, 32, 3)),
        Plan("separable convolutions", 8, separable, lambda n: arrays(n, 24, 24, 3), adam),
        Plan("LSTM", 16, recurrent, lambda n: arrays(n, 12, 16), adam),
        Plan("embedding", 64, embedded, tokens, adam, any_size=True),
        Plan("attention", 8, attention, lambda n: arrays(n, 16, 64), adam),
    ]  # fmt: skip


def dataset_of(plan: Plan, factor: int) -> Any:
    """Give batches for ever, from memory."""
    data = tf.data.Dataset.from_tensors(plan.batch(plan.rows * factor)).repeat()
    if not plan.any_size:
        return data
    spec = tf.nest.map_structure(
        lambda part: tf.TensorSpec([None, *part.shape[1:]], part.dtype), data.element_spec
    )

    def forget(*parts: Any) -> Any:
        return tf.nest.map_structure(
            lambda part, want: tf.compat.v1.placeholder_with_default(part, want.shape), parts, spec
        )

    return data.map(forget)


class Watch(keras.callbacks.Callback):
    """Notes when steps begin, and ends the run after a time."""

    async_safe = True

    def __init__(self, seconds: float) -> None:
        """Keep how long."""
        super().__init__()
        self.begins: list[float] = []
        self._seconds = seconds

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Note a step."""
        self.begins.append(time.perf_counter())
        late = self.begins[min(len(self.begins), WARM + 1) - 1]
        if len(self.begins) > WARM + 4 and self.begins[-1] - late > self._seconds:
            self.model.stop_training = True


def plain_step(model: Any, data: Any, seconds: float) -> float:
    """Train for a while, and give the median step."""
    watch = Watch(seconds)
    model.fit(data, verbose=0, steps_per_epoch=1_000_000, callbacks=[watch], shuffle=False)
    gc.collect()  # its iterator, while it is young
    took = np.diff(watch.begins)[WARM:]
    return float(np.median(took)) / int(model.steps_per_execution)


def turns(model: Any, sets: dict[int, Any], rounds: int, seen: dict[int, list[float]]) -> None:
    """Train with each size, by turns."""
    for number in range(rounds):
        for factor in FACTORS if number % 2 else reversed(FACTORS):
            seen[factor].append(plain_step(model, sets[factor], SECONDS))


def one(plan: Plan, budget: float, rounds: int) -> dict[str, Any]:
    """Predict and measure one model."""
    model = plan.model()
    model.compile(**{"optimizer": "sgd", "loss": "mse", **dict(plan.compile_args)})
    sets = {factor: dataset_of(plan, factor) for factor in FACTORS}
    seen: dict[int, list[float]] = {factor: [] for factor in FACTORS}
    turns(model, sets, rounds, seen)
    kwargs = {"steps_per_epoch": 1_000_000, "verbose": 0}
    MACHINE.wait()
    found = tfdiag.diagnose(model, sets[1], fit_kwargs=kwargs, budget=budget, verify=False)
    turns(model, sets, rounds, seen)
    analysis = analyse(found.measurements)
    measured = {factor: statistics.median(values) for factor, values in seen.items()}
    row: dict[str, Any] = {"name": plan.name, "rows": plan.rows, "measured_s": measured, "all_s": seen}
    scaling = analysis.scaling
    if isinstance(scaling, BatchScaling):
        row |= {
            "r_squared": scaling.r_squared,
            "off": scaling.off,
            "linear": scaling.linear,
            "fixed_s": scaling.fixed.value if isinstance(scaling.fixed, Quantity) else None,
            "per_row_s": scaling.per_row.value if isinstance(scaling.per_row, Quantity) else None,
        }
    else:
        row["missing"] = scaling.reason
    spent = found.measurements.overhead.phases_s
    row["took_s"] = spent.get("batch scaling", 0.0)
    row["computation_s"] = spent.get("the computation", 0.0)
    row["budget_s"] = budget
    if not isinstance(found.step, Missing) and isinstance(found.step.median, Quantity):
        row["step_s"] = found.step.median.value
        for factor in FACTORS[1:]:
            said = step_with(analysis, plan.rows * factor)
            if isinstance(said, Quantity):
                longer = [large / small for large, small in zip(seen[factor], seen[1], strict=True)]
                row[f"longer_{factor}"] = statistics.median(longer)
                row[f"predicted_{factor}"] = said.value / row["step_s"]
                row[f"error_{factor}"] = row[f"predicted_{factor}"] / row[f"longer_{factor}"] - 1
    keras.backend.clear_session()
    gc.collect()
    return row


def show(row: dict[str, Any]) -> None:
    """Print a line of the table."""
    if "missing" in row:
        print(f"{row['name']:28} {row['missing']}", flush=True)
        return
    cells = [f"{row['name']:28} {row['rows']:4} rows"]
    cells.append(f"1x {row['measured_s'][1] * 1e3:7.2f} ms (diagnosed {row['step_s'] * 1e3:7.2f})")
    for factor in FACTORS[1:]:
        if f"error_{factor}" in row:
            cells.append(
                f"{factor}x takes {row[f'longer_{factor}']:.2f} times as long, "
                f"said {row[f'predicted_{factor}']:.2f} ({row[f'error_{factor}']:+.1%})"
            )
        else:
            cells.append(f"{factor}x {row['measured_s'][factor] * 1e3:7.2f} ms, nothing said")
    cells.append(f"R² {row['r_squared']:.3f}, off {row['off']:.1%}, {row['took_s']:.2f} s")
    print("  ".join(cells), flush=True)


def goals_of(rows: list[dict[str, Any]]) -> list[Goal]:
    """Sum up: what was not predicted is not within."""
    near = [abs(row.get(f"error_{factor}", float("inf"))) <= WITHIN for row in rows for factor in FACTORS[1:]]
    part = max(row["took_s"] / row["budget_s"] for row in rows)
    return [
        Goal("models whose step was predicted at other batch sizes", len(rows), 10, above=True),
        Goal(
            "share of the steps with 2 and 4 times the batch within 15 %",
            sum(near) / len(near),
            0.9,
            above=True,
        ),
        Goal("largest part of the budget that the replay at several sizes took", part, 0.12),
    ]


def main() -> None:
    """Measure all models, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    rows = []
    for plan in plans():
        if chosen.only in plan.name:
            rows.append(one(plan, chosen.budget, chosen.rounds))
            show(rows[-1])
    report("batch_scaling", goals_of(rows), rows)


if __name__ == "__main__":
    main()

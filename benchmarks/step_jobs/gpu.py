"""Jobs with a cause that only a GPU has, on the simulated one: each process gets the machine that it names.

What their twins lack is the cause, on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.step_jobs.form import Machine, StepJob

layers = keras.layers
Made = tuple[Any, Any, dict[str, Any]]

BUDGET_S = 30.0
"""A trace, the step on both devices and the peaks take their parts of it."""
SLOW_ARITHMETIC = {"gflops": 50, "tensor_cores": 4, "compute": 0}
"""Slow enough that products are most of a step, whatever dispatching them takes on two cores."""


def _made(model: Any, *shape: int) -> Made:
    """Compile a model, and hand it over with one batch for ever."""
    model.compile("sgd", "mse", jit_compile=False)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    batch = (x, np.zeros((shape[0], 1), "float32"))
    return model, tf.data.Dataset.from_tensors(batch).repeat(), {}


def _dense(units: int, depth: int, rows: int, policy: str, features: int | None = None) -> Made:
    # TensorFloat-32 would let float32 use Tensor Cores, on a GPU as young as the simulated one.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    features = units if features is None else features
    hidden = [layers.Dense(units, "relu", dtype=policy) for _ in range(depth)]
    return _made(
        keras.Sequential([keras.Input((features,)), *hidden, layers.Dense(1, dtype="float32")]),
        rows,
        features,
    )


def _convolutions(filters: int, depth: int, side: int, rows: int, policy: str) -> Made:
    tf.config.experimental.enable_tensor_float_32_execution(False)
    hidden = [
        layers.Conv2D(filters, 3, padding="same", activation="relu", dtype=policy) for _ in range(depth)
    ]
    end = [layers.GlobalAveragePooling2D(dtype="float32"), layers.Dense(1, dtype="float32")]
    return _made(keras.Sequential([keras.Input((side, side, 3)), *hidden, *end]), rows, side, side, 3)


def _recurrent(cell: Any, length: int, **options: Any) -> Made:
    sequence = [keras.Input((length, 16)), cell(192, name="encoder", **options), layers.Dense(1)]
    return _made(keras.Sequential(sequence), 256, length, 16)


def few_rows() -> Made:
    """Give many layers that hardly compute: the CPU is done before the GPU has been told what to do."""
    return _dense(32, 24, 16, "float32")


def many_layers() -> Made:
    """Give many layers of which none is work for a GPU, though all of them are for this CPU."""
    return _dense(128, 24, 512, "float32")


def many_small_operations() -> Made:
    """Give arithmetic on tensors that are small for a GPU, one after the other."""
    inputs = keras.Input((128,))
    x = inputs
    for _ in range(20):
        x = layers.LayerNormalization()(layers.Activation("tanh")(x))
    return _made(keras.Model(inputs, layers.Dense(1)(x)), 2048, 128)


def _job(
    name: str,
    make: Callable[[], Made],
    expected: str,
    machine: Machine,
    *,
    twin: Callable[[], Made] | None = None,
) -> StepJob:
    return StepJob(name, make, expected, budget_s=BUDGET_S, twin=twin, machine=machine)


PRODUCTS = Machine(knobs=SLOW_ARITHMETIC)
LAUNCHES = Machine(preset="slow launch", knobs={"compute": 0})

JOBS = (
    _job(
        "full precision: dense layers", lambda: _dense(768, 4, 256, "float32"), "full-precision", PRODUCTS,
        twin=lambda: _dense(768, 4, 256, "mixed_float16"),
    ),
    _job(
        "full precision: convolutions", lambda: _convolutions(48, 3, 24, 16, "float32"), "full-precision",
        PRODUCTS, twin=lambda: _convolutions(48, 3, 24, 16, "mixed_float16"),
    ),
    _job(
        "unaligned shapes: dense layers of 1001 units", lambda: _dense(1001, 3, 256, "mixed_float16", 1024),
        "unaligned-shapes", PRODUCTS, twin=lambda: _dense(1000, 3, 256, "mixed_float16", 1024),
    ),
    _job("better on the CPU: 24 dense layers, 16 rows", few_rows, "better-on-cpu", LAUNCHES),
    _job("many small kernels: 24 dense layers", many_layers, "many-small-kernels", LAUNCHES),
    _job(
        "many small kernels: normalised again and again", many_small_operations, "many-small-kernels",
        LAUNCHES,
    ),
    _job(
        "unfused RNN: dropout inside an LSTM", lambda: _recurrent(layers.LSTM, 12, recurrent_dropout=0.1),
        "unfused-rnn", LAUNCHES,
    ),
    _job(
        "unfused RNN: a GRU with another activation", lambda: _recurrent(layers.GRU, 12, activation="relu"),
        "unfused-rnn", LAUNCHES,
    ),
    _job("healthy: mixed precision on a GPU", lambda: _dense(1024, 4, 512, "mixed_float16"), "", PRODUCTS),
)  # fmt: skip

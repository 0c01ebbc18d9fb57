"""Operations of graphs: by hand, and of steps that TensorFlow traced."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdiag.collect.compute import add_up, wanted_peaks
from tfdiag.collect.flops import count, flops_of
from tfdiag.collect.walked import Names
from tfdiag.compat import compute as door
from tfdiag.compat import placement
from tfdiag.compat.compute import WorkGraph, WorkNode
from tfdiag.compat.keras import make_train_function
from tfdiag.model.quantity import Missing, Quantity

ROWS = 8


def node(op: str, inputs: Any, outputs: Any, equation: str = "") -> WorkNode:
    """Give a heavy op."""
    return WorkNode("op", op, "float32", inputs, (outputs,), equation)


@pytest.mark.parametrize(
    ("op", "flops"),
    [
        (node("MatMul", ((ROWS, 3), (3, 5)), (ROWS, 5)), 2 * ROWS * 3 * 5),
        (node("MatMul", ((-1, 3), (3, 5)), (-1, 5)), 2 * ROWS * 3 * 5),
        (node("MatMul", ((-1, 3), (-1, 5)), (3, 5)), 2 * ROWS * 3 * 5),
        (node("MatMul", (None, (5, 3)), (-1, 5)), 2 * ROWS * 3 * 5),
        (node("MatMul", ((-1, -1), (3, 5)), (-1, 5)), 2 * ROWS * 3 * 5),
        (node("MatMul", (None, None), (-1, 5)), None),
        (node("BatchMatMulV2", ((-1, 2, 4, 3), (-1, 2, 3, 5)), (-1, 2, 4, 5)), 2 * ROWS * 2 * 4 * 3 * 5),
        (node("Einsum", ((-1, 4, 3), (3, 2, 5)), (-1, 4, 2, 5), "abc,cde->abde"), 2 * ROWS * 4 * 3 * 2 * 5),
        (node("Einsum", ((-1, 4, 3), (3, 5)), (-1, 4, 5), "...c,cd->...d"), 2 * ROWS * 4 * 3 * 5),
        (node("Einsum", ((-1, 4),), (4, -1), "ab->ba"), 0.0),
        (node("Conv2D", ((-1, 9, 9, 3), (3, 3, 3, 7)), (-1, 7, 7, 7)), 2 * ROWS * 7 * 7 * 7 * 27),
        (node("Conv2DBackpropInput", ((4,), (3, 3, 3, 7), (-1, 7, 7, 7)), (-1, 9, 9, 3)), ROWS * 18522),
        (node("Conv2DBackpropFilter", ((-1, 9, 9, 3), (4,), (-1, 7, 7, 7)), (3, 3, 3, 7)), ROWS * 18522),
        (node("DepthwiseConv2dNative", ((-1, 9, 9, 3), (3, 3, 3, 1)), (-1, 7, 7, 3)), ROWS * 2646),
        (node("CudnnRNNV3", ((4, -1, 3),), (4, -1, 5)), None),
    ],
)  # fmt: skip
def test_each_op_by_hand(op: WorkNode, flops: float | None):
    """Two operations for each multiplication with its addition; the batch stands for an unknown dimension."""
    assert flops_of(op, ROWS) == (None if flops is None else pytest.approx(flops))


def test_loops_branches_and_steps():
    """A loop counts as often as it goes round, of branches the one with most to do counts."""
    product = node("MatMul", ((2, 3), (3, 5)), (2, 5))
    graph = WorkGraph(
        {
            "": (
                WorkNode("loop", "While", calls=("body",), kind="loop", trips=7),
                WorkNode("choice", "If", calls=("idle", "busy"), kind="branches"),
                WorkNode("unknown", "While", calls=("body",), kind="loop"),
                WorkNode("steps", "While", calls=("step",), kind="loop"),
            ),
            "body": (product,), "busy": (product, product), "idle": (), "step": (product,),
        },
        frozenset({"step"}),
    )  # fmt: skip
    counted = count(graph, None, steps_per_loop=3)
    assert sum(op.flops for op in counted.ops) == pytest.approx(60 * (7 + 2 + 1 + 3))
    assert counted.uncounted == ("a loop of unknown length, counted once",)
    assert [op.path for op in counted.ops[:1]] == ["loop/op"]


def step_of(model: Any, *batch: Any, **compile_args: Any) -> Any:
    """Train a model for a step, and give its train function's graph."""
    model.compile("sgd", "mse", **compile_args)
    model.fit(*batch, batch_size=ROWS, verbose=0)
    return placement.step_function(make_train_function(model))


def images() -> tuple[Any, Any]:
    """Give a few small images."""
    return np.zeros((ROWS, 9, 9, 3), "float32"), np.zeros((ROWS, 5), "float32")


def small_net() -> Any:
    """Give a convolution and a dense layer."""
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((9, 9, 3)), layers.Conv2D(7, 3), layers.Flatten(), layers.Dense(5, name="last")]
    )


@pytest.mark.parametrize("steps", [1, 3])
def test_a_traced_step_has_its_backward_pass(steps: int):
    """Convolution: forward and for its kernel, as images need no gradient; dense: also for its input."""
    model = small_net()
    x, y = images()
    x, y = np.tile(x, (steps, 1, 1, 1)), np.tile(y, (steps, 1))
    concrete = step_of(model, x, y, steps_per_execution=steps)
    counted = count(door.work_graph(concrete), ROWS, steps)
    names = Names(frozenset(placement.layer_names(model)))
    flops, by_dtype, layers = add_up(counted, steps, names, door.kernels(model))
    convolution, dense = 2 * ROWS * 7 * 7 * 7 * 27, 2 * ROWS * 343 * 5
    assert counted.uncounted == ()
    assert isinstance(flops, Quantity)
    assert flops.value == pytest.approx(2 * convolution + 3 * dense)
    assert by_dtype == {"float32": pytest.approx(flops.value)}
    assert {layer.layer: layer.flops for layer in layers}["last"] == pytest.approx(3 * dense)
    assert {layer.layer: layer.kernel for layer in layers}["last"] == (343, 5)


def test_a_recurrent_layer_counts_all_its_turns():
    """Each step in time is a product with the inputs' and with the state's weights, forward and backward."""
    model = keras.Sequential([keras.Input((6, 3)), keras.layers.LSTM(4)])
    concrete = step_of(model, np.zeros((ROWS, 6, 3), "float32"), np.zeros((ROWS, 4), "float32"))
    counted = count(door.work_graph(concrete), ROWS)
    assert counted.uncounted == ()
    inputs, state = 2 * ROWS * 6 * 3 * 16, 2 * ROWS * 6 * 4 * 16
    whole = sum(op.flops for op in counted.ops)
    # The first state needs no gradient, the inputs neither; Keras may compute them all the same.
    assert 2 * inputs + 3 * state <= whole + 1 <= 3 * inputs + 3 * state + 1


def test_the_type_is_that_of_the_products():
    """With mixed precision the layers' products are in float16, and its peak is wanted beside float32's."""
    policy = keras.mixed_precision.DTypePolicy("mixed_float16")
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8, dtype=policy)])
    concrete = step_of(model, np.zeros((ROWS, 16), "float32"), np.zeros((ROWS, 8), "float32"))
    counted = count(door.work_graph(concrete), ROWS)
    _, by_dtype, _ = add_up(counted, 1, Names(), ())
    assert list(by_dtype) == ["float16"]
    assert wanted_peaks(by_dtype, set(), None) == [
        ("matrix product", "float16", True),
        ("matrix product", "float32", True),
    ]
    on_gpu = wanted_peaks({"float32": 1.0}, {"float32"}, 7.5)
    assert ("matrix product", "float16", True) in on_gpu
    assert ("convolution", "float32", True) in on_gpu
    assert ("matrix product", "bfloat16", False) in wanted_peaks({"bfloat16": 1.0}, set(), 8.0)
    hardly = wanted_peaks({"float16": 1.0, "float32": 0.001}, set(), 8.0)
    assert hardly[-1] == ("matrix product", "float32", True)


def test_nothing_counted_is_missing():
    """A step whose shapes nobody knows has no number, not zero."""
    graph = WorkGraph({"": (node("MatMul", (None, None), None),)}, frozenset())
    flops, _, _ = add_up(count(graph, 8), 1, Names(), ())
    assert isinstance(flops, Missing)
    assert "MatMul of unknown shape" in flops.reason


def test_what_insists_on_its_batch_size_is_seen():
    """Fixed inputs and state that is carried on; plain models have neither."""
    fixed = keras.Sequential([keras.Input((3,), batch_size=4), keras.layers.Dense(2)])
    assert door.fixed_batch_size(fixed) == 4
    assert door.fixed_batch_size(small_net()) is None
    assert door.fixed_batch_size(keras.Sequential([keras.layers.Dense(2)])) is None
    inputs = keras.Input((6, 3), batch_size=4)
    stateful = keras.Model(inputs, keras.layers.LSTM(2, stateful=True, name="memory")(inputs))
    assert door.stateful_layers(stateful) == ["memory"]
    assert door.stateful_layers(small_net()) == []
    assert door.capability("/CPU:0") is None
    assert tf.config.experimental.tensor_float_32_execution_enabled() is door.tensor_float_32()

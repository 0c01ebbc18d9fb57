"""Where the ops of real steps run, on a machine without an accelerator."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.integration import jobs
from tests.unit.compat.test_keras import FLAVOURS
from tfdiag.collect.placement import measure_placement, measure_placement_of_step
from tfdiag.compat import placement as door
from tfdiag.compat.keras import make_train_function
from tfdiag.compat.profiler import Tracer
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Missing, Quantity


class Untouched(Tracer):
    """A profiler that must not be used."""

    def start(self, **options: bool) -> Missing | None:
        """Fail."""
        raise AssertionError("there was nothing to trace")


def placed(model: Any, dataset: Any, tracer: Tracer, seconds: float = 60.0) -> Placement:
    """Train for a step, then look."""
    make_train_function(model)(iter(dataset))
    found = measure_placement(
        model,
        dataset.repeat,
        batch=jobs.BATCH,
        first_call_s=0.0,
        call_s=0.0,
        tracer=tracer,
        until=time.perf_counter() + seconds,
        clock=time.perf_counter,
    )
    assert isinstance(found, Placement)
    return found


def halve(x: Any) -> Any:
    """Do in Python what needs no Python."""
    return x / 2


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_plain_step_costs_nothing_and_finds_nothing(flavour: str, tmp_path: Path) -> None:
    """All of it is on the CPU, and it is not traced for that."""
    found = placed(FLAVOURS[flavour](), jobs.batches(3), Untouched(tmp_path))
    assert [each.device for each in found.devices] == ["/CPU:0"]
    assert found.devices[0].types["MatMul"] >= 2
    assert found.ops == found.copies == found.times == ()
    assert found.copies_missing == "there is no accelerator, so nothing crosses devices"
    assert found.times_missing == ""
    assert sum(each.bytes for each in found.variables) >= 4 * (4 + 1)


class Halved(keras.layers.Layer):
    """Calls Python for each batch, or for each of its elements."""

    def __init__(self, *, each: bool = False, **kwargs: Any) -> None:
        """Keep which."""
        super().__init__(**kwargs)
        self._each = each

    def call(self, inputs: Any) -> Any:
        """Halve."""
        if isinstance(inputs, keras.KerasTensor):
            return inputs
        if self._each:
            return tf.map_fn(
                lambda row: tf.ensure_shape(tf.py_function(halve, [row], tf.float32), [4]), inputs
            )
        return tf.ensure_shape(tf.py_function(halve, [inputs], tf.float32), inputs.shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Say that the shape stays."""
        return input_shape


def halved(**options: Any) -> Any:
    """Give a model with a Python function in a layer."""
    inputs = keras.Input((jobs.FEATURES,))
    outputs = keras.layers.Dense(1)(Halved(name="python_layer", **options)(inputs))
    return jobs.compiled(keras.Model(inputs, outputs))


def legacy_halved() -> Any:
    """Give the same in tf_keras."""
    layer = tf_keras.layers.Lambda(
        lambda x: tf.ensure_shape(tf.py_function(halve, [x], tf.float32), x.shape), name="python_layer"
    )
    model = tf_keras.Sequential([tf_keras.Input((jobs.FEATURES,)), layer, tf_keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def in_loss() -> Any:
    """Give a model whose loss calls Python."""

    def python_loss(y: Any, p: Any) -> Any:
        return tf.reduce_mean(tf.ensure_shape(tf.py_function(halve, [tf.square(y - p)], tf.float32), p.shape))

    return jobs.tiny_model(loss=python_loss)


PYTHON: dict[str, tuple[Callable[[], Any], str, bool]] = {
    "layer": (halved, "python_layer", False),
    "loop": (lambda: halved(each=True), "python_layer", True),
    "several steps a call": (lambda: _several(halved()), "python_layer", False),
    "tf_keras": (legacy_halved, "python_layer", False),
    "loss": (in_loss, "", False),
}


def _several(model: Any) -> Any:
    return jobs.compiled(model, steps_per_execution=3)


@pytest.mark.parametrize("name", PYTHON)
def test_python_functions_are_found_and_timed(name: str, tmp_path: Path) -> None:
    """With layer, name, file and time, forwards and backwards."""
    make, layer, in_loop = PYTHON[name]
    found = placed(make(), jobs.batches(6), Tracer(tmp_path))
    forward = [op for op in found.ops if op.part in ("forward", "loss")]
    assert {(op.kind, op.layer, op.function) for op in forward} == {("python", layer, "halve")}
    assert all("test_placement.py:" in op.where for op in forward)
    assert all(op.in_loop for op in forward) is in_loop
    assert isinstance(forward[0].per_call_s, Quantity)
    (timed,) = found.times
    assert timed.kind == "python"
    assert timed.busy_s > 0
    assert timed.alone_s > 0


def lookup(flavour: Any) -> Any:
    """Give a model that looks words up."""
    words = flavour.layers.StringLookup(vocabulary=["a", "b", "c"], name="words")
    inputs = flavour.Input((3,), dtype="string")
    hidden = flavour.layers.Embedding(4, 8)(words(inputs))
    model = flavour.Model(inputs, flavour.layers.Dense(1)(flavour.layers.Flatten()(hidden)))
    model.compile("adam", "mse")
    return model


def vectorize() -> Any:
    """Give a model that splits text into words."""
    words = keras.layers.TextVectorization(
        max_tokens=10, output_sequence_length=4, vocabulary=["a", "b"], name="words"
    )
    inputs = keras.Input((), dtype="string")
    hidden = keras.layers.Embedding(10, 8)(words(inputs))
    return jobs.compiled(keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(hidden))))


@pytest.mark.parametrize("name", ["keras", "tf_keras", "vectorize"])
def test_text_in_the_model_is_found(name: str, tmp_path: Path) -> None:
    """Tables and strings, with the layer that they belong to."""
    makers = {"keras": lambda: lookup(keras), "tf_keras": lambda: lookup(tf_keras), "vectorize": vectorize}
    x = np.array([["a", "b", "x"]] * 16) if name != "vectorize" else np.array(["a b. C"] * 16)
    dataset = tf.data.Dataset.from_tensor_slices((x, np.zeros((16, 1), "float32"))).batch(8)
    found = placed(makers[name](), dataset, Tracer(tmp_path))
    assert any(op.op.startswith("LookupTable") for op in found.ops)
    assert {(op.kind, op.layer, op.part) for op in found.ops} == {("text", "words", "forward")}
    assert found.times or not found.times_missing


def test_a_strategy_does_not_hurt(tmp_path: Path) -> None:
    """A step for several replicas is looked at like any other."""
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        model = halved()
    dataset = strategy.experimental_distribute_dataset(jobs.batches(None))
    iterator = iter(dataset)
    make_train_function(model)(iterator)
    found = measure_placement(
        model,
        lambda: dataset,
        batch=jobs.BATCH,
        first_call_s=0.0,
        call_s=0.0,
        tracer=Tracer(tmp_path),
        until=time.perf_counter() + 60.0,
        clock=time.perf_counter,
    )
    assert isinstance(found, Placement)
    assert "halve" in {op.function for op in found.ops}


def test_a_step_of_the_callers_own(tmp_path: Path) -> None:
    """A tf.function is looked into; a plain Python function has no graph."""
    variable = tf.Variable([1.0, 2.0])

    @tf.function(autograph=False)
    def step(batch: Any) -> Any:
        return variable.assign_add(tf.ensure_shape(tf.numpy_function(halve, [batch], tf.float32), [2]))

    batch = tf.constant([1.0, 1.0])
    step(batch)
    arguments: dict[str, Any] = {
        "size": None, "first_call_s": 0.0, "call_s": 0.0, "tracer": Tracer(tmp_path),
        "until": time.perf_counter() + 60.0, "clock": time.perf_counter,
    }  # fmt: skip
    found = measure_placement_of_step(step, batch, **arguments)
    assert isinstance(found, Placement)
    assert [op.function for op in found.ops] == ["halve"]
    assert isinstance(measure_placement_of_step(halve, batch, **arguments), Missing)


def test_no_time_is_said(tmp_path: Path) -> None:
    """A slow step is not traced beyond the budget: what was found is there, its cost is not."""
    found = placed(halved(), jobs.batches(4), Untouched(tmp_path), seconds=-1.0)
    assert found.ops
    assert found.times == ()
    assert found.times_missing == "the budget left no time to trace the step"


def test_a_step_that_xla_compiles_is_recognised(tmp_path: Path) -> None:
    """It is one cluster, whose ops are those of its function."""
    model, dataset = jobs.tiny_model(jit_compile=True), jobs.batches(8)
    found = placed(model, dataset, Untouched(tmp_path))
    assert found.clusters == 1
    assert found.devices[0].types["MatMul"] >= 3
    concrete = door.step_function(make_train_function(model))
    assert isinstance(door.cut_up(concrete, lambda: (iter(dataset),)), door.Cut)


# The door ------------------------------------------------------------------------------------


def traced() -> tuple[Any, Any]:
    """Give a model's traced step, and its dataset."""
    model, dataset = jobs.tiny_model(), jobs.batches(8)
    step = make_train_function(model)
    step(iter(dataset))
    return door.step_function(step), dataset


def test_a_step_is_cut_up_without_another_trace() -> None:
    """The parts are those of this step, and nobody collects graphs afterwards."""
    concrete, dataset = traced()
    cut = door.cut_up(concrete, lambda: (iter(dataset),))
    assert isinstance(cut, door.Cut)
    assert any("MatMul" in node.op and "CPU" in node.device for part in cut.parts for node in part)
    context = __import__("tensorflow.python.eager.context", fromlist=["context"]).context()
    tf.function(lambda: tf.constant(1.0) + 1.0)()
    assert len(context.export_run_metadata().function_graphs) == 0


def test_a_caller_who_collects_graphs_keeps_them() -> None:
    """What tf.summary.trace_on collects is not taken away."""
    concrete, dataset = traced()
    tf.summary.trace_on(graph=True)
    try:
        assert isinstance(door.cut_up(concrete, lambda: (iter(dataset),)), Missing)
    finally:
        tf.summary.trace_off()


def test_kernels_are_known() -> None:
    """An op that strings need has none for an accelerator; one that nobody knows has no answer."""
    assert door.has_kernel("StringLower", {}) == "no"
    assert door.has_kernel("NoSuchOp", {}) is None
    # Shapes of any type are worked out for every device.
    assert door.has_kernel("Shape", {"T": "float32", "out_type": "int32"}) in ("yes", "no")


def test_names_of_layers_reach_into_models() -> None:
    """Nested models' layers too; what is no model has none."""
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="deep")], name="inner")
    assert set(door.layer_names(keras.Sequential([inner], name="outer"))) >= {"inner", "deep"}
    assert door.layer_names(object()) == ()

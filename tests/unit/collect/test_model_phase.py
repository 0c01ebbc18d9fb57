"""Models of all kinds are looked at, or it is said why not; none of them is changed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.integration import jobs
from tfdiag.collect.environment import read_environment
from tfdiag.collect.inputs import resolve_input
from tfdiag.collect.job import job_of
from tfdiag.collect.model_phase import Look
from tfdiag.collect.session import Request, Session
from tfdiag.compat.keras import make_train_function
from tfdiag.compat.keras_parts import (
    layers_named,
    own_train_function,
    updating_used_rows,
    with_ready_results,
)
from tfdiag.compat.placement import nodes_of, step_function
from tfdiag.model.layers import MetricCost, ModelFacts, TableCost
from tfdiag.model.measurements import Replay
from tfdiag.model.quantity import Missing, Quantity

REPLAYED = Replay(call_s=(0.004,) * 4, cpu_s=0.01, first_call_s=0.1)


def looked_at(
    model: Any,
    dataset: Any,
    folder: Path,
    *,
    seconds: float = 4.0,
    step: Any = None,
    replayed: Any = REPLAYED,
) -> ModelFacts:
    """Train for a step, then look."""
    source = resolve_input(dataset, y=None, batch_size=None, fit_kwargs={}, custom=step is not None)
    request = Request(
        model=model,
        source=source,
        fit_kwargs={},
        train_step=step,
        budget_s=60.0,
        steps=None,
        clock=time.perf_counter,
    )
    batch = next(iter(dataset))
    if step is None:
        make_train_function(model)(iter(dataset))
    else:
        step(batch)
    session = Session(request, folder, read_environment(model), request.clock())
    session.element_spec = dataset.element_spec
    until = time.perf_counter() + seconds
    found = Look(session, job_of(request), batch, Missing("not run"), replayed, until).facts()
    assert isinstance(found, ModelFacts)
    return found


class Gan(keras.Model):
    """Two models and two optimizers, kept in a dict and in attributes; it can't be called."""

    def __init__(self) -> None:
        """Make the parts."""
        super().__init__()
        self.nets = {"make": keras.layers.Dense(jobs.FEATURES, name="make"), "judge": keras.layers.Dense(1)}
        self.words = keras.layers.Embedding(10, 4)

    def compile(self, **options: Any) -> None:
        """Take two optimizers."""
        super().compile(**options)
        self.first, self.second = keras.optimizers.Adam(), keras.optimizers.SGD()
        self.seen = keras.metrics.Mean(name="seen")

    def train_step(self, data: Any) -> dict[str, Any]:
        """Train one after the other."""
        x, _ = data
        for optimizer, name in ((self.first, "make"), (self.second, "judge")):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.nets["judge"](self.nets["make"](x)))
            variables = self.nets[name].trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.seen.update_state(loss)
        return {"seen": self.seen.result()}


def gan() -> Any:
    """Give one that is ready to be trained."""
    model = Gan()
    model.words.build()
    model.nets["make"].build((None, jobs.FEATURES))
    model.nets["judge"].build((None, jobs.FEATURES))
    model.compile()
    return model


def accumulating() -> Any:
    """Give a model that applies every third gradient."""
    return jobs.tiny_model(optimizer=keras.optimizers.Adam(gradient_accumulation_steps=3))


def legacy() -> Any:
    """Give a model of tf_keras with a loop in a layer."""
    rows = tf_keras.layers.Lambda(lambda x: tf.map_fn(tf.nn.softmax, x), name="rows")
    model = tf_keras.Sequential([tf_keras.Input((jobs.FEATURES,)), rows, tf_keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return model


KINDS: dict[str, Callable[[], Any]] = {
    "two optimizers": gan,
    "own train step": lambda: jobs.compiled(jobs.OwnStep(), metrics=None),
    "gradient accumulation": accumulating,
    "several steps a call": lambda: jobs.tiny_model(steps_per_execution=2),
    "XLA": lambda: jobs.tiny_model(jit_compile=True),
    "tf_keras": legacy,
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_models(kind: str, tmp_path: Path) -> None:
    """Layers and optimizers are there; the train function and the metrics stay the model's own."""
    model = KINDS[kind]()
    found = looked_at(model, jobs.batches(None), tmp_path, seconds=2.5)
    assert found.layers
    assert found.optimizers
    assert found.graph_missing == ""
    assert model.train_function is not None
    assert not any(
        "update_state" in vars(metric) for metric in model.metrics if isinstance(metric, keras.Metric)
    )
    if kind == "two optimizers":
        assert {each.cls for each in found.optimizers} >= {"Adam", "SGD"}
        assert "never calls the model" in found.batch_missing
    if kind == "tf_keras":
        assert {(loop.kind, loop.layer) for loop in found.loops} == {("map_fn", "rows")}
        assert all(isinstance(loop.alone, Quantity) for loop in found.loops), found.times_missing
    if found.metrics:
        assert isinstance(found.metric_cost, MetricCost), found.metric_cost


def test_an_eager_step_and_one_of_the_callers_own(tmp_path: Path) -> None:
    """Facts without a run are there, and why the others are not."""
    eager = looked_at(jobs.tiny_model(run_eagerly=True), jobs.batches(None), tmp_path)
    assert eager.layers
    assert eager.graph_missing == "an eager step has no graph"
    assert isinstance(eager.metric_cost, Missing)
    model = jobs.tiny_model()

    @tf.function(autograph=False)
    def step(batch: Any) -> Any:
        return tf.map_fn(tf.nn.relu, model(batch[0]))

    own = looked_at(model, jobs.batches(None), tmp_path, step=step)
    assert own.graph_missing == ""
    assert [loop.kind for loop in own.loops] == ["map_fn"]


def test_without_a_replay_or_time_facts_stay(tmp_path: Path) -> None:
    """What needs a run says what was missing."""
    missing = looked_at(jobs.tiny_model(), jobs.batches(None), tmp_path, replayed=Missing("no batch came"))
    assert missing.layers
    assert missing.graph_missing == missing.times_missing == "no batch came"
    late = looked_at(jobs.tiny_model(), jobs.batches(None), tmp_path, seconds=-1.0)
    assert late.layers
    assert "budget" in late.graph_missing


def test_a_large_table_is_seen_to_be_updated_as_a_whole(tmp_path: Path) -> None:
    """By Adam, and not by SGD."""
    x = np.tile(np.arange(20, dtype="int32"), (16, 1))
    dataset = tf.data.Dataset.from_tensor_slices((x, np.ones((16, 1), "float32"))).batch(8).repeat()
    for optimizer, whole in (("adam", True), ("sgd", False)):
        model = keras.Sequential(
            [keras.Input((20,), dtype="int32"), keras.layers.Embedding(20_000, 4), keras.layers.Flatten(),
             keras.layers.Dense(1)]
        )  # fmt: skip
        model.compile(optimizer, "mse")
        (table,) = looked_at(model, dataset, tmp_path).embeddings
        assert bool(table.whole_ops) is whole
        assert isinstance(table.took, Quantity) is whole
        assert table.rows_used == Quantity(20.0, "rows", source="one batch")


@pytest.mark.parametrize("library", [keras, tf_keras])
def test_updates_of_single_rows_are_timed(library: Any, tmp_path: Path) -> None:
    """A large table under Adam: without the sweeps over it the step is far quicker; the optimizer stays."""
    model = library.Sequential(
        [
            library.Input((4,), dtype="int32"),
            library.layers.Embedding(100_000, 16),
            library.layers.Flatten(),
            library.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    ids = np.arange(32, dtype="int32").reshape(8, 4)
    dataset = tf.data.Dataset.from_tensors((ids, np.zeros((8, 1), "float32"))).repeat()
    found = looked_at(model, dataset, tmp_path, seconds=8.0)
    assert isinstance(found.table_cost, TableCost), found.table_cost
    assert np.median(found.table_cost.without_s) < 0.7 * np.median(found.table_cost.with_s)
    assert "update_step" not in vars(model.optimizer)


class Rowwise(keras.layers.Layer):
    """Goes over the rows of a batch one by one, and has a weight."""

    def build(self, input_shape: Any) -> None:
        """Make the weight."""
        self.scale = self.add_weight(shape=(input_shape[-1],), name="scale")

    def call(self, x: Any) -> Any:
        """Scale."""
        return tf.map_fn(lambda row: tf.nn.softmax(row * self.scale), x)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Say that the shape stays."""
        return input_shape


def in_the_middle() -> Any:
    """Give a model whose first layer needs a gradient through the loop."""
    layers = [keras.layers.Dense(8), Rowwise(name="rows"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((jobs.FEATURES,)), *layers])
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize("make", [in_the_middle, legacy])
def test_a_layer_that_loops_is_stood_in_for(make: Callable[[], Any], tmp_path: Path) -> None:
    """With its results ready the step is quicker; the layer is as it was."""
    model = make()
    quick = Replay(call_s=(0.0005,) * 4, cpu_s=0.01, first_call_s=0.1)
    rows = (np.ones((256, jobs.FEATURES), "float32"), np.zeros((256, 1), "float32"))
    dataset = tf.data.Dataset.from_tensors(rows).repeat()
    found = looked_at(model, dataset, tmp_path, seconds=8.0, replayed=quick)
    (cost,) = found.loop_costs
    assert cost.layer == "rows"
    assert np.median(cost.without_s) < 0.8 * np.median(cost.with_s)
    assert "call" not in vars(layers_named(model, ["rows"])["rows"])


def test_without_a_trace_no_layer_is_stood_in_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows then what the layer does beside its loop, which is not nothing."""
    monkeypatch.setattr(Look, "_trace", lambda self: Missing("the profiler is taken"))
    found = looked_at(in_the_middle(), jobs.batches(None), tmp_path, seconds=8.0)
    assert found.times_missing == "the profiler is taken"
    assert found.loop_costs == ()


def test_a_step_with_ready_results_has_all_gradients() -> None:
    """Only the layer's ops are gone; Keras warns of a weight without a gradient, which is an error here."""
    model = in_the_middle()

    def ops(step: Any) -> Counter[str]:
        step(iter(jobs.batches(None)))
        return Counter(node.op for node in nodes_of(step_function(step), shapes=False))

    whole = ops(own_train_function(model))
    with with_ready_results(layers_named(model, ["rows"])["rows"]):
        bare = ops(own_train_function(model))
    assert any("While" in kind for kind in whole)
    assert not any("While" in kind for kind in bare)
    assert bare["MatMul"] == whole["MatMul"] > 0
    assert bare["AssignSubVariableOp"] == whole["AssignSubVariableOp"] > 0


def test_names_that_two_layers_have_stand_for_neither() -> None:
    """Layers are found at any depth."""
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="deep")], name="inner")
    twice = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="twice")], name="other")
    layers = [inner, twice, keras.layers.Dense(4, name="twice"), keras.layers.Dense(1, name="last")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    found = layers_named(model, ["deep", "twice", "last", "none"])
    assert {name: layer.name for name, layer in found.items()} == {"deep": "deep", "last": "last"}


def test_where_no_table_is_swept_nothing_is_timed(tmp_path: Path) -> None:
    """Without a table, and with one that is small."""
    found = looked_at(jobs.tiny_model(), jobs.batches(None), tmp_path, seconds=2.0)
    assert found.table_cost == Missing("no table is updated as a whole")


def test_an_optimizer_within_another_is_reached() -> None:
    """What scales the loss updates through the optimizer that it holds; both are put back."""
    inner = keras.optimizers.Adam()
    outer = keras.optimizers.LossScaleOptimizer(inner)
    with updating_used_rows((outer,), frozenset({(8, 2)})):
        assert "update_step" in vars(inner)
    assert "update_step" not in vars(inner)
    assert "update_step" not in vars(outer)

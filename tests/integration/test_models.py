"""`diagnose` accepts the models that `fit` accepts, built and compiled in any way."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound
from tests.traces_left import leaves_no_trace
from tfdiag.model.quantity import Quantity


def two_inputs_two_outputs() -> Any:
    """A functional model with named inputs and outputs."""
    left, right = keras.Input((4,), name="left"), keras.Input((2,), name="right")
    hidden = keras.layers.Concatenate()([left, right])
    outputs = {
        "sum": keras.layers.Dense(1, name="sum")(hidden),
        "sign": keras.layers.Dense(1, activation="sigmoid", name="sign")(hidden),
    }
    model = keras.Model({"left": left, "right": right}, outputs)
    model.compile("adam", {"sum": "mse", "sign": "binary_crossentropy"}, metrics={"sum": ["mae"]})
    return model


def two_inputs_dataset() -> tf.data.Dataset:
    """Dicts of inputs and of targets."""
    generator = np.random.default_rng(0)
    left = generator.standard_normal((160, 4)).astype("float32")
    right = generator.standard_normal((160, 2)).astype("float32")
    targets = {"sum": left.sum(1, keepdims=True), "sign": (right[:, :1] > 0).astype("float32")}
    dataset = tf.data.Dataset.from_tensor_slices(({"left": left, "right": right}, targets))
    return dataset.batch(jobs.BATCH).repeat(2)


def test_dict_inputs_and_several_outputs() -> None:
    """Dicts of inputs and targets go through unchanged."""
    model, dataset = two_inputs_two_outputs(), two_inputs_dataset()

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)


def test_list_inputs_as_arrays() -> None:
    """A list of input arrays is one input, not a list of batches."""
    left, right = keras.Input((4,)), keras.Input((2,))
    model = keras.Model([left, right], keras.layers.Dense(1)(keras.layers.Concatenate()([left, right])))
    jobs.compiled(model)
    x, y = jobs.arrays(16 * 40)
    inputs = [x, x[:, :2]]

    with leaves_no_trace(model, dataset=inputs):
        report = diagnose(model, inputs, y=y, batch_size=16)

    is_sound(report, batch_size=16)


def test_subclassed_model_with_its_own_train_step() -> None:
    """The caller's own train step is what is measured, and its trackers are put back."""
    model = jobs.OwnStep()
    model.compile(optimizer="adam")
    model(np.zeros((1, jobs.FEATURES), "float32"))
    dataset = jobs.slow(jobs.batches(300))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.verdict.code == "input-bound"
    assert "OwnStep" in report.measurements.job.model


def test_steps_per_execution() -> None:
    """With several steps an execution the times are still those of one step."""
    model = jobs.tiny_model(steps_per_execution=4)
    dataset = jobs.no_autotune(jobs.slow(jobs.batches(300)))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.measurements.job.steps_per_execution == 4
    assert report.measurements.live.steps_per_call == 4
    assert report.verdict.code == "input-bound"
    assert jobs.SLEEP_S <= report.step.mean_s < 4 * jobs.SLEEP_S


def test_epoch_that_steps_per_execution_does_not_divide() -> None:
    """A last execution with fewer steps is no error."""
    model = jobs.tiny_model(steps_per_execution=4)
    dataset = jobs.batches(42)

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)


def test_unbuilt_sequential() -> None:
    """A model without an input shape is diagnosed, and its weights are still its own to make."""
    model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])
    jobs.compiled(model)
    dataset = jobs.slow(jobs.batches(300))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.verdict.code == "input-bound"
    model.fit(jobs.batches(3), verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 3


def test_model_in_the_middle_of_training() -> None:
    """Training goes on after a diagnosis exactly as it would have without one."""
    untouched, diagnosed = _twins()
    untouched.fit(jobs.batches(5), verbose=0)
    diagnosed.fit(jobs.batches(5), verbose=0)
    history, function = diagnosed.history, diagnosed.train_function

    with leaves_no_trace(diagnosed):
        diagnose(diagnosed, jobs.batches(20))

    assert diagnosed.history is history
    assert diagnosed.train_function is function
    untouched.fit(jobs.batches(5), verbose=0)
    diagnosed.fit(jobs.batches(5), verbose=0)
    for one, other in zip(untouched.variables, diagnosed.variables, strict=True):
        assert np.array_equal(one.numpy(), other.numpy())


def _twins() -> tuple[Any, Any]:
    pair = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        pair.append(jobs.tiny_model(dropout=0.5))
    return pair[0], pair[1]


def test_eager_model() -> None:
    """An eager step is measured as it is, and said to be eager."""
    model = jobs.tiny_model(run_eagerly=True)
    dataset = jobs.batches(None)

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.measurements.job.run_eagerly
    assert report.verdict.code == "launch-bound"
    assert "eager-step" in {finding.check for finding in report.findings}


def test_run_functions_eagerly() -> None:
    """The global switch to eager functions is seen, and left on."""
    tf.config.run_functions_eagerly(True)
    try:
        model, dataset = jobs.tiny_model(), jobs.batches(None)
        with leaves_no_trace(model, dataset=dataset):
            report = diagnose(model, dataset)
        assert tf.config.functions_run_eagerly()
    finally:
        tf.config.run_functions_eagerly(False)

    is_sound(report, batch_size=jobs.BATCH)
    assert "eager-step" in {finding.check for finding in report.findings}


def test_custom_step() -> None:
    """A function of a batch is measured in place of `fit`."""
    model = keras.Sequential([keras.Input((jobs.FEATURES,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(batch: Any) -> tf.Tensor:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    dataset = jobs.slow(jobs.batches(None))
    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, train_step=train_step)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.measurements.job.loop == "custom"
    assert report.verdict.code == "input-bound"


def test_custom_step_without_tf_function() -> None:
    """A step that Python dispatches op by op is called so, with the number of its ops; a graph is not."""
    model = keras.Sequential([keras.Input((jobs.FEATURES,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    def train_step(batch: Any) -> tf.Tensor:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    found = {}
    for name, step in (("eager", train_step), ("graph", tf.function(train_step))):
        dataset = jobs.batches(None)
        with leaves_no_trace(model, dataset=dataset):
            report = diagnose(model, dataset, train_step=step, steps=60)
        found[name] = {finding.check: finding for finding in report.findings}
        if name == "eager":
            assert report.verdict.code == "launch-bound", str(report)
    assert "eager-step" not in found["graph"]
    evidence = found["eager"]["eager-step"].evidence[0]
    assert isinstance(evidence.quantity, Quantity)
    assert 20 < evidence.quantity.value < 200


def test_mixed_precision_and_clipping() -> None:
    """An optimizer that wraps another one is put back with what is inside."""
    inner = keras.optimizers.Adam(1e-3, clipnorm=1.0)
    model = jobs.tiny_model(optimizer=keras.optimizers.LossScaleOptimizer(inner))
    dataset = jobs.batches(None)

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)


def test_learning_rate_schedule() -> None:
    """A schedule sees the same iteration after the diagnosis as before."""
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    model = jobs.tiny_model(optimizer=keras.optimizers.SGD(schedule, momentum=0.9))
    model.fit(jobs.batches(5), verbose=0)
    rate = float(model.optimizer.learning_rate)

    diagnose(model, jobs.batches(None))

    assert float(model.optimizer.learning_rate) == rate


def test_batch_normalisation_statistics() -> None:
    """Moving averages, which the optimizer doesn't own, are put back too."""
    model = keras.Sequential(
        [
            keras.Input((jobs.FEATURES,)),
            keras.layers.BatchNormalization(),
            keras.layers.GaussianNoise(0.1, seed=3),
            keras.layers.Dense(1),
        ]
    )
    jobs.compiled(model)
    dataset = jobs.batches(None)

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report)

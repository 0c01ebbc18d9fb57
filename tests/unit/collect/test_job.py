"""Facts about the job, known before it runs."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.integration import jobs
from tests.unit.collect.test_inputs import X, Y, generate, resolve
from tfdiag.collect.environment import read_environment
from tfdiag.collect.job import batch_facts, batch_tensors, describe
from tfdiag.collect.pipeline import describe_pipeline
from tfdiag.collect.recorder import Recorder
from tfdiag.model.quantity import Missing, Quantity


def test_a_model_and_how_it_is_compiled() -> None:
    """The facts are those of the model: its name, parameters, compilation and policy."""
    model = jobs.tiny_model(steps_per_execution=3, jit_compile=True)
    job = describe(model, resolve(X, y=Y), {}, callbacks=("A", "B"), epochs=4)
    assert job.model == f"{model.name} (Sequential)"
    assert job.parameters == Quantity(49.0, "parameters", source="model.count_params()")
    assert (job.loop, job.input, job.steps_per_execution, job.jit_compile) == ("keras", "arrays", 3, True)
    assert (job.run_eagerly, job.dtype_policy, job.strategy, job.replicas) == (False, "float32", "", 1)
    assert (job.callbacks, job.epochs, job.one_shot) == (("A", "B"), 4, False)


def test_an_unbuilt_model() -> None:
    """Parameters that nobody has made yet are missing with the reason, not zero."""
    model = jobs.compiled(keras.Sequential([keras.layers.Dense(2)]), run_eagerly=True)
    job = describe(model, None, {})
    assert job.parameters == Missing("the model is not built before its first step")
    assert job.run_eagerly
    assert job.input == "the caller's own fit"


def test_functions_that_run_eagerly_everywhere() -> None:
    """The global switch makes a job eager that does not say so itself."""
    model = jobs.tiny_model()
    tf.config.run_functions_eagerly(True)
    try:
        assert describe(model, None, {}).run_eagerly
    finally:
        tf.config.run_functions_eagerly(False)
    assert not describe(model, None, {}).run_eagerly


def test_a_strategy_has_its_name() -> None:
    """A strategy that the model was made in is named."""
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = jobs.tiny_model()
    assert describe(model, None, {}).strategy == "OneDeviceStrategy"


STEPS: list[tuple[Any, dict[str, Any], float | str]] = [
    (lambda: jobs.batches(7), {}, 7.0),
    (lambda: jobs.batches(7), {"steps_per_epoch": 3}, 3.0),
    (lambda: jobs.batches(None), {}, "the dataset is infinite and steps_per_epoch is not given"),
    (lambda: jobs.batches(7).filter(lambda *_: True), {}, "the dataset does not know its length"),
    (lambda: X, {}, 1.0),
    (lambda: jobs.SlowBatches(9), {}, 9.0),
    (lambda: jobs.SlowBatches(None), {}, "a PyDataset does not know its length"),
    (generate, {}, "a generator does not know its length"),
]


@pytest.mark.parametrize(("make", "fit_kwargs", "expected"), STEPS)
def test_steps_of_an_epoch(make: Any, fit_kwargs: dict[str, Any], expected: float | str) -> None:
    """An epoch has the steps that fit would count, or the reason why nobody knows."""
    steps = describe(jobs.tiny_model(), resolve(make()), fit_kwargs).steps_per_epoch
    if isinstance(expected, str):
        assert steps == Missing(expected)
    else:
        assert isinstance(steps, Quantity) and steps.value == expected
        assert steps.origin == ("given" if fit_kwargs else "measured")


@pytest.mark.parametrize(
    ("given", "epochs", "expected"),
    [(3, 1, 3), (1, 1, 1), ([2, 4], 0, 1), (0, 1, 1), ([10, 20], 20, 10), ([30], 20, 1_000_000)],
)
def test_how_often_validation_runs(given: Any, epochs: int, expected: int) -> None:
    """A number is taken; a list of epochs says it with the number of epochs, and nothing without."""
    job = describe(jobs.tiny_model(), None, {"validation_freq": given}, epochs=epochs)
    assert job.validation_freq == expected


ROWS = np.zeros((6, 2), "float32")

BATCHES: dict[str, tuple[Any, float | None, float]] = {
    "array": (ROWS, 6, 48),
    "pair": ((ROWS, np.zeros(6, "int64")), 6, 96),
    "dict": ({"a": tf.zeros((3, 4), tf.float16), "b": [tf.zeros(3, tf.int8)]}, 3, 27),
    "ragged": (tf.ragged.constant([[1.0], [2.0, 3.0]]), 2, 12),
    "sparse": (tf.sparse.from_dense([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), 3, 8),
    "scalar": (tf.constant(1.0), None, 4),
    "none": (None, None, 0),
    "with a none": ((ROWS, None), 6, 48),
}


@pytest.mark.parametrize("name", BATCHES)
def test_rows_and_bytes_of_a_batch(name: str) -> None:
    """A batch has the rows of its first part and the bytes of all."""
    batch, rows, size = BATCHES[name]
    found, total = batch_facts(batch)
    if rows is None:
        assert found == Missing("the batch has no leading dimension")
    else:
        assert isinstance(found, Quantity) and found.value == rows
    assert isinstance(total, Quantity) and (total.value, total.unit) == (size, "B")


def test_a_batch_of_replicas() -> None:
    """A batch that is spread over replicas has the rows and bytes of all of them."""

    class PerReplica:
        values = (ROWS, ROWS[:2])

    rows, total = batch_facts((PerReplica(), None))
    assert isinstance(rows, Quantity) and isinstance(total, Quantity)
    assert (rows.value, total.value) == (8, 64)


def test_the_pipeline_as_it_was_written() -> None:
    """Without a run the pipeline is what was written, and the reason for what is not known."""
    dataset = jobs.no_autotune(jobs.batches(3).map(lambda x, y: (x, y)))
    pipeline = describe_pipeline(dataset, Recorder(lambda: 0.0))
    assert not isinstance(pipeline, Missing)
    assert pipeline.written[-1] == "map(<lambda>)"
    assert pipeline.python_functions == ()
    assert (pipeline.stages, pipeline.output, pipeline.autotune, pipeline.prefetch_injected) == (
        (),
        None,
        False,
        False,
    )
    assert "too short" in pipeline.missing
    slow = describe_pipeline(jobs.slow(jobs.batches(3)), None)
    assert not isinstance(slow, Missing)
    assert slow.python_functions == ("delayed",)


def test_a_pipeline_that_nobody_knows() -> None:
    """What is no dataset and did not run has no pipeline, with the reason."""
    assert describe_pipeline(X, None) == Missing("nothing ran")
    found = describe_pipeline(X, Recorder(lambda: 0.0))
    assert isinstance(found, Missing) and "too short" in found.reason


def test_the_environment() -> None:
    """The report names the software and the machine that it was made with."""
    found = read_environment(jobs.tiny_model())
    assert (found.tensorflow, found.keras) == (tf.__version__, keras.__version__)
    assert found.cores >= 1 and found.memory_bytes > 2**28
    assert any(device.kind == "CPU" for device in found.devices)
    assert found.date.endswith("+00:00")


def test_tensors_of_a_batch() -> None:
    """Type, bytes and numbers of each dense part; what has no numbers has none."""
    images = tf.constant([[0.0, 255.0, 3.0]])
    batch = (
        {"a": images, "b": tf.constant(["x"])},
        tf.constant([0.5, float("nan")]),
        tf.constant([7], tf.int64),
    )
    first, text, odd, label = batch_tensors(batch)
    assert (first.dtype, first.bytes, first.whole) == ("float32", 12, True)
    assert isinstance(first.low, Quantity) and isinstance(first.high, Quantity)
    assert (first.low.value, first.high.value) == (0.0, 255.0)
    assert text.dtype == "string"
    assert isinstance(text.low, Missing)
    assert isinstance(odd.low, Missing)
    assert (label.dtype, label.bytes, label.whole) == ("int64", 8, True)
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    assert all(part.bytes >= 0 for part in batch_tensors((ragged, tf.sparse.from_dense([[1.0]]), None)))

"""`diagnose` accepts the inputs that `fit` accepts, and sees the same thing in each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound, share
from tests.traces_left import leaves_no_trace
from tfdiag.model.quantity import Quantity

SLOW_INPUTS: dict[str, Callable[[], Any]] = {
    "finite": lambda: jobs.slow(jobs.batches(300)),
    "infinite": lambda: jobs.slow(jobs.batches(None)),
    "unknown cardinality": lambda: jobs.slow(jobs.batches(300).filter(lambda x, y: True)),
    "shuffled": lambda: jobs.slow(jobs.batches(300).shuffle(8, seed=1)),
    "cached below": lambda: jobs.slow(jobs.batches(300).cache()),
    "prefetched": lambda: jobs.slow(jobs.batches(300)).prefetch(tf.data.AUTOTUNE),
    "autotune off": lambda: jobs.no_autotune(jobs.slow(jobs.batches(300))),
    "from_generator": lambda: tf.data.Dataset.from_generator(
        lambda: jobs.CountedGenerator(300).generator,
        output_signature=(
            tf.TensorSpec((None, jobs.FEATURES), tf.float32),
            tf.TensorSpec((None, 1), tf.float32),
        ),
    ),
    "PyDataset": lambda: jobs.SlowBatches(200),
    "endless PyDataset": lambda: jobs.SlowBatches(None),
    "PyDataset with workers": lambda: jobs.SlowBatches(None, workers=2, max_queue_size=4),
}


@pytest.fixture(scope="module")
def model() -> Any:
    """A model that all inputs of this file share: a diagnosis leaves it as it was."""
    return jobs.tiny_model()


@pytest.mark.parametrize("name", SLOW_INPUTS)
def test_slow_input_is_found_in_every_kind_of_input(model: Any, name: str) -> None:
    """An input that takes several steps' time is the verdict, whatever kind of input it is."""
    dataset = SLOW_INPUTS[name]()

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.verdict.code == "input-bound", str(report)
    assert share(report, "input_wait") > 0.4, str(report)
    assert not report.measurements.job.one_shot


def test_python_generator_is_not_silently_eaten(model: Any) -> None:
    """The report of a one-shot generator says how many batches were taken from it."""
    counted = jobs.CountedGenerator()

    with leaves_no_trace(model, dataset=counted.generator):
        report = diagnose(model, counted.generator)

    is_sound(report, batch_size=jobs.BATCH)
    job = report.measurements.job
    assert job.one_shot
    assert job.batches_used == counted.taken > 0
    assert str(job.batches_used) in str(report)
    assert report.verdict.code == "input-bound"
    next(counted.generator)  # what is left of it is still the caller's


def test_last_batch_may_be_partial(model: Any) -> None:
    """A partial last batch changes neither the batch size of the report nor the model."""
    x, y = jobs.arrays(30 * jobs.BATCH + 3)
    dataset = jobs.slow(tf.data.Dataset.from_tensor_slices((x, y)).batch(jobs.BATCH))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.verdict.code == "input-bound"


def test_fully_cached_input_is_not_the_verdict(model: Any) -> None:
    """An input that is slow in its first epoch only costs the steady step nothing."""
    dataset = jobs.slow(jobs.batches(20)).cache()

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, fit_kwargs={"epochs": 1000})

    is_sound(report, batch_size=jobs.BATCH)
    step = report.step
    assert step.segments["input_wait"].value < jobs.SLEEP_S / 2


ARRAY_CALLS: dict[str, Callable[[np.ndarray, np.ndarray], tuple[Any, dict[str, Any]]]] = {
    "x and y": lambda x, y: (x, {"y": y, "batch_size": 16}),
    "tuple": lambda x, y: ((x, y), {"batch_size": 16}),
    "tensors": lambda x, y: (tf.constant(x), {"y": tf.constant(y), "batch_size": 16}),
    "validation_split": lambda x, y: (
        x,
        {"y": y, "batch_size": 16, "fit_kwargs": {"validation_split": 0.2, "epochs": 50}},
    ),
}


@pytest.mark.parametrize("name", ARRAY_CALLS)
def test_arrays(model: Any, name: str) -> None:
    """Arrays are taken as `fit` takes them, and stay as they are."""
    x, y = jobs.arrays(64 * 16)
    kept = x.copy(), y.copy()
    dataset, kwargs = ARRAY_CALLS[name](x, y)

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, **kwargs)

    is_sound(report, batch_size=16)
    assert report.verdict.code != "inconclusive"
    assert np.array_equal(x, kept[0])
    assert np.array_equal(y, kept[1])


def test_default_batch_size_of_arrays_is_that_of_fit(model: Any) -> None:
    """Arrays without a batch size are fed in batches of 32."""
    x, y = jobs.arrays(32 * 40)

    report = diagnose(model, x, y=y)

    is_sound(report, batch_size=32)


def test_sample_weight_as_third_element(model: Any) -> None:
    """A dataset of inputs, targets and weights is trained on with the weights."""
    dataset = jobs.slow(jobs.batches(300).map(lambda x, y: (x, y, tf.ones(jobs.BATCH))))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.verdict.code == "input-bound"


def test_sample_weight_as_argument(model: Any) -> None:
    """Weights beside arrays are handed to `fit`."""
    x, y = jobs.arrays(32 * 40)
    weights = np.ones(len(x), "float32")

    with leaves_no_trace(model, dataset=x):
        report = diagnose(model, x, y=y, fit_kwargs={"sample_weight": weights})

    is_sound(report, batch_size=32)


def test_class_weight() -> None:
    """Class weights in `fit_kwargs` reach the train step."""
    model = jobs.tiny_model(loss="binary_crossentropy")
    x, _ = jobs.arrays()
    y = (x[:, 0] > 0).astype("int32")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(jobs.BATCH).repeat(2)
    weights = {0: 1.0, 1: 3.0}

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, fit_kwargs={"class_weight": weights})

    is_sound(report, batch_size=jobs.BATCH)
    assert weights == {0: 1.0, 1: 3.0}


def test_stamped_waits_are_the_known_ones() -> None:
    """With autotune off and nothing overlapping, the wait is measured, and it is the time of the sleep."""
    slept: list[tuple[float, float]] = []

    def late(x: np.ndarray) -> np.ndarray:
        begin = time.perf_counter()
        time.sleep(jobs.SLEEP_S)
        slept.append((begin, time.perf_counter()))
        return x

    def delayed(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        given = tf.numpy_function(late, [x], x.dtype)
        given.set_shape(x.shape)
        return given, y

    model = jobs.tiny_model()
    dataset = jobs.no_autotune(jobs.batches(None).map(delayed))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    wait, live = report.step.segments["input_wait"], report.measurements.live
    assert isinstance(wait, Quantity)
    assert wait.origin == "measured"
    assert "arrived" in wait.source
    inside = [end - begin for begin, end in slept if live.start_s[20] < begin and end < live.start_s[-1]]
    assert len(inside) > 20
    assert wait.value == pytest.approx(np.mean(inside), abs=0.1 * report.step.mean_s)
    assert not any("stamp" in stage for stage in report.measurements.pipeline.written)
    assert live.traced == (0,)
    assert "its autotuning is off" not in str(report).split("wait for input", maxsplit=1)[-1][:80]


@pytest.mark.parametrize("why", ["class weights", "autotune on", "several steps an execution"])
def test_what_the_stamps_would_not_tell_is_not_stamped(why: str) -> None:
    """A stage of ours is added only where it runs at the moment at which the step gets its batch."""
    loss = "binary_crossentropy" if why == "class weights" else "mse"
    model = jobs.tiny_model(loss=loss, steps_per_execution=2 if why.startswith("several") else 1)
    dataset = jobs.batches(None).map(lambda x, y: (x, tf.cast(y > 0, tf.int32)))
    if why != "autotune on":
        dataset = jobs.no_autotune(dataset)
    kwargs = {"class_weight": {0: 1.0, 1: 2.0}} if why == "class weights" else {}

    report = diagnose(model, dataset, fit_kwargs={"steps_per_epoch": 30, **kwargs})

    assert report.measurements.live.arrival_s == ()
    assert report.measurements.replay.arrival_s == ()


def test_waits_add_up_to_the_sleep(model: Any) -> None:
    """Without any overlap the wait for input is the time that the input sleeps."""
    dataset = jobs.no_autotune(jobs.slow(jobs.batches(300)))

    report = diagnose(model, dataset)

    wait = report.step.segments["input_wait"]
    assert isinstance(wait, Quantity)
    assert wait.value >= jobs.SLEEP_S  # a sleep overshoots, it is never short
    assert wait.value < report.step.mean_s

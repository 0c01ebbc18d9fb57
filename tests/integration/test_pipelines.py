"""Pipelines in every dress are diagnosed: their stages are shown and timed, and none makes it fail."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdiag
from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound, survives_json
from tests.integration.processes import succeeds
from tests.pace import enough
from tests.traces_left import leaves_no_trace
from tfdiag.analyse.analysis import analyse
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.collect import phases
from tfdiag.collect.py_input import measure_py_input
from tfdiag.model.pipeline import Pipeline, PyInput
from tfdiag.model.quantity import Missing

Data = tf.data.Dataset
BATCH_SPEC = (
    tf.TensorSpec((None, jobs.FEATURES), tf.float32),
    tf.TensorSpec((None, 1), tf.float32),
)
ROWS = 40 * jobs.BATCH
UNDER_LOAD = 1.25
"""The promise is the budget and ten percent; other tests may run on the same cores."""


def rows() -> Any:
    """Give single rows."""
    return Data.from_tensor_slices(jobs.arrays(ROWS))


def late(dataset: Any) -> Any:
    """Make every batch take its time, so that the step waits and stages are sampled."""
    return jobs.slow(dataset)


def batched(dataset: Any) -> Any:
    """Make slow batches of rows."""
    return late(dataset.batch(jobs.BATCH, drop_remainder=True))


def inputs(x: Any, y: Any) -> Any:
    """Give one part of a row."""
    return x


def targets(x: Any, y: Any) -> Any:
    """Give the other."""
    return y


def part(index: Any) -> Any:
    """Give the rows of one of several sources."""
    x, y = jobs.arrays(10 * jobs.BATCH)
    return Data.from_tensor_slices((x, y)).skip(index)


def parts(index: Any) -> Any:
    """Give the rows of several of several sources."""
    return Data.range(2).interleave(part, cycle_length=2)


def joined(window: Any, other: Any) -> Any:
    """Make one element of two windows."""
    return Data.zip((window.batch(jobs.BATCH), other.batch(jobs.BATCH)))


def grouped(dataset: Any) -> Any:
    """Group rows by the sign of their target."""
    return dataset.group_by_window(
        key_func=lambda x, y: tf.cast(y[0] > 0, tf.int64),
        reduce_func=lambda key, window: window.batch(jobs.BATCH, drop_remainder=True),
        window_size=jobs.BATCH,
    )


def bucketed(dataset: Any) -> Any:
    """Sort rows into buckets of one length."""
    return dataset.bucket_by_sequence_length(
        lambda x, y: tf.shape(x)[0], [100], [jobs.BATCH, jobs.BATCH], drop_remainder=True
    )


def chosen() -> Any:
    """Let a dataset choose from two."""
    choice = Data.range(2).repeat(20)
    return Data.choose_from_datasets([jobs.batches(20), jobs.batches(20)], choice)


def ragged(x: Any, y: Any) -> Any:
    """Give elements of uneven length."""
    return tf.RaggedTensor.from_tensor(x), y


def from_ragged(x: Any, y: Any) -> Any:
    """Give them their shape back."""
    return x.to_tensor(shape=(None, jobs.FEATURES)), y


def sparse(x: Any, y: Any) -> Any:
    """Give elements that are mostly zero."""
    return tf.sparse.from_dense(x), y


def from_sparse(x: Any, y: Any) -> Any:
    """Give them their zeros back."""
    return tf.ensure_shape(tf.sparse.to_dense(x), (None, jobs.FEATURES)), y


def text(x: Any, y: Any) -> Any:
    """Give lines."""
    return tf.strings.as_string(x), y


def from_text(x: Any, y: Any) -> Any:
    """Read the numbers of lines."""
    return tf.strings.to_number(x), y


def optional(x: Any, y: Any) -> Any:
    """Give elements that need not be there."""
    return tf.experimental.Optional.from_value((x, y))


def from_optional(element: Any) -> Any:
    """Take what is there."""
    return element.get_value()


def with_pool(dataset: Any) -> Any:
    """Let a pool of its own run it."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    return dataset.with_options(options)


DRESSES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "zip": (
        lambda: batched(Data.zip((rows().map(inputs), rows().map(targets)))),
        ("zip", "from_tensor_slices", "map(delayed)"),
    ),
    "concatenate": (lambda: late(jobs.batches(20).concatenate(jobs.batches(20))), ("concatenate",)),
    "interleave": (
        lambda: batched(Data.range(4).interleave(part, cycle_length=2)),
        ("interleave(part", "batch(8"),
    ),
    "parallel interleave": (
        lambda: batched(Data.range(4).interleave(part, num_parallel_calls=tf.data.AUTOTUNE)),
        ("interleave(part", "batch(8"),
    ),
    "nested interleave": (
        lambda: batched(Data.range(4).interleave(parts, cycle_length=2, num_parallel_calls=2)),
        ("interleave(parts", "batch(8"),
    ),
    "sample_from_datasets": (
        lambda: late(Data.sample_from_datasets([jobs.batches(30), jobs.batches(30)], seed=1)),
        ("sample_from_datasets", "take(30)"),
    ),
    "choose_from_datasets": (lambda: late(chosen()), ("choose_from_datasets",)),
    "flat_map": (lambda: batched(Data.range(4).flat_map(part)), ("flat_map(part)",)),
    "window and flat_map": (
        lambda: late(rows().window(jobs.BATCH, drop_remainder=True).flat_map(joined)),
        ("window(8)", "flat_map(joined)"),
    ),
    "group_by_window": (lambda: late(grouped(rows().repeat())), ("group_by_window",)),
    "bucket_by_sequence_length": (lambda: late(bucketed(rows())), ("map(delayed)",)),
    "unbatch": (lambda: batched(jobs.batches(40).unbatch()), ("unbatch", "batch(8")),
    "rebatch": (lambda: late(rows().batch(32).rebatch(jobs.BATCH)), ("rebatch",)),
    "cache in memory": (lambda: late(jobs.batches(20).cache()), ("cache", "map(delayed)")),
    "ragged": (
        lambda: late(jobs.batches(400).map(ragged).map(from_ragged)),
        ("map(ragged)", "map(from_ragged)"),
    ),
    "sparse": (
        lambda: late(jobs.batches(400).map(sparse).map(from_sparse)),
        ("map(sparse)", "map(from_sparse)"),
    ),
    "strings": (lambda: late(jobs.batches(40).map(text).map(from_text)), ("map(text)", "map(from_text)")),
    "optionals": (
        lambda: late(jobs.batches(40).map(optional).map(from_optional)),
        ("map(optional)", "map(from_optional)"),
    ),
    "private pool": (lambda: with_pool(late(jobs.batches(40))), ("map(delayed)",)),
    "autotune off": (lambda: jobs.no_autotune(late(jobs.batches(40))), ("map(delayed)",)),
}


@pytest.fixture(scope="module")
def model() -> Any:
    """A model that all pipelines of this file share: a diagnosis leaves it as it was."""
    return jobs.tiny_model()


def pipeline_of(report: tfdiag.Report) -> Pipeline:
    """Give what was measured of the pipeline."""
    pipeline = report.measurements.pipeline
    assert isinstance(pipeline, Pipeline), pipeline
    return pipeline


def stages_of(report: tfdiag.Report) -> PipelineModel:
    """Give the pipeline as the analysis shows it."""
    found = analyse(report.measurements).pipeline
    assert isinstance(found, PipelineModel), found
    return found


def has_stages(report: tfdiag.Report, words: tuple[str, ...]) -> None:
    """Check that stages have these names, and that the slow one was timed or the reason is told."""
    pipeline, found = pipeline_of(report), stages_of(report)
    labels = [stage.label for stage in found.stages]
    for word in words:
        assert any(label.startswith(word) for label in labels), (word, labels)
    assert pipeline.graph_missing == ""
    assert found.known
    # The last working stage is sampled first; the budget need not be enough for all of them.
    assert pipeline.samples
    assert pipeline.samples_missing in ("", "the budget left no time for every stage")
    slow = next(stage for stage in found.stages if stage.label == "map(delayed)")
    assert slow.sampled
    assert slow.per_batch_s > 0.8 * jobs.SLEEP_S
    assert found.slowest is slow, labels
    assert report.findings, report.verdict


@pytest.mark.parametrize("name", DRESSES)
def test_every_dress_is_seen_through(model: Any, name: str) -> None:
    """The stages are named as they were written, and the slow one is the slowest."""
    make, words = DRESSES[name]
    dataset = make()

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=5.0, steps=100)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.verdict.code == "input-bound"
    has_stages(report, words)


def test_without_autotuning_the_times_are_those_of_samples(model: Any) -> None:
    """Where the runtime keeps no model, stages are timed alone, and are marked as timed so."""
    dataset = jobs.no_autotune(late(jobs.batches(40)))

    report = diagnose(model, dataset, budget=5.0, steps=100)

    pipeline, found = pipeline_of(report), stages_of(report)
    assert pipeline.stages == ()
    assert pipeline.missing
    assert not pipeline.options.autotune
    assert not found.from_model
    assert found.sampled
    assert any(stage.sampled for stage in found.stages)


def test_cache_in_a_file(model: Any, tmp_path: Path) -> None:
    """A file cache is shown, and the caller's folder stays empty."""
    dataset = late(jobs.batches(20).cache(str(tmp_path / "cache")))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=5.0, steps=100)

    is_sound(report, batch_size=jobs.BATCH)
    has_stages(report, ("cache",))
    assert list(tmp_path.iterdir()) == []


def test_snapshot(model: Any, tmp_path: Path) -> None:
    """A snapshot is shown, and the caller's folder stays empty."""
    dataset = late(jobs.batches(20).snapshot(str(tmp_path / "snapshot")))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=5.0, steps=100)

    is_sound(report, batch_size=jobs.BATCH)
    has_stages(report, ("snapshot",))
    assert list(tmp_path.iterdir()) == []


def test_dict_elements() -> None:
    """Elements with names keep them."""
    inputs = keras.Input((jobs.FEATURES,), name="x")
    model = jobs.compiled(keras.Model({"x": inputs}, keras.layers.Dense(1)(inputs)))
    dataset = late(jobs.batches(40)).map(lambda x, y: ({"x": x}, y))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=5.0, steps=100)

    is_sound(report, batch_size=jobs.BATCH)
    has_stages(report, ("map(",))


def test_data_service(model: Any) -> None:
    """What a tf.data service does is shown as a stage that can't be seen into."""
    dispatcher = tf.data.experimental.service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(dispatcher_address=address)
    )
    try:
        # The wait is on this side: a worker with a Python function waits for the lock of whoever stops it.
        dataset = late(
            jobs.batches(200).apply(
                tf.data.experimental.service.distribute("parallel_epochs", dispatcher.target)
            )
        )
        with leaves_no_trace(model, dataset=dataset):
            report = diagnose(model, dataset, budget=5.0, steps=100)
        del dataset
    finally:
        worker._stop()
        dispatcher._stop()

    is_sound(report, batch_size=jobs.BATCH)
    pipeline = pipeline_of(report)
    assert any(node.opaque for node in pipeline.graph), pipeline.graph_missing
    assert report.verdict.code == "input-bound"


DISTRIBUTED = """
import json
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound
from tests.traces_left import leaves_no_trace
from tfdiag.analyse.analysis import analyse

with strategy.scope():
    model = jobs.tiny_model()
dataset = strategy.experimental_distribute_dataset(jobs.slow(jobs.batches(None), 0.02))
with leaves_no_trace(model, dataset=dataset):
    report = diagnose(model, dataset, budget=10.0, steps=60)
is_sound(report, batch_size=jobs.BATCH)
pipeline = report.measurements.pipeline
print(json.dumps({
    "labels": [stage.label for stage in analyse(report.measurements).pipeline.stages],
    "graph_missing": pipeline.graph_missing,
    "verdict": report.verdict.code,
}))
"""


def test_distributed_dataset() -> None:
    """A strategy's dataset shows the stages that run, and says why there is no graph."""
    told = json.loads(succeeds(DISTRIBUTED).splitlines()[-1])

    assert told["verdict"] == "input-bound"
    assert told["graph_missing"]
    assert told["labels"]


# --- bad input ---------------------------------------------------------------------------------------


def test_graph_that_can_not_be_written(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset that TensorFlow can't serialise is diagnosed without its graph, and the reason is told."""

    def refuse(**_: Any) -> Any:
        raise tf.errors.FailedPreconditionError(None, None, "MyDatasetOp has state of its own")

    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", refuse)
    dataset = late(jobs.batches(40))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=5.0, steps=100)

    is_sound(report, batch_size=jobs.BATCH)
    pipeline = pipeline_of(report)
    assert pipeline.graph == ()
    assert "state of its own" in pipeline.graph_missing
    assert report.verdict.code == "input-bound"
    assert stages_of(report).from_model


def test_generator_without_seed(model: Any) -> None:
    """A generator that draws anew each time is diagnosed: no two passes are alike, and none need be."""
    passes: list[int] = []

    def noise() -> Iterator[Any]:
        passes.append(1)
        dice = np.random.default_rng()
        for _ in range(40):
            time.sleep(jobs.SLEEP_S)
            x = dice.standard_normal((jobs.BATCH, jobs.FEATURES)).astype("float32")
            yield x, x.sum(axis=1, keepdims=True)

    dataset = Data.from_generator(noise, output_signature=BATCH_SPEC)
    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=5.0, steps=100)

    is_sound(report, batch_size=jobs.BATCH)
    assert any("noise" in stage.label for stage in stages_of(report).stages)
    assert len(passes) > 1


def test_end_in_the_middle_of_the_measurement(model: Any) -> None:
    """Fewer batches than an epoch asks for: what there was is reported."""
    dataset = late(jobs.batches(25))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=5.0, fit_kwargs={"steps_per_epoch": 1000, "epochs": 3})

    is_sound(report, batch_size=jobs.BATCH)
    assert any(stage.label == "map(delayed)" for stage in stages_of(report).stages)


class Gate:
    """Lets some batches through, then blocks until it is opened."""

    def __init__(self, after: int) -> None:
        """Close the gate behind so many."""
        self.after, self.count = after, 0
        self.opened = threading.Event()

    def pass_one(self) -> None:
        """Go through, or wait."""
        self.count += 1
        if self.count > self.after:
            self.opened.wait(60.0)


def hanging_map(gate: Gate) -> Any:
    """Block in a function of a map."""

    def held(x: Any) -> Any:
        gate.pass_one()
        return x

    def stuck_decode(x: Any, y: Any) -> Any:
        given = tf.numpy_function(held, [x], x.dtype)
        given.set_shape(x.shape)
        return given, y

    return jobs.batches(None).map(stuck_decode)


def hanging_parallel_map(gate: Gate) -> Any:
    """Block in a function of a map that works on several batches."""

    def held(x: Any) -> Any:
        gate.pass_one()
        return x

    def stuck_decode(x: Any, y: Any) -> Any:
        given = tf.numpy_function(held, [x], x.dtype)
        given.set_shape(x.shape)
        return given, y

    return jobs.batches(None).map(stuck_decode, num_parallel_calls=2).prefetch(2)


def hanging_generator(gate: Gate) -> Any:
    """Block in a generator."""

    def stuck_source() -> Iterator[Any]:
        x, y = jobs.arrays(jobs.BATCH)
        for _ in itertools.count():
            gate.pass_one()
            yield x, y

    return Data.from_generator(stuck_source, output_signature=BATCH_SPEC)


HANGING: dict[str, tuple[Callable[[Gate], Any], str]] = {
    "map": (hanging_map, "stuck_decode"),
    "parallel map": (hanging_parallel_map, "stuck_decode"),
    "generator": (hanging_generator, "stuck_source"),
    "map below a batch": (lambda gate: hanging_map(gate).unbatch().batch(jobs.BATCH), "stuck_decode"),
}


@pytest.mark.parametrize("name", HANGING)
def test_input_that_hangs(name: str) -> None:
    """An input that blocks for ever costs the budget, and the stage that holds it is named."""
    model, gate = jobs.tiny_model(), Gate(after=40)
    make, label = HANGING[name]
    dataset = make(gate)
    budget = enough(3.0)

    with leaves_no_trace(model):
        try:
            begin = time.monotonic()
            report = tfdiag.diagnose(model, dataset, budget=budget, verify=False)
            took = time.monotonic() - begin
        finally:
            gate.opened.set()

    assert took <= budget * UNDER_LOAD
    survives_json(report)
    assert any("waiting for its input" in text and label in text for text in report.warnings), report.warnings


def test_input_that_hangs_only_when_read_again(model: Any) -> None:
    """One that survives the run and blocks while it is read alone leaves gaps, not a hang."""
    gate = Gate(after=10**9)
    dataset = late(hanging_map(gate))
    budget = enough(3.0)

    class Closes(keras.callbacks.Callback):
        """Lets nothing through any more, once the run is over."""

        def on_train_end(self, logs: Any = None) -> None:
            gate.after = gate.count + 1

    with leaves_no_trace(model):
        try:
            begin = time.monotonic()
            report = tfdiag.diagnose(
                model, dataset, budget=budget, verify=False, fit_kwargs={"callbacks": [Closes()]}
            )
            took = time.monotonic() - begin
        finally:
            gate.opened.set()

    assert took <= budget * UNDER_LOAD
    survives_json(report)
    assert isinstance(report.measurements.input_alone, Missing)


def test_one_shot_generator_behind_a_dataset_is_read_once(model: Any) -> None:
    """A generator object behind `from_generator` gives its batches to the run and to nothing else."""
    counted = jobs.CountedGenerator(2000)
    one = counted.generator
    dataset = Data.from_generator(lambda: one, output_signature=BATCH_SPEC)

    report = diagnose(model, dataset, budget=5.0, fit_kwargs={"steps_per_epoch": 20})

    taken = counted.taken
    is_sound(report)  # without a batch size: no batch is read to look at it
    steps = len(report.measurements.live.duration_s)
    assert taken > 0
    # What tf.data made ahead is gone with the run.
    assert steps <= taken <= steps + 20
    assert "once" in pipeline_of(report).samples_missing
    assert isinstance(report.measurements.input_alone, Missing)
    time.sleep(4 * jobs.SLEEP_S)
    assert counted.taken == taken
    next(one)


class FailsWhenAsked(jobs.SlowBatches):
    """Gives batches to a run; asked directly, it fails at the third."""

    def __init__(self, left: list[int]) -> None:
        """Fail once `left` holds a number that has come down to zero."""
        super().__init__(None)
        self._left = lambda: left

    def __getitem__(self, index: int) -> Any:
        """Give a batch, or fail."""
        left = self._left()
        if left:
            left[0] -= 1
            if left[0] < 0:
                raise OSError("the storage is gone")
        return super().__getitem__(index)


def test_py_dataset_that_fails_when_asked(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the middle of asking a PyDataset directly is a gap with its reason."""
    left: list[int] = []
    dataset = FailsWhenAsked(left)

    def ask(*args: Any, **kwargs: Any) -> PyInput:
        left.append(3)
        return measure_py_input(*args, **kwargs)

    monkeypatch.setattr(phases, "measure_py_input", ask)
    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset, budget=5.0, steps=100)

    is_sound(report, batch_size=jobs.BATCH)
    asked = pipeline_of(report).py_input
    assert isinstance(asked, Missing)
    assert "the storage is gone" in asked.reason
    assert report.verdict.code == "input-bound"

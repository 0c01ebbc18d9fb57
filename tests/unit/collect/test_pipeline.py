"""What is told of a pipeline: what ran, what was written, and why one of them is not known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tensorflow as tf

from tfdiag.collect.pipeline import describe_pipeline, hardly_waits, with_samples
from tfdiag.compat.tfdata import RunningStages
from tfdiag.compat.tfgraph import DatasetGraph, GraphUnavailable
from tfdiag.model.measurements import Live, Replay
from tfdiag.model.pipeline import Pipeline, Stage
from tfdiag.model.quantity import Missing

Data = tf.data.Dataset
STAGES = (Stage(0, "Range", elements=9), Stage(1, "Map", inputs=(0,), elements=8))
BEFORE = (Stage(0, "Range", elements=2), Stage(1, "Map", inputs=(0,), elements=1))


class Ran:
    """Stands for the recorder of a run."""

    def __init__(self, *readings: tuple[Stage, ...]) -> None:
        """Say what was read, last and before."""
        read = [RunningStages(1, stages[1].elements, lambda stages=stages: stages) for stages in readings]
        self.stages, self.stages_before = (*read, None, None)[:2]

    def stages_missing(self) -> str:
        """Say why nothing was read."""
        return "autotuning is off"


def ran(*args: Any) -> Any:
    """Give a recorder."""
    return Ran(*args)


def one_more(v: Any) -> Any:
    """Stand for a function of the caller's."""
    return v + 1


def in_python(v: Any) -> Any:
    """Call back into Python."""
    return tf.numpy_function(lambda w: w, [v], tf.int64)


def described(dataset: Any, recorder: Any = None) -> Pipeline:
    """Describe what can be."""
    found = describe_pipeline(dataset, recorder)
    assert isinstance(found, Pipeline)
    return found


def test_what_ran_and_what_was_written():
    """Both views are there, with the earlier reading."""
    found = described(Data.range(9).map(one_more), ran(STAGES, BEFORE))

    assert (found.stages, found.output, found.stages_before) == (STAGES, 1, BEFORE)
    assert [node.label for node in found.graph] == ["range(…)", "map(one_more)"]
    assert (found.missing, found.graph_missing) == ("", "")
    assert len(found.written) == 2
    assert found.python_functions == ()
    assert found.samples_missing


def test_without_the_runtimes_model_the_graph_is_there():
    """The reason why nothing was read is told."""
    found = described(Data.range(9).map(one_more), ran())

    assert found.stages == ()
    assert found.output is None
    assert found.missing == "autotuning is off"
    assert [node.label for node in found.graph] == ["range(…)", "map(one_more)"]


def test_without_a_run_the_graph_is_there():
    """A dataset can be described that nobody has run."""
    found = described(Data.range(9).map(in_python))

    assert found.missing == ""
    assert found.graph
    assert len(found.python_functions) == 1
    assert "in_python" in found.python_functions[0]


def test_options_are_those_of_the_dataset():
    """Whether tf.data tunes is read from the dataset."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 3

    found = described(Data.range(9).with_options(options), ran())

    assert not found.autotune
    assert not found.options.autotune
    assert found.options.threads == 3
    assert described(Data.range(9)).autotune


def test_what_is_no_dataset_has_no_graph():
    """Arrays are shown as Keras' own wrapper around them runs."""
    found = described([1, 2, 3], ran(STAGES))

    assert found.graph == ()
    assert "tf.data.Dataset" in found.graph_missing
    assert found.stages == STAGES


@pytest.mark.parametrize(("recorder", "why"), [(ran(), "autotuning is off"), (None, "nothing ran")])
def test_nothing_known(recorder: Any, why: str):
    """With neither there is a reason."""
    assert describe_pipeline([1, 2, 3], recorder) == Missing(why)


def test_a_graph_that_can_not_be_written(monkeypatch: pytest.MonkeyPatch):
    """The reason is told, and what ran stays."""

    def refuse(*_: Any) -> Any:
        raise GraphUnavailable("it has state of its own")

    monkeypatch.setattr(DatasetGraph, "of", refuse)
    found = described(Data.range(9), ran(STAGES))

    assert found.graph_missing == "it has state of its own"
    assert found.stages == STAGES


def never(*_: Any) -> Any:
    """Stand for what must not be called."""
    raise AssertionError


def sampled(pipeline: Any, dataset: Any) -> Any:
    """Add samples, of which there is no time for any."""
    return with_samples(
        pipeline, dataset, cache_folder="", cores=3, until=0.0, clock=lambda: 1.0, should_stop=lambda: False
    )


def test_without_a_graph_nothing_is_sampled(monkeypatch: pytest.MonkeyPatch):
    """What is not known is not run."""
    monkeypatch.setattr(DatasetGraph, "of", never)
    unknown = Pipeline(graph_missing="it has state of its own")

    assert sampled(unknown, Data.range(9)) is unknown
    assert sampled(Missing("nothing ran"), Data.range(9)) == Missing("nothing ran")


def test_samples_that_the_budget_did_not_allow():
    """The reason goes into the pipeline."""
    dataset = Data.range(9).map(one_more)

    found = sampled(described(dataset), dataset)

    assert found.samples == ()
    assert "budget" in found.samples_missing
    assert found.sample_threads == 3
    assert isinstance(found.call_overhead_s, Missing)


def run_of(waits: list[float], period: float = 0.01) -> Live:
    """Give a run of even steps that waited so long."""
    count = len(waits)
    return Live(
        start_s=tuple(period * k for k in range(count)),
        duration_s=(period,) * count,
        wait_s=tuple(waits),
    )


@pytest.mark.parametrize(
    ("waits", "hardly"),
    [
        ([0.0] * 20, True),
        ([0.009] * 9 + [0.0] * 11, True),
        ([0.0] * 10 + [0.001] * 10, False),
        ([0.005] * 20, False),
        ([math.nan] * 20, False),
        ([math.nan, 0.0001] * 10, True),
        ([math.nan, 0.005] * 10, False),
        ([0.0, 0.0], False),
    ],
)
def test_whether_a_run_hardly_waits(waits: list[float], hardly: bool):
    """The second half of the run tells; where nothing tells, it may wait."""
    assert hardly_waits(run_of(waits), Missing("nothing was replayed")) == hardly


def test_a_run_that_is_missing_may_wait():
    """Nothing is known of it."""
    assert not hardly_waits(Missing("the budget was too short"), Missing("nor was anything replayed"))


@pytest.mark.parametrize(("bare", "hardly"), [(0.0095, True), (0.0035, False)])
def test_a_step_that_is_faster_without_its_input_is_looked_into(bare: float, hardly: bool):
    """It need not wait: an input that takes the interpreter's lock or the cores slows the step as well."""
    assert hardly_waits(run_of([0.0] * 20), Replay((bare,) * 20, 0.1, 0.1)) == hardly

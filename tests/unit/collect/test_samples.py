"""What stages cost alone, from real small datasets, with bounds that a busy machine keeps too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.pace import enough
from tests.unit.fakes import FakeClock
from tfdiag.collect import samples
from tfdiag.collect.samples import Samples, sample_stages
from tfdiag.compat.tfgraph import CannotEdit, DatasetGraph
from tfdiag.model.pipeline import Sample
from tfdiag.model.quantity import Missing, Quantity

Data = tf.data.Dataset
NAP_S = 0.002
MIB = 1 << 20
WINDOW_BYTES = 16 * MIB
HELD_BYTES = 64 * MIB
"""The promise, or two elements, if these are more."""


@pytest.fixture(autouse=True)
def _short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at each stage for less long: no bound here is as narrow as what a longer look would bring."""
    monkeypatch.setattr(samples, "_SAMPLE_S", 0.2)
    monkeypatch.setattr(samples, "_CLOSER_S", 0.4)


class Naps:
    """Sleeps for each element, and remembers how long it really was."""

    def __init__(self, seconds: float = NAP_S) -> None:
        """Say how long."""
        self.seconds, self.slept = seconds, []

    def take(self, value: Any) -> Any:
        """Sleep."""
        begin = time.perf_counter()
        time.sleep(self.seconds)
        self.slept.append(time.perf_counter() - begin)
        return value

    def __call__(self, value: Any) -> Any:
        """Sleep in a pipeline."""
        return tf.ensure_shape(tf.numpy_function(self.take, [value], tf.int64), ())


def spin(value: Any) -> Any:
    """Compute for as long as a nap."""
    end = time.thread_time() + NAP_S
    while time.thread_time() < end:
        pass
    return value


def spinning(value: Any) -> Any:
    """Compute in a pipeline."""
    return tf.ensure_shape(tf.numpy_function(spin, [value], tf.int64), ())


def sampled(dataset: Any, *, cores: int = 2, seconds: float = 60.0, stop: bool = False) -> Samples:
    """Sample it with real clocks."""
    return sample_stages(
        DatasetGraph.of(dataset),
        cores=cores,
        until=time.perf_counter() + seconds,
        clock=time.perf_counter,
        should_stop=lambda: stop,
    )


def of(found: Samples, dataset: Any, label: str, kind: str = "prefix") -> Sample | None:
    """Give the sample of a stage."""
    node = next(node.id for node in DatasetGraph.of(dataset).nodes if node.label.startswith(label))
    return next((s for s in found.samples if s.node == node and s.kind == kind), None)


def each(sample: Sample | None) -> float:
    """Give the time of an element."""
    assert sample is not None
    return sum(sample.wall_s) / sample.elements


def test_every_working_stage_has_a_sample():
    """What only hands on has none; the whole comes first, then from the source on."""
    dataset = Data.range(64).map(lambda v: v + 1).filter(lambda v: v > 3).batch(4).prefetch(2).repeat()
    graph = DatasetGraph.of(dataset)
    labels = {node.id: node.label for node in graph.nodes}

    found = sampled(dataset)

    prefixes = [labels[s.node].split("(")[0] for s in found.samples if s.kind == "prefix"]
    assert prefixes == ["batch", "range", "map", "filter"]
    assert found.missing == ""
    assert isinstance(found.overhead, Quantity)
    assert 0 <= found.overhead.value < 1e-3
    for sample in found.samples:
        assert sample.elements > 0
        assert 1 <= len(sample.wall_s) <= 12
        assert sample.first_s > 0


def test_what_sleeps_costs_its_sleep_and_no_processor():
    """The cost of a function that sleeps is its sleep; hardly a processor works meanwhile."""
    naps = Naps()
    dataset = Data.range(1000).map(naps)

    sample = of(sampled(dataset, cores=1), dataset, "map")

    assert 0.8 < each(sample) / np.mean(naps.slept) < 2.0
    assert sample is not None
    assert sample.cpu_s < 0.6 * sum(sample.wall_s)


def test_what_computes_costs_a_processor():
    """A function that spins takes the processor for as long as it is said to."""
    dataset = Data.range(1000).map(spinning)

    sample = of(sampled(dataset, cores=1), dataset, "map")

    assert sample is not None
    assert each(sample) > 0.8 * NAP_S
    assert 0.8 * NAP_S < sample.cpu_s / sample.elements < 2.0 * NAP_S


def test_a_function_is_sampled_on_several_threads_too():
    """Sleeps in TensorFlow's threads overlap; a sample says so, and only for stages with a function."""
    naps = Naps(0.01)
    dataset = Data.range(1000).map(naps).batch(2)

    found = sampled(dataset, cores=4)

    alone, together = of(found, dataset, "map"), of(found, dataset, "map", "parallel")
    assert each(together) < 0.7 * each(alone)
    assert of(found, dataset, "batch", "parallel") is None
    assert of(sampled(dataset, cores=1), dataset, "map", "parallel") is None


def scaled(v: Any) -> Any:
    """Work on an element or on many, in many small steps, so that it is worth looking at."""
    for _ in range(30):
        v = v * 1.01 + 1.0
    return v


def summed(v: Any) -> Any:
    """Work on all that there is, so that a batch gives another result."""
    return scaled(v) - tf.reduce_sum(v)


BATCHED: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "the same": (scaled, True),
    "another": (summed, False),
}


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("name", BATCHED)
def test_a_function_is_sampled_on_batches_where_it_gives_the_same(name: str, shuffled: bool):
    """The sample counts elements, not batches; a function that gives something else has none.

    A shuffle below it, which gives another order in each pass, hides neither.
    """
    function, same = BATCHED[name]
    dataset = Data.from_tensor_slices(np.random.default_rng(0).random((256, 3)).astype("float32"))
    dataset = (dataset.shuffle(64) if shuffled else dataset).map(function).batch(32)

    found = sampled(dataset)

    batched = of(found, dataset, "map", "batched")
    assert (batched is not None) == same
    if batched is not None:
        assert batched.elements % 32 == 0
        assert each(batched) < each(of(found, dataset, "map"))


def test_a_function_of_python_is_not_tried_on_batches():
    """What Python does with a batch is its own affair."""
    naps = Naps()
    dataset = Data.range(1000).map(naps).batch(4)

    assert of(sampled(dataset), dataset, "map", "batched") is None


def test_behind_a_cache_reading_is_measured():
    """A cache is full when it is sampled: what fills it costs nothing behind it."""
    naps = Naps()
    dataset = Data.range(500).map(naps).cache().map(lambda v: v + 1)

    found = sampled(dataset, cores=1)

    assert each(of(found, dataset, "map")) > 0.8 * NAP_S
    assert each(of(found, dataset, "cache")) < 0.2 * NAP_S
    last = found.samples[0]
    assert each(last) < 0.2 * NAP_S


class Held:
    """Remembers how many elements windows and caches were to hold."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        """Look over the shoulder of the graph."""
        self.windows: list[int] = []
        self.caches: list[int] = []
        windowed, full_caches = DatasetGraph.windowed, DatasetGraph.full_caches

        def of_windows(graph: DatasetGraph, size: int) -> DatasetGraph:
            self.windows.append(size)
            return windowed(graph, size)

        def of_caches(graph: DatasetGraph, elements: int) -> DatasetGraph:
            if any("Cache" in node.op for node in graph.nodes):
                self.caches.append(elements)
            return full_caches(graph, elements)

        patch.setattr(DatasetGraph, "windowed", of_windows)
        patch.setattr(DatasetGraph, "full_caches", of_caches)


def large(mebibytes: int) -> Any:
    """Give a function that makes large elements out of small ones."""
    return lambda v: tf.fill((mebibytes * MIB,), tf.cast(v % 100, tf.uint8))


def test_windows_of_large_elements_are_small(monkeypatch: pytest.MonkeyPatch):
    """Of elements of 4 MiB no more than 16 MiB are in a window."""
    held = Held(monkeypatch)
    dataset = Data.range(1000).map(large(4))

    found = sampled(dataset)

    sample = of(found, dataset, "map")
    assert sample is not None
    assert isinstance(sample.bytes, Quantity)
    assert sample.bytes.value == 4 * MIB
    assert held.windows[0] * sample.bytes.value <= WINDOW_BYTES


@pytest.mark.parametrize("mebibytes", [4, 24])
def test_caches_of_large_elements_are_small(monkeypatch: pytest.MonkeyPatch, mebibytes: int):
    """What a cache holds is bounded, also where little of it comes out of the pipeline."""
    held = Held(monkeypatch)
    dataset = Data.range(1000).map(large(mebibytes)).cache().map(lambda v: v[0])

    found = sampled(dataset, cores=1)

    assert of(found, dataset, "cache") is not None
    most = max(held.caches) * mebibytes * MIB
    assert most <= max(HELD_BYTES - WINDOW_BYTES, 2 * mebibytes * MIB), held.caches


def test_stop_is_heard():
    """Whoever says stop gets nothing, and the reason."""
    found = sampled(Data.range(10).map(lambda v: v + 1), stop=True)

    assert found.samples == []
    assert "budget" in found.missing
    assert isinstance(found.overhead, Missing)


def test_no_element_is_begun_that_would_come_too_late():
    """Nothing ends an element that is being made: one that would outlast the time is not asked for."""
    naps = Naps()

    found = sample_stages(
        DatasetGraph.of(Data.range(1 << 40).map(naps)),
        cores=2,
        until=time.perf_counter() + 20.0,
        clock=time.perf_counter,
        should_stop=lambda: False,
        longest_s=60.0,
    )

    assert found.samples == []
    assert naps.slept == []
    assert "budget" in found.missing


def test_slow_elements_end_in_time():
    """What the first element took is kept free for the last one."""
    naps = Naps(0.2)
    until = time.perf_counter() + 1.0
    found = sample_stages(
        DatasetGraph.of(Data.range(1 << 40).map(naps)),
        cores=2,
        until=until,
        clock=time.perf_counter,
        should_stop=lambda: False,
    )
    assert "budget" in found.missing
    assert 2 <= len(naps.slept) <= 5


def test_a_stage_that_time_is_too_short_for_is_a_gap():
    """The only stage gave one element and no time to take more: that is said, and not left out."""

    def slow() -> Any:
        while True:
            time.sleep(0.2)
            yield 1

    found = sampled(Data.from_generator(slow, output_signature=tf.TensorSpec((), tf.int64)), seconds=0.3)
    assert found.samples == []
    assert "budget" in found.missing


def test_little_time_is_shared():
    """A stage is known once all below it are, so each gets a part of the time."""
    dataset = Data.range(1000)
    for _ in range(8):
        dataset = dataset.map(lambda v: v + 1)

    found = sampled(dataset, cores=1, seconds=enough(3.2))

    assert sum(s.kind == "prefix" for s in found.samples) == 9


def test_no_time_at_all():
    """When the time is over before it begins nothing is run."""
    clock = FakeClock()
    naps = Naps()

    found = sample_stages(
        DatasetGraph.of(Data.range(10).map(naps)),
        cores=2,
        until=clock.at,
        clock=clock,
        should_stop=lambda: False,
    )

    assert found.samples == []
    assert naps.slept == []


def test_a_stage_that_fails_is_a_gap():
    """A function that raises leaves its stages without a sample, and the reason names the stage."""

    def broken(v: Any) -> Any:
        raise OSError("no such file")

    dataset = Data.range(10).map(lambda v: tf.numpy_function(broken, [v], tf.int64))

    found = sampled(dataset)

    assert of(found, dataset, "range") is not None
    assert of(found, dataset, "map") is None
    assert "map" in found.missing


def test_an_empty_stage_has_no_sample():
    """What gives no element costs nothing that could be told."""
    dataset = Data.range(10).filter(lambda v: v > 100)

    found = sampled(dataset)

    assert of(found, dataset, "filter") is None
    assert of(found, dataset, "range") is not None


def test_a_pipeline_that_can_not_be_made_serial(monkeypatch: pytest.MonkeyPatch):
    """The reason is told."""

    def refuse(self: DatasetGraph) -> DatasetGraph:
        raise CannotEdit("an unknown stage")

    monkeypatch.setattr(DatasetGraph, "serial", refuse)

    found = sampled(Data.range(10))

    assert (found.samples, found.missing) == ([], "an unknown stage")


ELEMENT_BYTES = 4 * 250_000


@pytest.mark.parametrize(
    ("room", "kinds"), [(3 * ELEMENT_BYTES, {"prefix", "parallel"}), (3 * ELEMENT_BYTES - 1, {"prefix"})]
)
def test_threads_share_the_room(monkeypatch: pytest.MonkeyPatch, room: int, kinds: set[str]) -> None:
    """A function runs on all cores only where an element for each, and one more, may be held at once."""
    monkeypatch.setattr(samples, "_TOGETHER_BYTES", room)
    dataset = tf.data.Dataset.range(1 << 40).map(lambda _: tf.random.uniform((250_000,)))
    found = sample_stages(
        DatasetGraph.of(dataset, ""),
        cores=2,
        until=time.perf_counter() + 20.0,
        clock=time.perf_counter,
        should_stop=lambda: False,
    )
    assert {sample.kind for sample in found.samples} == kinds


def test_files_are_read_several_at_a_time():
    """Sources that nap overlap: with sixteen at a time an element takes far less."""
    nap = Naps()
    several = Data.range(32).flat_map(lambda start: Data.range(start, start + 4).map(nap))
    found = sampled(several)
    (one,) = [sample for sample in found.samples if sample.kind == "interleaved"]
    assert one.threads == 16
    alone = next(sample for sample in found.samples if (sample.kind, sample.node) == ("prefix", one.node))
    assert sum(one.wall_s) / one.elements < 0.5 * sum(alone.wall_s) / alone.elements


def test_a_source_of_files_is_interleaved_though_something_else_costs_more():
    """The costliest stage may be a map, or seem so in a slow second: its source is tried too."""
    nap = Naps()
    source = Data.range(32).flat_map(lambda start: Data.range(start, start + 4).map(nap))
    found = sampled(source.map(nap).map(nap))
    (one,) = [sample for sample in found.samples if sample.kind == "interleaved"]
    assert one.threads == 16


def test_what_makes_no_datasets_is_not_interleaved():
    """Neither a map nor a generator."""
    for dataset in (Data.range(32).map(Naps()), Data.from_generator(lambda: iter(range(9)), tf.int64)):
        assert not [sample for sample in sampled(dataset).samples if sample.kind == "interleaved"]


def test_quick_elements_come_in_large_windows():
    """One by one most of their time is the way through Python, so the window grows with what it shows."""
    (one,) = [s for s in sampled(Data.range(1 << 40)).samples if s.kind == "prefix"]
    assert one.elements / len(one.wall_s) >= 1000


def test_a_probe_that_fails_is_not_shown(capfd: pytest.CaptureFixture[str]):
    """A function that takes no batches is an answer, and no line on the caller's stderr."""
    sampled(Data.range(64).map(lambda n: tf.reshape(n, ()) + 1).batch(8))
    assert "INVALID_ARGUMENT" not in capfd.readouterr().err


@pytest.mark.parametrize("count", [1, 3, 12, 13, 14, 23, 24, 400])
def test_parts_are_equal(count: int):
    """Or their median would be that of longer or shorter ones: 14 windows in 12 parts are mostly one each."""
    kept = samples._in_equal_parts([0.02] * count)
    assert kept.shape[0] == min(12, count)
    assert 0 <= count - kept.size < 12
    assert kept.sum(axis=1) == pytest.approx(0.02 * kept.size / kept.shape[0])


def test_windows_of_the_same_time_give_that_time():
    """A function that takes two milliseconds costs as many, however many windows there was time for."""
    found = sampled(Data.range(1 << 40).map(spinning), seconds=2.0)
    each = [
        float(np.median(s.wall_s)) * len(s.wall_s) / s.elements for s in found.samples if s.kind == "prefix"
    ]
    assert max(each) >= NAP_S * 0.99

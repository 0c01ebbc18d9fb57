"""A dataset's graph is read in the caller's words, and its edits keep what the pipeline yields."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfdiag.compat.tfgraph import CannotEdit, DatasetGraph, GraphUnavailable, generator_is_one_shot
from tfdiag.model.pipeline import Node

Data = tf.data.Dataset
COUNT = 20
NUMBER = tf.TensorSpec((), tf.int64)


def increment(v: Any) -> Any:
    """Stand for a function of the caller's."""
    return v + 1


def scaled(factor: int, v: Any) -> Any:
    """Stand for one that the caller gave an argument."""
    return v * factor


def in_python(v: Any) -> Any:
    """Call back into Python."""
    return tf.numpy_function(lambda w: w, [v], tf.int64)


def noisy(v: Any) -> Any:
    """Draw a random number."""
    return v + tf.random.uniform((), maxval=3, dtype=tf.int64)


def seeded(v: Any) -> Any:
    """Draw what the element says."""
    return v + tf.random.stateless_uniform((), [v, 1], maxval=3, dtype=tf.int64)


@tf.function
def compiled(v: Any) -> Any:
    """Be a function of TensorFlow's."""
    return noisy(v)


def is_even(v: Any) -> Any:
    """Choose elements."""
    return v % 2 == 0


def some(v: Any) -> Any:
    """Make a dataset of an element."""
    return Data.range(v, v + 3)


def generate() -> Any:
    """Stand for a generator of the caller's."""
    yield from range(COUNT)


class Loader:
    """Stands for an object of the caller's."""

    def __call__(self, v: Any) -> Any:
        """Be called itself."""
        return v

    def load(self, v: Any) -> Any:
        """Be called by name."""
        return v


def numbers(count: int = COUNT) -> Any:
    """Give some numbers."""
    return Data.range(count)


def generated() -> Any:
    """Give numbers that Python makes."""
    return Data.from_generator(generate, output_signature=NUMBER)


def values(dataset: Any) -> list[Any]:
    """Give all elements as Python has them."""
    return [v.tolist() if hasattr(v, "tolist") else v for v in dataset.as_numpy_iterator()]


def find(graph: DatasetGraph, word: str) -> int:
    """Give the id of the stage with this label."""
    return next(node.id for node in graph.nodes if node.label.startswith(word))


def labels(dataset: Any) -> list[str]:
    """List what the caller wrote."""
    return [node.label for node in DatasetGraph.of(dataset).nodes]


def same(left: Any, right: Any, *, ordered: bool = True) -> None:
    """Assert that two datasets yield the same."""
    a, b = values(left), values(right)
    if ordered:
        assert a == b
    else:
        assert Counter(map(str, a)) == Counter(map(str, b))


# Reading --------------------------------------------------------------------------------------


@pytest.fixture(name="records")
def _records(tmp_path: Path) -> list[str]:
    paths = []
    for part in range(3):
        paths.append(str(tmp_path / f"part-{part}"))
        with tf.io.TFRecordWriter(paths[-1], "GZIP") as writer:
            for k in range(3):
                writer.write(b"%d" % (10 * part + k))
    return paths


READ: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "usual": (
        lambda: numbers().shuffle(100).map(increment, -1).batch(4, True).prefetch(-1),
        [
            "range(…)",
            "shuffle(100)",
            "map(increment, num_parallel_calls=tf.data.AUTOTUNE)",
            "batch(4, drop_remainder=True)",
            "prefetch(tf.data.AUTOTUNE)",
        ],
    ),
    "generator": (lambda: generated().batch(2), ["from_generator(generate)", "batch(2)"]),
    "partial": (lambda: numbers().map(functools.partial(scaled, 3)), ["range(…)", "map(scaled)"]),
    "object": (lambda: numbers().map(Loader()), ["range(…)", "map(Loader)"]),
    "method": (lambda: numbers().map(Loader().load), ["range(…)", "map(load)"]),
    "lambda": (lambda: numbers().map(lambda v: v), ["range(…)", "map(<lambda>)"]),
    "tf.function": (lambda: numbers().map(compiled), ["range(…)", "map(compiled)"]),
    "filter": (lambda: numbers().filter(is_even).cache(), ["range(…)", "filter(is_even)", "cache()"]),
    "interleave": (
        lambda: numbers().interleave(some, num_parallel_calls=2),
        ["range(…)", "interleave(some, num_parallel_calls=2)"],
    ),
    "flat_map": (lambda: numbers().flat_map(some), ["range(…)", "flat_map(some)"]),
    "counts": (
        lambda: numbers().repeat().take(5).skip(1).repeat(2).shard(2, 0),
        ["range(…)", "repeat()", "take(5)", "skip(1)", "repeat(2)", "shard()"],
    ),
    "zip": (lambda: Data.zip(numbers(), numbers(3)), ["range(…)", "range(…)", "zip(2 datasets)"]),
    "concatenate": (
        lambda: numbers().concatenate(numbers(3)),
        ["range(…)", "range(…)", "concatenate(2 datasets)"],
    ),
    "sample": (
        lambda: Data.sample_from_datasets([numbers(), numbers(3)]),
        ["range(…)", "range(…)", "sample_from_datasets(2 datasets)"],
    ),
    "choose": (
        lambda: Data.choose_from_datasets([numbers(), numbers(3)], numbers(2)),
        ["range(…)", "range(…)", "range(…)", "choose_from_datasets(2 datasets)"],
    ),
    "unbatch": (
        lambda: numbers().batch(4).unbatch().batch(4).rebatch(2),
        ["range(…)", "batch(4)", "unbatch()", "batch(4)", "rebatch()"],
    ),
    "window": (lambda: numbers().window(2), ["range(…)", "window(2)"]),
    "padded": (lambda: numbers().padded_batch(3), ["range(…)", "padded_batch(3)"]),
    "ragged": (lambda: Data.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])), ["from_tensor_slices(…)"]),
    "sparse": (lambda: Data.from_tensor_slices(tf.sparse.eye(3)), ["from_tensor_slices(…)"]),
    "strings": (lambda: Data.from_tensor_slices({"a": ["x", "y"]}), ["from_tensor_slices(…)"]),
    "nested": (lambda: Data.from_tensors(numbers()), ["from_tensors(…)"]),
    "random": (lambda: Data.random().take(2), ["random()", "take(2)"]),
    "scan": (
        lambda: numbers().scan(np.int64(0), lambda s, v: (s + v, s)).unique(),
        ["range(…)", "scan(<lambda>)", "unique()"],
    ),
    "options": (lambda: numbers().with_options(tf.data.Options()).take(1), ["range(…)", "take(1)"]),
    "parallel batch": (
        lambda: numbers().batch(2, num_parallel_calls=2),
        ["range(…)", "batch(2, num_parallel_calls=2)"],
    ),
}


@pytest.mark.parametrize("name", READ)
def test_what_was_written(name: str) -> None:
    """A pipeline is read in the caller's words; read again after a build it has the same stages."""
    make, expected = READ[name]
    dataset = make()
    graph = DatasetGraph.of(dataset)
    assert [node.label for node in graph.nodes] == expected
    assert [node.id for node in graph.nodes] == list(range(len(expected)))
    built = graph.build()
    assert built.element_spec == dataset.element_spec
    assert len(labels(built)) == len(expected)


def test_optionals_are_read() -> None:
    """A dataset of optionals is read."""
    dataset = Data.from_tensors(tf.experimental.Optional.from_value(1))
    assert labels(dataset) == ["from_tensors(…)"]


def test_group_by_window_is_read() -> None:
    """A stage with several functions is read."""
    dataset = numbers().group_by_window(lambda v: v % 2, lambda _, part: part.batch(2), 2)
    node = DatasetGraph.of(dataset).nodes[-1]
    assert node.function is not None
    assert node.function.datasets == ("BatchDatasetV2",)


def test_what_functions_do() -> None:
    """Python, random numbers, state and files are seen, also in functions that functions call."""
    steps = [increment, in_python, noisy, compiled, seeded]
    dataset = numbers()
    for step in steps:
        dataset = dataset.map(step)
    dataset = dataset.map(lambda v: (tf.io.read_file(tf.strings.as_string(v)), v))
    found = [node.function for node in DatasetGraph.of(dataset).nodes if node.function is not None]
    assert [function.python for function in found] == [False, True, False, False, False, False]
    assert [function.random for function in found] == [False, False, True, True, False, False]
    assert [function.stateful for function in found] == [False, True, True, True, False, False]
    assert [function.reads_files for function in found] == [False] * 5 + [True]
    assert all(function.ops > 0 for function in found)
    assert found[0].where == f"tests/unit/compat/test_tfgraph.py:{increment.__code__.co_firstlineno}"


def test_random_layers_of_keras() -> None:
    """A layer that keeps its seed in a variable is random."""
    layer = tf.keras.layers.RandomFlip(seed=1)
    node = DatasetGraph.of(Data.from_tensors(np.zeros((4, 4, 3), np.float32)).map(layer)).nodes[-1]
    assert node.function is not None
    assert (node.function.name, node.function.random) == ("RandomFlip", True)


def test_state_and_variables_are_own() -> None:
    """A function with a variable runs on a copy of its value."""
    variable = tf.Variable(3, dtype=tf.int64)
    dataset = numbers(3).map(lambda v: v + variable.assign_add(1))
    assert values(DatasetGraph.of(dataset).build()) == [4, 6, 8]
    assert int(variable) == 3


def test_numbers_of_stages() -> None:
    """Sizes, parallelism, order, cardinality and bytes are told."""
    dataset = (
        Data.from_tensor_slices(np.zeros((COUNT, 4), np.float32))
        .map(increment, num_parallel_calls=3, deterministic=False)
        .interleave(Data.from_tensors, cycle_length=2, block_length=3)
        .batch(4, drop_remainder=True)
        .shuffle(7, reshuffle_each_iteration=False, seed=1)
        .repeat()
    )
    source, mapped, mixed, batch, shuffle, repeat = DatasetGraph.of(dataset).nodes
    assert (source.cardinality, source.element_bytes) == (COUNT, 16)
    assert (mapped.parallelism, mapped.deterministic, mapped.cardinality) == (3, "false", COUNT)
    assert (mixed.cycle, mixed.parallelism, mixed.cardinality) == (2, None, None)
    assert (batch.size, batch.drop_remainder, batch.element_bytes) == (4, True, 64)
    assert (shuffle.size, shuffle.random) == (7, False)
    assert (repeat.size, repeat.cardinality) == (-1, -1)
    assert DatasetGraph.of(numbers().shuffle(3)).nodes[-1].random
    assert DatasetGraph.of(numbers().repeat()).nodes[-1].cardinality == -1


def test_large_data_is_not_needed_to_count() -> None:
    """The number of elements of large data in memory is known too."""
    dataset = Data.from_tensor_slices(np.zeros((5000, 100))).map(increment).batch(32)
    assert [node.cardinality for node in DatasetGraph.of(dataset).nodes] == [5000, 5000, 157]


def test_files(records: list[str], tmp_path: Path) -> None:
    """Files and their compression are found, in every dress of reading them."""
    size = sum(Path(path).stat().st_size for path in records)

    def read(path: Any) -> Any:
        return tf.data.TFRecordDataset(path, "GZIP")

    def last(dataset: Any) -> Node:
        node = DatasetGraph.of(dataset).nodes[-1]
        assert (node.files, node.compression) == ((3, size), "GZIP")
        return node

    for arguments in ({}, {"num_parallel_reads": 2}, {"num_parallel_reads": tf.data.AUTOTUNE}):
        node = last(tf.data.TFRecordDataset(records, "GZIP", **arguments))
        assert (node.label, node.op, node.inputs) == ("TFRecordDataset(3 files)", "TFRecordDataset", ())
    last(Data.from_tensor_slices(records).interleave(read, num_parallel_calls=2))
    listed = Data.list_files(str(tmp_path / "part-*"))
    node = last(tf.data.TFRecordDataset(listed, "GZIP"))
    assert (node.label, len(node.inputs)) == ("TFRecordDataset(…)", 1)
    assert labels(listed.flat_map(read)) == ["list_files(3 files)", "shuffle(3)", "flat_map(read)"]
    whole = Data.from_tensor_slices((records, [1, 2, 3])).shuffle(3).map(lambda f, _: tf.io.read_file(f))
    assert DatasetGraph.of(whole).nodes[-1].files == (3, size)
    zipped = Data.zip(Data.from_tensor_slices(records), numbers(3)).shuffle(3)
    zipped = zipped.map(lambda f, _: tf.io.read_file(f))  # as Keras reads folders of images
    assert DatasetGraph.of(zipped).nodes[-1].files == (3, size)
    assert DatasetGraph.of(tf.data.TextLineDataset(["gone"])).nodes[-1].label == "TextLineDataset(1 file)"
    assert DatasetGraph.of(tf.data.TextLineDataset(["gone"])).nodes[-1].files is None


def test_a_cache_on_disk_keeps_its_name_and_stays_untouched(tmp_path: Path) -> None:
    """The caller's file is named, and none is written."""
    path = str(tmp_path / "cache")
    graph = DatasetGraph.of(numbers().cache(path))
    assert graph.nodes[-1].cache_file == path
    assert graph.nodes[-1].label == f"cache({path!r})"
    assert values(graph.build()) == list(range(COUNT))
    assert list(tmp_path.iterdir()) == []


def test_captured_datasets_belong_to_the_function() -> None:
    """What a function takes from outside is no stage, but is named."""
    inner = numbers(3).shuffle(3)
    nodes = DatasetGraph.of(numbers().flat_map(lambda _: inner)).nodes
    assert len(nodes) == 2
    assert nodes[1].function is not None
    assert "ShuffleDatasetV3" in nodes[1].function.datasets


def test_datasets_without_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where TensorFlow refuses, its reason is told in one line."""

    def refuse(**_: Any) -> None:
        raise tf.errors.UnimplementedError(None, None, "no graph of this\nmore lines")

    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", refuse)
    with pytest.raises(GraphUnavailable, match=r"^no graph of this$"):
        DatasetGraph.of(numbers())


def test_options() -> None:
    """Options are read, changed, and applied."""
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = 2
    graph = DatasetGraph.of(numbers().with_options(options))
    assert (graph.options.deterministic, graph.options.threads, graph.options.autotune) == (False, 2, True)
    changed = graph.with_options(
        autotune=False, inject_prefetch=False, default_optimizations=False, threads=1
    )
    built = changed.build().options()
    assert built.autotune.enabled is False
    assert built.experimental_optimization.inject_prefetch is False
    assert built.experimental_optimization.apply_default_optimizations is False
    assert (built.deterministic, built.threading.private_threadpool_size) == (False, 1)
    assert graph.options.autotune
    assert graph.build().options() == options


# Edits ----------------------------------------------------------------------------------------


def usual() -> Any:
    """Give a pipeline with most kinds of stages."""
    return (
        numbers()
        .map(increment)
        .shuffle(COUNT, seed=3, reshuffle_each_iteration=False)
        .map(functools.partial(scaled, 2), num_parallel_calls=2)
        .filter(is_even)
        .batch(4)
        .prefetch(2)
    )


SAME: dict[str, Callable[[DatasetGraph], DatasetGraph]] = {
    "nothing": lambda graph: graph,
    "parallel": lambda graph: graph.parallel(1),
    "parallel with calls": lambda graph: graph.parallel(3, 4, deterministic=True),
    "prefetch": lambda graph: graph.prefetch(),
    "cache": lambda graph: graph.cache_after(3),
    "cache of the output": lambda graph: graph.cache_after(6),
    "tune": lambda graph: graph.tune(3),
    "remove": lambda graph: graph.remove(6),
    "set_size": lambda graph: graph.set_size(6, 5),
    "shuffle below map": lambda graph: graph.swap(2),
    "all": lambda graph: graph.parallel(1).cache_after(1).tune(3).remove(6).prefetch(3),
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("autotune", [True, False])
def test_edits_that_keep_elements(name: str, autotune: bool) -> None:
    """The same elements come in the same order; the graph and the dataset stay as they were."""
    dataset = usual()
    graph = DatasetGraph.of(dataset)
    before = graph.nodes
    edited = SAME[name](graph).with_options(autotune=autotune)
    built = edited.build()
    assert built.element_spec == dataset.element_spec
    same(built, dataset)
    assert graph.nodes == before == DatasetGraph.of(dataset).nodes
    same(graph.build(), dataset)
    written = {node.id: node.label.split("(")[0] for node in before}
    assert all(
        written.get(node.id, node.label.split("(")[0]) == node.label.split("(")[0] for node in edited.nodes
    )


def test_parallel() -> None:
    """A map becomes parallel, and says so."""
    graph = DatasetGraph.of(numbers().map(increment))
    edited = graph.parallel(1, deterministic=False)
    assert edited.nodes[1].label == "map(increment, num_parallel_calls=tf.data.AUTOTUNE)"
    assert (edited.nodes[1].op, edited.nodes[1].deterministic) == ("ParallelMapDataset", "false")
    same(edited.build(), numbers().map(increment), ordered=False)
    assert edited.parallel(1, 3).nodes[1].parallelism == 3
    assert edited.parallel(1, 3).tune(1).nodes[1].parallelism == -1


@pytest.mark.parametrize("make", [lambda: numbers().flat_map(some), lambda: numbers().interleave(some, 3)])
def test_interleave(make: Callable[[], Any]) -> None:
    """Inner datasets are read side by side."""
    dataset = make()
    graph = DatasetGraph.of(dataset)
    for edited in (
        graph.interleave(1),
        graph.interleave(1, 4, 2, deterministic=False),
        graph.parallel(1, 2),
        graph.interleave(1, 4, 2).tune(1),
    ):
        assert edited.nodes[1].op == "ParallelInterleaveDataset"
        same(edited.build(), dataset, ordered=False)
    same(graph.interleave(1, cycle=1, calls=1, deterministic=True).serial().build(), numbers().flat_map(some))


def test_interleave_of_files(records: list[str]) -> None:
    """A dataset of files reads several of them."""
    dataset = tf.data.TFRecordDataset(records, "GZIP")
    graph = DatasetGraph.of(dataset)
    edited = graph.interleave(graph.nodes[0].id, 3, 3)
    assert edited.nodes[0].label.startswith("TFRecordDataset(3 files)")
    assert (edited.nodes[0].cycle, edited.nodes[0].parallelism) == (3, 3)
    same(edited.build(), dataset, ordered=False)
    assert values(edited.build()) != values(dataset)
    legacy = tf.data.TFRecordDataset(records, "GZIP", num_parallel_reads=2)
    tuned = DatasetGraph.of(legacy).tune(find(DatasetGraph.of(legacy), "TFRecord"))
    same(tuned.build(), legacy, ordered=False)
    same(DatasetGraph.of(legacy).serial().build(), legacy, ordered=False)


def test_serial() -> None:
    """Nothing works ahead or side by side, and small buffers fill at once."""
    dataset = (
        numbers()
        .interleave(some, num_parallel_calls=2)
        .map(increment, num_parallel_calls=-1)
        .shuffle(1000)
        .prefetch(1)
        .batch(2, num_parallel_calls=2)
        .prefetch(2)
    )
    edited = DatasetGraph.of(dataset).serial()
    assert [node.op for node in edited.nodes] == [
        "RangeDataset",
        "InterleaveDataset",
        "MapDataset",
        "ShuffleDataset",
        "BatchDataset",
    ]
    assert edited.nodes[3].size == 8
    assert [node.id for node in edited.nodes] == [0, 1, 2, 3, 5]
    assert all(node.parallelism is None for node in edited.nodes)
    flat = Counter(v for batch in values(dataset) for v in batch)
    assert flat == Counter(v for batch in values(edited.build()) for v in batch)


def test_serial_within_functions() -> None:
    """Datasets that functions make work on one element at a time too."""

    def inner(v: Any) -> Any:
        made = some(v).interleave(some, num_parallel_calls=tf.data.AUTOTUNE)
        return made.map(increment, num_parallel_calls=2).batch(2, num_parallel_calls=2).prefetch(2)

    dataset = numbers(3).interleave(inner, num_parallel_calls=2).prefetch(1)
    edited = DatasetGraph.of(dataset).serial()
    function = edited.nodes[1].function
    assert function is not None
    assert function.name == "inner"
    assert sorted(function.datasets) == ["BatchDatasetV2", "InterleaveDataset", "MapDataset", "RangeDataset"]
    same(edited.build(), dataset, ordered=False)


def test_map_and_batch_apart() -> None:
    """An old map_and_batch is measured as its two stages."""
    variant = tf.raw_ops.MapAndBatchDataset(
        input_dataset=numbers()._variant_tensor,
        other_arguments=[],
        batch_size=4,
        num_parallel_calls=2,
        drop_remainder=False,
        f=numbers().map(increment)._map_func.function,
        output_types=[tf.int64],
        output_shapes=[[None]],
    )
    dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec((None,), tf.int64))
    graph = DatasetGraph.of(dataset)
    assert [node.op for node in graph.serial().nodes] == ["RangeDataset", "MapDataset", "BatchDataset"]
    same(graph.serial().build(), numbers().map(increment).batch(4))


def test_cut_window_and_repeat() -> None:
    """What a measurement needs goes together: serial, cut, endless, in windows."""
    graph = DatasetGraph.of(usual())
    built = graph.serial().cut(1).forever().windowed(16).build()
    windows = list(built.take(3))
    assert len(windows) == 3
    assert built.element_spec == tf.TensorSpec((), tf.variant)
    cut = graph.cut(1).build()
    assert cut.element_spec == NUMBER
    assert values(cut) == [v + 1 for v in range(COUNT)]
    assert values(graph.cut(1).forever().build().take(COUNT + 1))[-1] == 1
    pairs = Data.zip(numbers(), numbers()).map(lambda a, b: {"a": a, "b": b})
    assert DatasetGraph.of(pairs).build().element_spec == {"a": NUMBER, "b": NUMBER}
    assert DatasetGraph.of(pairs.batch(2)).cut(2).build().element_spec == (NUMBER, NUMBER)


def test_windows_of_packed_elements() -> None:
    """Windows of ragged elements are not taken for ragged elements."""
    dataset = Data.from_tensor_slices(tf.ragged.constant([[1], [2, 3], []]))
    assert len(list(DatasetGraph.of(dataset).windowed(2).build())) == 2
    assert len(list(DatasetGraph.of(dataset.batch(2)).cut(0).build())) == 3


def test_full_caches() -> None:
    """After its first pass a cache gives what it holds, and what lies below runs no more."""
    calls: list[int] = []

    def counted(v: Any) -> Any:
        calls.append(int(v))
        return v

    dataset = numbers().map(lambda v: tf.numpy_function(counted, [v], tf.int64)).cache().map(increment)
    edited = DatasetGraph.of(dataset).full_caches(4)
    assert values(edited.build().take(10)) == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert len(calls) == 4


def test_batch_below_map() -> None:
    """A function that takes batches gives the same from them, also where it read its static shape."""

    def rows(v: Any) -> Any:
        return tf.cast(v, tf.float32) * 2.0, tf.reduce_sum(v, axis=-1)

    data = np.arange(COUNT * 3).reshape(COUNT, 3)
    for drop in (True, False):
        dataset = Data.from_tensor_slices(data).map(rows, num_parallel_calls=2).batch(4, drop)
        graph = DatasetGraph.of(dataset)
        edited = graph.swap(2)
        assert [node.label.split("(")[0] for node in edited.nodes] == ["from_tensor_slices", "batch", "map"]
        assert [node.id for node in edited.nodes] == [0, 2, 1]
        built = edited.build()
        assert built.element_spec == dataset.element_spec
        for a, b in zip(built, dataset, strict=True):
            assert all(bool(tf.reduce_all(x == y)) for x, y in zip(a, b, strict=True))


def test_stages_below_maps() -> None:
    """Shuffle, take, skip, shard, cache and a filter of the same structure go below a map."""
    for step in (
        lambda data: data.take(5),
        lambda data: data.skip(5),
        lambda data: data.shard(2, 1),
        lambda data: data.cache(),
        lambda data: data.shuffle(4, seed=1),
    ):
        dataset = step(numbers().map(lambda v: tf.fill((2,), v)))
        edited = DatasetGraph.of(dataset).swap(2)
        assert edited.nodes[-1].id == 1
        same(edited.build(), dataset)
    filtered = numbers().map(lambda v: v + 2).filter(is_even)
    same(DatasetGraph.of(filtered).swap(2).build(), filtered)
    cached = numbers().cache().map(increment).batch(2)
    same(DatasetGraph.of(cached).swap(2).build(), cached)


def test_set_size() -> None:
    """Sizes change, with the shapes that they make."""
    graph = DatasetGraph.of(numbers().batch(4, drop_remainder=True).prefetch(1))
    built = graph.set_size(1, 5).build()
    assert built.element_spec.shape.as_list() == [5]
    same(built, numbers().batch(5))
    assert DatasetGraph.of(numbers().shuffle(3)).set_size(1, 9).nodes[1].size == 9
    same(DatasetGraph.of(numbers().take(3)).set_size(1, 9).build(), numbers(9))


REFUSED: dict[str, tuple[Callable[[], Any], Callable[[DatasetGraph], Any], str]] = {
    "no function": (lambda: numbers().batch(2), lambda graph: graph.parallel(1), "batch has no function"),
    "generator": (generated, lambda graph: graph.interleave(0), "one element after the other"),
    "below generator": (
        lambda: generated().take(3),
        lambda graph: graph.swap(1),
        "from_generator is a source",
    ),
    "no datasets": (lambda: numbers().map(increment), lambda graph: graph.interleave(1), "makes no datasets"),
    "source": (numbers, lambda graph: graph.swap(0), "range has no input"),
    "next to source": (lambda: numbers().batch(2), lambda graph: graph.swap(1), "range has no input"),
    "two inputs": (lambda: Data.zip(numbers(), numbers()), lambda graph: graph.remove(2), "2 inputs"),
    "another filter": (
        lambda: numbers().map(lambda v: tf.fill((2,), v)).filter(lambda v: v[0] > 2),
        lambda graph: graph.swap(2),
        "the predicate of filter takes what map makes",
    ),
    "take of batches": (lambda: numbers().batch(2).take(2), lambda graph: graph.swap(2), "counts or chooses"),
    "map of batches": (
        lambda: numbers().batch(2).map(increment),
        lambda graph: graph.swap(2),
        "can't go below",
    ),
    "ragged batch": (
        lambda: Data.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])).map(lambda v: v + 1).batch(2),
        lambda graph: graph.swap(2),
        "ragged",
    ),
    "removed map": (
        lambda: numbers().map(lambda v: tf.fill((2,), v)),
        lambda graph: graph.remove(1),
        "without map the elements would be others",
    ),
    "not tuned": (lambda: numbers().take(2), lambda graph: graph.tune(1), "no number of parallel calls"),
    "no size": (lambda: numbers().map(increment), lambda graph: graph.set_size(1, 3), "map has no size"),
    "fixed batches": (
        lambda: numbers().batch(2, True).map(increment),
        lambda graph: graph.set_size(1, 3),
        "batches of a fixed size",
    ),
    "unknown": (numbers, lambda graph: graph.cut(7), "there is no stage 7"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    """What can't be done is refused with a reason that the user understands."""
    make, edit, words = REFUSED[name]
    with pytest.raises(CannotEdit, match=words):
        edit(DatasetGraph.of(make()))


# Generators -----------------------------------------------------------------------------------


def test_one_shot_generators() -> None:
    """A generator that is used up after one pass is told from one that starts again."""

    def dataset(generator: Any) -> Any:
        return Data.from_generator(generator, output_signature=NUMBER).batch(2).prefetch(1)

    iterator = iter([1, 2])
    kept = [1, 2]
    assert generator_is_one_shot(dataset(lambda: iterator))
    assert not generator_is_one_shot(dataset(lambda: kept))
    assert not generator_is_one_shot(dataset(lambda: iter(kept)))
    assert not generator_is_one_shot(dataset(generate))
    assert not generator_is_one_shot(numbers())
    assert not generator_is_one_shot(None)

    def broken() -> Any:
        raise RuntimeError

    assert not generator_is_one_shot(dataset(broken))
    assert list(iterator) == [1, 2]


def test_a_graph_keeps_python_alive() -> None:
    """A built dataset calls the caller's Python also when nobody else holds it."""
    built = DatasetGraph.of(numbers(3).map(in_python)).build()
    assert values(built) == [0, 1, 2]


def test_a_snapshot_is_not_written_by_a_copy(tmp_path: Path):
    """A copy writes its own, but reads one that is complete; without a folder there is no copy."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    dataset = numbers().map(increment).snapshot(str(theirs))

    with pytest.raises(GraphUnavailable, match="snapshot"):
        DatasetGraph.of(dataset)
    copied = list(DatasetGraph.of(dataset, str(ours)).build().as_numpy_iterator())
    assert copied == list(range(1, COUNT + 1))
    assert not theirs.exists()
    assert ours.exists()

    list(dataset)
    written = sorted(theirs.rglob("*"))
    assert list(DatasetGraph.of(dataset).build().as_numpy_iterator()) == copied
    assert sorted(theirs.rglob("*")) == written

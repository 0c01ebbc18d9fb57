"""Copies of datasets that leave the original alone, and the names of what the caller wrote."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfdiag.compat import tfdata
from tfdiag.compat.tfdata import copy_dataset

COUNT = 12


def numbers(count: int = COUNT) -> tf.data.Dataset:
    """Give numbers from zero."""
    return tf.data.Dataset.range(count)


def values(dataset: Any) -> list[Any]:
    """Go through a dataset."""
    return [np.asarray(value).tolist() for value in dataset.as_numpy_iterator()]


def copied(dataset: Any, folder: Path) -> Any:
    """Copy a dataset that can be copied."""
    copy = copy_dataset(dataset, str(folder))
    assert copy.why_not == ""
    assert copy.dataset.element_spec == dataset.element_spec
    return copy.dataset


# Shuffles ------------------------------------------------------------------------------------


def inside(word: str) -> Callable[..., tf.data.Dataset]:
    """Give a dataset that shuffles within a function of another."""

    def make(**kwargs: Any) -> tf.data.Dataset:
        def part(k: Any) -> tf.data.Dataset:
            return numbers(4).map(lambda v: v + 4 * k).shuffle(4, **kwargs)

        source = numbers(3)
        return source.flat_map(part) if word == "flat_map" else source.interleave(part, cycle_length=3)

    return make


SHUFFLED: dict[str, Callable[..., tf.data.Dataset]] = {
    "shuffle": lambda **kwargs: numbers().shuffle(COUNT, **kwargs),
    "in the middle": lambda **kwargs: (
        numbers().shuffle(COUNT, **kwargs).map(lambda v: v).batch(2).prefetch(1)
    ),
    "shuffled twice": lambda **kwargs: numbers().shuffle(5, **kwargs).shuffle(COUNT, **kwargs),
    "shuffle and repeat": lambda **kwargs: numbers().shuffle(COUNT, **kwargs).repeat(2),
    "zipped": lambda **kwargs: tf.data.Dataset.zip(numbers(), numbers().shuffle(COUNT, **kwargs)).map(
        lambda a, b: a * 100 + b
    ),
    "in interleave": inside("interleave"),
    "in flat_map": inside("flat_map"),
}


@pytest.mark.parametrize("each", [True, False], ids=["reshuffled", "fixed"])
@pytest.mark.parametrize("name", SHUFFLED)
def test_the_originals_order_is_not_moved(name: str, each: bool, tmp_path: Path) -> None:
    """After a copy was iterated, a seeded dataset gives the epochs that its twin gives."""
    make = SHUFFLED[name]
    dataset, twin = (make(seed=7, reshuffle_each_iteration=each) for _ in range(2))
    copy = copied(dataset, tmp_path)
    for _ in range(2):
        assert len(values(copy)) == len(values(make(seed=7)))
    for _ in range(3):
        assert values(dataset) == values(twin)


def test_the_middle_of_the_originals_life(tmp_path: Path) -> None:
    """A dataset that has been iterated before goes on from there."""
    dataset, twin = (numbers().shuffle(COUNT, seed=3) for _ in range(2))
    assert values(dataset) == values(twin)
    iterator, other = iter(dataset), iter(twin)
    started = [int(next(iterator)) for _ in range(3)]
    assert started == [int(next(other)) for _ in range(3)]
    copy = copied(dataset, tmp_path)
    values(copy)
    assert [int(v) for v in iterator] == [int(v) for v in other]
    assert values(dataset) == values(twin)


def test_an_unseeded_shuffle_draws_from_nothing(tmp_path: Path) -> None:
    """An unseeded copy is still shuffled, anew in each epoch, and its order is no seeded one's."""
    dataset = numbers(50).shuffle(50)
    copy = copied(dataset, tmp_path)
    first, second = values(copy), values(copy)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert first != list(range(50))
    assert sorted(values(dataset)) == list(range(50))


def test_a_global_seed_holds_for_the_original(tmp_path: Path) -> None:
    """With a global seed, the epochs of a dataset are the same whether a copy ran before or not."""
    runs = []
    for copy_it in (False, True):
        tf.random.set_seed(9)
        dataset = numbers(30).shuffle(30)
        if copy_it:
            values(copied(dataset, tmp_path))
        runs.append([values(dataset), values(dataset)])
    assert runs[0] == runs[1]


# Caches --------------------------------------------------------------------------------------


class Counted:
    """A dataset that counts the elements it makes."""

    def __init__(self) -> None:
        """Count from zero."""
        self.made = 0
        self.dataset = numbers().map(
            lambda v: tf.ensure_shape(tf.numpy_function(self._make, [v], tf.int64), [])
        )

    def _make(self, v: np.int64) -> np.int64:
        self.made += 1
        return v


@pytest.mark.parametrize("where", ["outer", "inner"])
def test_a_cache_in_memory_is_not_filled(where: str, tmp_path: Path) -> None:
    """Going through the copy fills the copy's cache, not the caller's, wherever the cache stands."""
    counted = Counted()
    if where == "outer":
        dataset = counted.dataset.cache()
    else:
        dataset = numbers(1).flat_map(lambda _: counted.dataset.cache())
    copy = copied(dataset, tmp_path)
    assert values(copy) == list(range(COUNT))
    assert counted.made == COUNT
    if where == "outer":
        values(copy)
        assert counted.made == COUNT
    assert values(dataset) == list(range(COUNT))
    assert counted.made == 2 * COUNT


def test_a_filled_cache_stays_filled(tmp_path: Path) -> None:
    """The caller's cache that is full stays so, though the copy fills its own."""
    counted = Counted()
    dataset = counted.dataset.cache()
    values(dataset)
    values(copied(dataset, tmp_path))
    made = counted.made
    values(dataset)
    assert counted.made == made


@pytest.mark.parametrize("where", ["outer", "inner"])
def test_a_cache_on_disk_is_not_written(where: str, tmp_path: Path) -> None:
    """A copy's file cache goes to the private folder; the caller's folder stays empty."""
    own, private, counted = tmp_path / "own", tmp_path / "private", Counted()
    own.mkdir()
    private.mkdir()
    dataset = counted.dataset.cache(str(own / "cache"))
    if where == "inner":
        inner = dataset
        dataset = numbers(1).flat_map(lambda _: inner)
    assert values(copied(dataset, private)) == list(range(COUNT))
    assert list(own.iterdir()) == []
    assert any(private.iterdir())
    assert values(dataset) == list(range(COUNT))
    assert counted.made == 2 * COUNT
    assert any(own.iterdir())


def test_a_cache_on_disk_within_a_function(tmp_path: Path) -> None:
    """A file cache that a function makes is found there, and no other constant is mistaken for it."""
    own, private = tmp_path / "own", tmp_path / "private"
    own.mkdir()
    private.mkdir()

    def part(_: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(["x", "y"]).shuffle(2, seed=1).cache(str(own / "cache"))

    dataset = tf.data.Dataset.from_tensors("text").flat_map(part).cache()
    assert sorted(values(copied(dataset, private))) == [b"x", b"y"]
    assert list(own.iterdir()) == []
    assert any(private.iterdir())


def test_a_cache_on_disk_with_a_computed_name(tmp_path: Path) -> None:
    """A file cache whose name nobody knows before it runs can't be sent elsewhere, and that is said."""
    folder = str(tmp_path / "own-")

    def part(k: Any) -> tf.data.Dataset:
        return numbers(2).cache(tf.strings.join([folder, tf.strings.as_string(k)]))

    dataset = numbers(2).flat_map(part)
    copy = copy_dataset(dataset, str(tmp_path))
    assert copy.dataset is dataset
    assert "computed" in copy.why_not


def test_state_within_captured_datasets(tmp_path: Path) -> None:
    """A shuffled dataset that a function takes from outside is the copy's own too."""

    def make() -> tf.data.Dataset:
        inner = numbers().shuffle(COUNT, seed=4)
        return numbers(2).flat_map(lambda _: inner)

    dataset, twin = make(), make()
    values(copied(dataset, tmp_path))
    assert values(dataset) == values(twin)


def test_two_caches_on_disk_stay_two(tmp_path: Path) -> None:
    """Two file caches of one pipeline don't become one in the private folder."""
    own, private = tmp_path / "own", tmp_path / "private"
    own.mkdir()
    private.mkdir()
    first = numbers(3).cache(str(own / "a"))
    second = first.map(lambda v: v * 10).cache(str(own / "b"))
    third = numbers(3).map(lambda v: v * 100).cache(str(own / "c"))
    both = tf.data.Dataset.zip(second, third).map(lambda a, b: a + b)
    expected = [0, 110, 220]
    copy = copied(both, private)
    assert values(copy) == expected
    assert values(copy) == expected
    assert list(own.iterdir()) == []


def test_a_complete_cache_on_disk_is_read(tmp_path: Path) -> None:
    """Where the caller's file cache is complete, the copy reads it as the job would."""
    counted = Counted()
    dataset = counted.dataset.cache(str(tmp_path / "cache"))
    values(dataset)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    private = tmp_path / "private"
    private.mkdir()
    assert values(copied(dataset, private)) == list(range(COUNT))
    assert counted.made == COUNT
    assert list(private.iterdir()) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == kept


# What a copy is ------------------------------------------------------------------------------


def test_a_dataset_without_state_is_itself(tmp_path: Path) -> None:
    """What keeps nothing between iterations needs no copy."""
    dataset = numbers().map(lambda v: v + 1).batch(2).prefetch(1)
    assert copy_dataset(dataset, str(tmp_path)).dataset is dataset


def test_options_and_spec_are_kept(tmp_path: Path) -> None:
    """A copy has the options, the element spec and the length of the original."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = False
    options.threading.private_threadpool_size = 3
    rows = tf.data.Dataset.from_tensor_slices({"a": tf.zeros((10, 2)), "b": tf.ones(10, tf.int32)})
    dataset = rows.shuffle(10).batch(4).map(lambda row: (row, row["b"])).with_options(options)
    copy = copied(dataset, tmp_path)
    assert copy.options() == dataset.options()
    assert copy.options().autotune.enabled is False
    assert copy.element_spec[0]["a"].shape.as_list() == [None, 2]
    assert tfdata.cardinality(copy) == 3


def test_a_long_pipeline(tmp_path: Path) -> None:
    """More than ten transformations, with every kind of state, are copied as a whole."""
    counted = Counted()
    dataset = counted.dataset.cache().shuffle(COUNT, seed=1)
    for _ in range(5):
        dataset = dataset.map(lambda v: v + 1, num_parallel_calls=2)
    dataset = dataset.filter(lambda v: v >= 0).repeat(2).take(20).skip(2).batch(3).unbatch()
    dataset = dataset.shuffle(5, seed=2).padded_batch(4).prefetch(2)
    copy = copied(dataset, tmp_path)
    assert len(np.concatenate(values(copy))) == 18
    assert counted.made == COUNT
    first = values(dataset)
    assert counted.made == 2 * COUNT
    assert len(np.concatenate(first)) == 18


def test_ragged_and_sparse_elements(tmp_path: Path) -> None:
    """Elements that are no plain tensors keep their kind."""
    ragged = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])).shuffle(2, seed=1)
    sparse = tf.data.Dataset.from_tensor_slices(tf.sparse.eye(2)).shuffle(2, seed=1)
    for dataset in (ragged, sparse):
        assert len(list(copied(dataset, tmp_path))) == 2


def test_a_generator_is_called_again(tmp_path: Path) -> None:
    """A copy of from_generator calls the caller's function, as another epoch would."""
    calls: list[int] = []

    def generate() -> Any:
        calls.append(1)
        yield from range(COUNT)

    spec = tf.TensorSpec((), tf.int64)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=spec).shuffle(COUNT)
    assert sorted(values(copied(dataset, tmp_path))) == list(range(COUNT))
    assert len(calls) == 1


def test_why_a_dataset_cannot_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where TensorFlow refuses, the caller's own dataset is used and the reason is told."""
    dataset = numbers().shuffle(COUNT)

    def refuse(**_: Any) -> None:
        raise tf.errors.UnimplementedError(None, None, "no graph of this\nmore lines")

    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", refuse)
    copy = copy_dataset(dataset, str(tmp_path))
    assert copy.dataset is dataset
    assert "no graph of this" in copy.why_not
    assert "more lines" not in copy.why_not
    assert "its own state moved on" in copy.why_not


def test_a_dataset_that_really_cannot_be_serialised(tmp_path: Path) -> None:
    """A dataset that holds a lookup table keeps working, copied or with the reason why not."""
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, -2, -3)
    table.insert(tf.range(COUNT, dtype=tf.int64), tf.range(COUNT, dtype=tf.int64) * 2)
    dataset = numbers().map(table.lookup).shuffle(COUNT)
    copy = copy_dataset(dataset, str(tmp_path))
    assert sorted(values(copy.dataset)) == [2 * k for k in range(COUNT)]
    assert copy.dataset is not dataset or copy.why_not


@pytest.mark.parametrize("gone", ["_variant_tensor", "_VariantDataset"])
def test_private_names_that_are_gone(gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TensorFlow without one of the private names costs the copy, not the diagnosis."""
    dataset = numbers().shuffle(COUNT)
    if gone == "_variant_tensor":
        monkeypatch.delattr(dataset, "_variant_tensor_attr", raising=False)
    else:
        from tensorflow.python.data.ops import dataset_ops

        monkeypatch.delattr(dataset_ops, "_VariantDataset")
    copy = copy_dataset(dataset, str(tmp_path))
    assert copy.dataset is dataset
    assert "can't be copied" in copy.why_not


# Facts ---------------------------------------------------------------------------------------


def test_cardinality() -> None:
    """A length is a number, -1 for endless, None for unknown; batches and distribution are counted."""
    assert tfdata.cardinality(numbers().batch(5)) == 3
    assert tfdata.cardinality(numbers().repeat()) == -1
    assert tfdata.cardinality(numbers().filter(lambda v: v > 3)) is None
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    assert tfdata.cardinality(strategy.experimental_distribute_dataset(numbers().batch(4))) == 3


def test_kinds() -> None:
    """Datasets, distributed datasets and iterators are told apart."""
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    distributed = strategy.experimental_distribute_dataset(numbers().batch(2))
    assert (tfdata.is_dataset(numbers()), tfdata.is_dataset([1]), tfdata.is_dataset(distributed)) == (
        True,
        False,
        False,
    )
    assert (tfdata.is_distributed(distributed), tfdata.is_distributed(numbers())) == (True, False)
    assert tfdata.is_iterator(iter(numbers())) and tfdata.is_iterator(iter(distributed))
    assert not tfdata.is_iterator(iter([1]))


def test_autotune_and_injected_prefetch() -> None:
    """What the caller's options say of tuning is what is told; without options both are on."""
    dataset = numbers()
    assert (tfdata.autotune_enabled(dataset), tfdata.prefetch_injected(dataset)) == (True, True)
    for setting, expected in (
        ("autotune.enabled", (False, False)),
        ("experimental_optimization.inject_prefetch", (True, False)),
        ("experimental_optimization.apply_default_optimizations", (True, False)),
    ):
        options = tf.data.Options()
        group, name = setting.split(".")
        setattr(getattr(options, group), name, False)
        changed = dataset.with_options(options).map(lambda v: v)
        assert (tfdata.autotune_enabled(changed), tfdata.prefetch_injected(changed)) == expected
    assert tfdata.autotune_enabled(None)


# Names ---------------------------------------------------------------------------------------


def decode(v: Any) -> Any:
    """Stand for a function of the caller's."""
    return v + 1


def parse(v: Any) -> Any:
    """Stand for one that takes what a file holds."""
    return tf.strings.length(v)


def my_generator(v: Any) -> Any:
    """Have a name that means nothing."""
    return tf.data.Dataset.from_tensors(v)


def generate() -> Any:
    """Stand for a generator of the caller's."""
    yield 1


SLICES = tf.data.Dataset.from_tensor_slices(np.arange(8))

CHAINS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "slices": (lambda: SLICES, ["from_tensor_slices(…)"]),
    "tensors": (lambda: tf.data.Dataset.from_tensors(1), ["from_tensors(…)"]),
    "range": (numbers, ["range(…)"]),
    "lambda": (lambda: SLICES.map(lambda v: v), ["from_tensor_slices(…)", "map(<lambda>)"]),
    "named": (lambda: SLICES.map(decode).batch(4), ["from_tensor_slices(…)", "map(decode)", "batch(4)"]),
    "parallel map": (
        lambda: SLICES.map(decode, num_parallel_calls=tf.data.AUTOTUNE),
        ["from_tensor_slices(…)", "map(decode, num_parallel_calls=…)"],
    ),
    "usual": (
        lambda: SLICES.shuffle(100).repeat().batch(32, drop_remainder=True).prefetch(2),
        ["from_tensor_slices(…)", "shuffle(100)", "repeat()", "batch(32)", "prefetch(2)"],
    ),
    "counts": (
        lambda: SLICES.repeat(3).take(5).skip(1),
        ["from_tensor_slices(…)", "repeat(3)", "take(5)", "skip(1)"],
    ),
    "autotuned prefetch": (
        lambda: SLICES.prefetch(tf.data.AUTOTUNE),
        ["from_tensor_slices(…)", "prefetch(tf.data.AUTOTUNE)"],
    ),
    "cache": (SLICES.cache, ["from_tensor_slices(…)", "cache()"]),
    "filter": (
        lambda: SLICES.filter(lambda v: v > 2).cache(),
        ["from_tensor_slices(…)", "filter(<lambda>)", "cache()"],
    ),
    "zip": (lambda: tf.data.Dataset.zip(SLICES, SLICES).batch(2), ["2 sources", "zip()", "batch(2)"]),
    "interleave": (
        lambda: numbers().interleave(tf.data.Dataset.from_tensors, num_parallel_calls=2),
        ["range(…)", "interleave(from_tensors, num_parallel_calls=…)"],
    ),
    "a generator by name only": (
        lambda: numbers().flat_map(my_generator),
        ["range(…)", "flat_map(my_generator)"],
    ),
    "flat_map": (
        lambda: numbers().flat_map(tf.data.Dataset.from_tensors),
        ["range(…)", "flat_map(from_tensors)"],
    ),
    "generator": (
        lambda: tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int32)).batch(
            2
        ),
        ["from_generator", "batch(2)"],
    ),
    "files": (
        lambda: tf.data.TFRecordDataset(["a.tfrecord"]).map(parse),
        ["TFRecordDataset(…)", "map(parse)"],
    ),
    "text": (lambda: tf.data.TextLineDataset(["a.txt"]), ["TextLineDataset(…)"]),
    "options": (lambda: SLICES.with_options(tf.data.Options()), ["from_tensor_slices(…)"]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_what_was_written(name: str) -> None:
    """A pipeline is told in the caller's own words, source first."""
    make, expected = CHAINS[name]
    assert tfdata.written_chain(make()) == expected


def test_functions_that_call_python() -> None:
    """The caller's functions are listed, last first, with whether they call back into Python."""

    def in_python(v: Any) -> Any:
        return tf.numpy_function(lambda w: w, [v], tf.int64)

    def eagerly(v: Any) -> Any:
        return tf.py_function(lambda w: w, [v], tf.int64)

    @tf.function
    def nested(v: Any) -> Any:
        return in_python(v)

    dataset = SLICES.map(decode).map(in_python).map(eagerly).map(nested).batch(2)
    assert tfdata.written_functions(dataset) == [
        ("nested", True),
        ("eagerly", True),
        ("in_python", True),
        ("decode", False),
    ]


# Comparing elements --------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "same"), [(None, True), (0, False), (70_000, False), (-1, False)])
def test_large_elements_are_compared_in_parts(at: int | None, same: bool) -> None:
    """A difference is found wherever it is, and a comparison needs no copy of what it compares."""
    one = np.zeros((2000, 1000), np.float32)
    other = one.copy()
    if at is not None:
        other.reshape(-1)[at] = 1.0
    elements = tf.constant(one), tf.constant(other)
    tracemalloc.start()
    try:
        assert tfdata.same_values(*elements) is same
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < one.nbytes / 2


def test_elements_without_values_are_equal() -> None:
    """What is empty, or a single value, is compared as well."""
    assert tfdata.same_values(tf.zeros((0, 3)), tf.zeros((0, 3)))
    assert not tfdata.same_values(tf.zeros((0, 3)), tf.zeros((0, 4)))
    assert tfdata.same_values(tf.constant("a"), tf.constant("a"))
    assert not tfdata.same_values(tf.constant("a"), tf.constant("b"))

"""What the caller trains on, told apart and given afresh for each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.integration import jobs
from tfdiag.collect.inputs import Input, check_data, resolve_input
from tfdiag.errors import DatasetError, UsageError

X, Y = np.zeros((20, 4), "float32"), np.zeros((20, 1), "float32")


def resolve(dataset: Any = None, *, custom: bool = False, **kwargs: Any) -> Input:
    """Resolve with what is usually not given."""
    fit_kwargs = kwargs.pop("fit_kwargs", {})
    return resolve_input(
        dataset, y=kwargs.pop("y", None), batch_size=kwargs.pop("batch_size", None), fit_kwargs=fit_kwargs,
        custom=custom,
    )  # fmt: skip


def generate() -> Any:
    """Give three batches."""
    yield from ((X + k, Y) for k in range(3))


class Batches:
    """Can be iterated again and again, and is nothing that Keras knows."""

    def __iter__(self) -> Any:
        """Begin anew."""
        return generate()


KINDS: dict[str, tuple[Callable[[], Any], str, bool]] = {
    "dataset": (lambda: jobs.batches(3), "tf.data.Dataset", False),
    "distributed": (
        lambda: tf.distribute.OneDeviceStrategy("/cpu:0").experimental_distribute_dataset(jobs.batches(3)),
        "distributed dataset",
        False,
    ),
    "PyDataset": (lambda: jobs.SlowBatches(3), "PyDataset", False),
    "endless PyDataset": (lambda: jobs.SlowBatches(None), "PyDataset", False),
    "generator": (generate, "generator", True),
    "iterator": (lambda: iter([1, 2]), "generator", True),
    "generator function": (lambda: generate, "generator function", False),
    "array": (lambda: X, "arrays", False),
    "dict": (lambda: {"a": X, "b": X}, "arrays", False),
    "list": (lambda: [X, X], "arrays", False),
    "tensor": (lambda: tf.zeros((5, 2)), "arrays", False),
    "iterable": (Batches, "Batches", False),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str) -> None:
    """Every kind of input is told by its name, and whether it can be read once only."""
    make, kind, one_shot = KINDS[name]
    source = resolve(make())
    assert (source.kind, source.one_shot) == (kind, one_shot)


def test_a_callable_object_is_a_source_for_a_loop_of_ones_own() -> None:
    """Only a custom loop may have any callable as its source of batches."""

    class Makes:
        def __call__(self) -> Any:
            return generate()

    assert resolve(Makes(), custom=True).kind == "generator function"
    with pytest.raises(DatasetError, match=r"Makes: pass a tf\.data\.Dataset"):
        resolve(Makes())


def test_pairs_of_arrays() -> None:
    """A tuple of two or three is inputs, targets and weights, unless targets are given beside it."""
    weights = np.ones(20)
    assert resolve((X, Y)).data == {"x": X, "y": Y} or resolve((X, Y)).data["y"] is Y
    data = resolve((X, Y, weights)).data
    assert data["x"] is X and data["y"] is Y and data["sample_weight"] is weights
    data = resolve((X, X), y=Y).data
    assert isinstance(data["x"], tuple) and data["y"] is Y


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (resolve, "there is nothing to train on"),
    "a number": (lambda: resolve(3), r"can't train on builtins\.int"),
    "empty dataset": (lambda: resolve(jobs.batches(3).take(0)), "the dataset is empty"),
    "empty PyDataset": (lambda: resolve(jobs.SlowBatches(0)), "SlowBatches is empty"),
    "empty array": (lambda: resolve(X[:0]), "the arrays are empty"),
    "lengths": (lambda: resolve(X, y=Y[:7]), "x has 20, y has 7"),
    "lengths inside": (
        lambda: resolve({"a": X, "b": [X[:3]]}, y=Y),
        r"x\['a'\] has 20, x\['b'\]\[0\] has 3, y has 20",
    ),
    "no arrays": (lambda: resolve({}), "there are no arrays in x, got dict"),
    "batch_size": (lambda: resolve(X, batch_size=-2), "batch_size must be positive, got -2"),
    "y twice": (lambda: resolve(X, y=Y, fit_kwargs={"y": Y}), "y is given twice"),
    "batch_size twice": (
        lambda: resolve(X, batch_size=2, fit_kwargs={"batch_size": 2}),
        "batch_size is given twice",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_run_could_use_is_refused(name: str) -> None:
    """The error says what was received, with the numbers."""
    act, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        act()


def test_a_length_that_fails() -> None:
    """An error in the caller's own `len` is told as the dataset's, with its cause."""

    class Broken(jobs.SlowBatches):
        @property
        def num_batches(self) -> int:
            raise RuntimeError("no index file")

    with pytest.raises(DatasetError, match=r"len\(\) of the Broken failed: no index file") as caught:
        resolve(Broken())
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_checking_reads_nothing() -> None:
    """Validation data is checked without taking a batch of it."""
    generator = generate()
    check_data(generator)
    assert next(generator)[0][0, 0] == 0.0
    with pytest.raises(DatasetError, match="empty"):
        check_data(jobs.batches(2).take(0))


def test_a_generator_is_counted() -> None:
    """Batches of a one-shot input are counted, the first one is kept, and no more is taken than asked for."""
    taken: list[int] = []

    def counted() -> Any:
        for k in range(5):
            taken.append(k)
            yield k

    source = resolve(counted())
    run = source.fresh()["x"]
    assert (next(run), next(run)) == (0, 1)
    assert (source.batches_used, source.first_batch, taken) == (2, 0, [0, 1])
    assert next(source.fresh()["x"]) == 2
    assert source.batches_used == 3


def test_the_kept_batch_can_be_replayed() -> None:
    """A one-shot input that gave a batch gives it for ever after; one that gave none gives nothing."""
    source = resolve(generate(), fit_kwargs={"sample_weight": None})
    assert source.replayable() is None
    first = next(source.fresh()["x"])
    replay = source.replayable()
    assert replay is not None
    assert all(next(replay["x"]) is first for _ in range(5))
    assert source.batches_used == 1


def test_a_generator_function_begins_anew() -> None:
    """A function that returns a generator is called for each run."""
    source = resolve(generate)
    assert len(list(source.fresh()["x"])) == len(list(source.fresh()["x"])) == 3
    assert source.batches_used == 6


def test_the_runs_have_a_copy(tmp_path: Any) -> None:
    """A dataset with state is copied once for all runs; what has none, and what is no dataset, is itself."""
    plain, shuffled = jobs.batches(3), jobs.batches(3).shuffle(3)
    assert resolve(plain).fresh()["x"] is plain
    source = resolve(shuffled)
    source.cache_folder = str(tmp_path)
    assert source.fresh()["x"] is not shuffled
    # One copy: a cache that one run has filled is full for the next, as in the job itself.
    assert source.fresh()["x"] is source.fresh()["x"]
    assert source.notes == []
    assert resolve(X).fresh()["x"] is X


def test_why_a_dataset_was_not_copied_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is a note, however many runs there are."""

    def refuse(**_: Any) -> None:
        raise tf.errors.UnimplementedError(None, None, "not this one")

    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", refuse)
    source = resolve(jobs.batches(3).shuffle(3))
    source.fresh()
    source.fresh()
    assert len(source.notes) == 1
    assert "not this one" in source.notes[0]

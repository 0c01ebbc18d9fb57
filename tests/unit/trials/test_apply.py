"""Changes made in copies: the same elements, or a reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdiag.compat.tfgraph import DatasetGraph
from tfdiag.model.pipeline import Edit
from tfdiag.trials.apply import apply


def node(dataset: Any, label: str) -> int:
    """Find a stage by the begin of its label."""
    return next(each.id for each in DatasetGraph.of(dataset).nodes if each.label.startswith(label))


def numbers(count: int = 40) -> Any:
    """Give doubled numbers in batches."""
    return tf.data.Dataset.range(count).map(lambda v: v * 2).batch(4)


def values(dataset: Any) -> list[Any]:
    """Go through a dataset."""
    return [np.asarray(each).tolist() for each in dataset]


@pytest.mark.parametrize(
    "edit",
    [
        lambda ds: Edit("parallel", node(ds, "map")),
        lambda ds: Edit("prefetch"),
        lambda ds: Edit("cache_after", node(ds, "map")),
        lambda ds: Edit("swap", node(ds, "batch")),
    ],
    ids=["parallel", "prefetch", "cache", "batch first"],
)
def test_the_same_sequence(edit: Any, tmp_path: Path) -> None:
    """What keeps the order gives the same elements one after the other, for more than one epoch."""
    dataset = numbers()
    changed = apply(dataset, [edit(dataset)], cache_folder=str(tmp_path))
    assert (changed.sameness, changed.why_not) == ("same sequence", "")
    assert changed.compared == 10
    assert values(changed.dataset) == values(changed.dataset) == values(dataset)


def test_changes_add_up(tmp_path: Path) -> None:
    """Several edits in one copy."""
    dataset = numbers()
    edits = [Edit("swap", node(dataset, "batch")), Edit("prefetch")]
    assert values(apply(dataset, edits, cache_folder=str(tmp_path)).dataset) == values(dataset)


def test_other_elements_are_refused() -> None:
    """A function that means something else for a batch is found out."""
    dataset = tf.data.Dataset.range(40).map(lambda v: tf.stack([v, -v])).batch(4)
    changed = apply(dataset, [Edit("swap", node(dataset, "batch"))])
    assert changed.dataset is None
    assert changed.why_not


def test_an_interleave_gives_the_same_in_another_order() -> None:
    """Several sources at a time: the same elements, and that is all that is promised."""
    dataset = tf.data.Dataset.range(4).flat_map(lambda k: tf.data.Dataset.range(k * 10, k * 10 + 5))
    changed = apply(dataset, [Edit("interleave", node(dataset, "flat_map"), value=4)])
    assert (changed.sameness, changed.compared) == ("same elements", 20)
    assert sorted(values(changed.dataset)) == sorted(values(dataset))


def test_random_elements_are_compared_by_structure() -> None:
    """Nobody can say that two draws are the same."""
    dataset = (
        tf.data.Dataset.range(40).map(lambda v: tf.random.uniform([3]) + tf.cast(v, tf.float32)).batch(4)
    )
    changed = apply(dataset, [Edit("parallel", node(dataset, "map"))])
    assert changed.sameness == "same structure"
    assert changed.dataset is not None


@pytest.mark.parametrize(
    ("edit", "sameness"),
    [
        (lambda data: Edit("parallel", node(data, "map")), "same sequence"),
        (lambda data: Edit("prefetch"), "same sequence"),
        (lambda data: Edit("cache_after", node(data, "map")), "same elements"),
        (lambda data: Edit("interleave", node(data, "flat_map"), value=4), "same elements"),
    ],
)
def test_elements_that_are_shuffled_are_compared(edit: Any, sameness: str) -> None:
    """A shuffle draws anew each time, but what it draws from can be held against each other."""
    dataset = (
        tf.data.Dataset.range(4)
        .flat_map(lambda k: tf.data.Dataset.range(k * 10, k * 10 + 5))
        .shuffle(20)
        .map(lambda v: v * 2)
        .batch(4)
    )
    changed = apply(dataset, [edit(dataset)])
    assert (changed.sameness, changed.why_not) == (sameness, "")
    assert sorted(np.concatenate(values(changed.dataset))) == sorted(np.concatenate(values(dataset)))


def test_datasets_in_elements_are_compared_by_structure() -> None:
    """Windows of which several are made at a time hold datasets, which have no values of their own."""
    dataset = tf.data.Dataset.range(4).flat_map(lambda k: tf.data.Dataset.range(k * 10, k * 10 + 4).window(2))
    changed = apply(dataset, [Edit("interleave", node(dataset, "flat_map"), value=4)])
    assert changed.why_not == ""
    assert changed.dataset is not None


def test_other_elements_behind_a_shuffle_are_found_out() -> None:
    """A function that means something else for a batch, with a shuffle before it."""
    dataset = tf.data.Dataset.range(40).shuffle(40).map(lambda v: tf.stack([v, -v])).batch(4)
    changed = apply(dataset, [Edit("swap", node(dataset, "batch"))])
    assert changed.dataset is None
    assert changed.why_not


def test_what_has_no_graph_says_so() -> None:
    """Lists, and edits that nobody can make, are refused in words."""
    assert "no tf.data.Dataset" in apply([1, 2], [Edit("prefetch")]).why_not
    assert "caller" in apply(numbers(), []).why_not
    assert apply(numbers(), [Edit("interleave", node(numbers(), "map"))]).why_not


class Squares(keras.utils.PyDataset):
    """A PyDataset."""

    def __len__(self) -> int:
        """Give the number of batches."""
        return 3

    def __getitem__(self, index: int) -> np.ndarray:
        """Give a batch."""
        return np.full((2, 1), index * index)


def test_workers_of_a_py_dataset() -> None:
    """A copy has other workers; the caller's keeps its own."""
    dataset = Squares(workers=1)
    changed = apply(dataset, [Edit("workers", value=3)])
    assert (changed.dataset.workers, changed.dataset.use_multiprocessing) == (3, False)
    assert dataset.workers == 1
    assert (changed.sameness, changed.compared) == ("not checked", 0)  # nothing was asked of either
    assert changed.dataset[2].tolist() == dataset[2].tolist()

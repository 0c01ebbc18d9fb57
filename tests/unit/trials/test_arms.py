"""What a copy does itself that the runtime does where it tunes: copies are not tuned, for they pause."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tfdiag.compat.tfgraph import DatasetGraph
from tfdiag.trials.arms import injects_prefetch, written_out


def doubled(v: Any) -> Any:
    """Need nothing but the element."""
    return v * 2


def in_python(v: Any) -> Any:
    """Call back into Python."""
    return tf.numpy_function(lambda w: w, [v], tf.int64)


def noisy(v: Any) -> Any:
    """Draw."""
    return v + tf.random.uniform((), maxval=9, dtype=tf.int64)


def job(*, autotune: bool = True, default: bool = True) -> Any:
    """Give maps of all kinds."""
    options = tf.data.Options()
    options.autotune.enabled = autotune
    options.experimental_optimization.apply_default_optimizations = default
    maps = tf.data.Dataset.range(40).map(doubled).map(in_python).map(noisy).map(doubled, num_parallel_calls=2)
    return maps.batch(4).with_options(options)


@pytest.mark.parametrize(
    ("dataset", "tuned"),
    [(job(), True), (job(autotune=False), False), (job(default=False), False)],
    ids=["tuned", "autotune off", "no optimizations"],
)
def test_what_the_runtime_does_where_it_tunes(dataset: Any, tuned: bool) -> None:
    """A map without state is parallel, one with state is not, and a prefetch is added."""
    made = written_out(DatasetGraph.of(dataset))
    maps = [node.op for node in made.nodes if "Map" in node.op]
    assert maps == [
        "ParallelMapDataset" if tuned else "MapDataset",
        "MapDataset",
        "MapDataset",
        "ParallelMapDataset",
    ]
    assert made.nodes[-2].parallelism == 2
    assert injects_prefetch(made) is tuned
    assert len(list(made.build())) == 10


def test_a_prefetch_that_is_there_is_not_added() -> None:
    """Nor is one where the caller does not want it."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    assert not injects_prefetch(DatasetGraph.of(job().prefetch(2)))
    assert not injects_prefetch(DatasetGraph.of(job().with_options(options)))


def test_the_elements_stay() -> None:
    """In their order."""
    dataset = tf.data.Dataset.range(40).map(doubled).batch(4)
    made = written_out(DatasetGraph.of(dataset)).build()
    assert [each.numpy().tolist() for each in made] == [each.numpy().tolist() for each in dataset]

"""`tfdiag.tune` gives the dataset with what was confirmed, and says what it left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfdiag
from tests.integration import jobs
from tests.integration.test_trials import waiting
from tests.pace import enough
from tests.traces_left import leaves_no_trace
from tfdiag import tuning
from tfdiag.compat.tfgraph import DatasetGraph
from tfdiag.model.changes import Change
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Suggestion


def test_a_tuned_dataset_gives_the_same_faster():
    """The change that was confirmed is in the copy, whose elements are the same ones in the same order."""
    model, dataset = jobs.tiny_model(), waiting()
    with leaves_no_trace(model, dataset=dataset):
        tuned = tfdiag.tune(model, dataset, budget=enough(24.0), steps=100)
    (one,) = tuned.applied
    assert one.status == "confirmed"
    assert "num_parallel_calls" in tuned.code
    assert tuned.dataset is not dataset
    assert any("ParallelMap" in node.op for node in DatasetGraph.of(tuned.dataset).nodes)
    assert not any("ParallelMap" in node.op for node in DatasetGraph.of(dataset).nodes)
    for before, after in zip(dataset.take(4), tuned.dataset.take(4), strict=True):
        assert np.array_equal(before[0], after[0])
    assert "measured" in str(tuned)


def confirmed(name: str, gain: float, *edits: Edit, changes: tuple[Change, ...] = ()) -> Suggestion:
    """Give a suggestion that was confirmed."""
    measured = Quantity(gain, "x", 0.9 * gain, 1.1 * gain)
    return Suggestion(
        f"a/{name}", "a", name, f"+ {name}", measured, measured, "confirmed", edits=edits, changes=changes
    )


class Found:
    """A report with suggestions only."""

    def __init__(self, *suggestions: Suggestion) -> None:
        """Keep them."""
        self.suggestions = suggestions


def test_what_is_left_is_said(monkeypatch: pytest.MonkeyPatch):
    """The best change that keeps the elements is made; each other one has its reason."""
    dataset = tf.data.Dataset.range(4).flat_map(lambda k: tf.data.Dataset.range(k * 10, k * 10 + 5))
    (stage,) = (node.id for node in DatasetGraph.of(dataset).nodes if node.label.startswith("flat_map"))
    found = Found(
        confirmed("order", 3.0, Edit("interleave", stage, value=4)),
        confirmed("ahead", 2.0, Edit("prefetch")),
        confirmed("also", 1.5, Edit("cache_after", stage)),
        confirmed("model", 1.2, changes=(Change("steps_per_execution", 16),)),
        confirmed("both", 5.0, Edit("prefetch"), changes=(Change("steps_per_execution", 16),)),
    )
    monkeypatch.setattr(tuning, "diagnose", lambda *_, **__: found)
    tuned = tfdiag.tune(None, dataset)
    assert [one.id for one in tuned.applied] == ["a/ahead"]
    assert [int(value) for value in tuned.dataset] == [int(value) for value in dataset]
    left: dict[str, Any] = dict(tuned.left)
    assert set(left) == {"a/order", "a/also", "a/model", "a/both"}
    assert 'allow=("order",)' in left["a/order"].replace("'", '"')
    assert "a/ahead" in left["a/also"]
    assert "+ model" in left["a/model"]
    assert "+ both" in left["a/both"]

    allowed = tfdiag.tune(None, dataset, allow=("order",))
    assert [one.id for one in allowed.applied] == ["a/order"]
    assert sorted(map(int, allowed.dataset)) == sorted(map(int, dataset))


@pytest.mark.parametrize(
    ("options", "said"),
    [({"allow": "order"}, "allow"), ({"allow": ("speed",)}, "allow"), ({"verify": False}, "verify")],
)
def test_what_tune_can_not_do_is_refused(options: dict[str, Any], said: str):
    """Before anything runs."""
    with pytest.raises(tfdiag.TfdiagError, match=said):
        tfdiag.tune(None, tf.data.Dataset.range(3), **options)

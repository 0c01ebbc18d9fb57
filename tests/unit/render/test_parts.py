"""What a report says about the parts of the model."""

from __future__ import annotations

from dataclasses import replace

from tests.synthetic import MS
from tests.unit.checks.parts import loop, metrics, padded, recurrent, table
from tfdiag.model.layers import MetricCost, MetricFacts, ModelFacts
from tfdiag.model.quantity import Missing
from tfdiag.render.parts import model_gaps, model_lines


def test_parts_that_cost_something_have_a_line() -> None:
    """With their numbers, in words."""
    model = replace(
        padded(0.5, 1 * MS),
        recurrent=(recurrent(3 * MS, "unroll=True"), recurrent(None, "use_bias=False")),
        embeddings=(table(2 * MS), table(None, layer="small", bytes=100)),
        loops=(loop(4 * MS), loop(None)),
        metrics=metrics(5 * MS).metrics,
        metric_cost=metrics(5 * MS).metric_cost,
    )
    assert dict(model_lines(model)) == {
        "lstm": "LSTM with unroll=True: not for the fused kernel, 3.00 ms a call",
        "words": "1,000,000 rows of 16, 61.0 MiB, a batch uses 500 of them, the step goes over all of them, "
        "2.00 ms a call for that",
        "padding": "50 % of what words is given, rows of 50.0 in batches of length 100.0",
        "each_row": "map_fn in the forward part, 64 rounds a call, 4.00 ms a call",
        "metrics": "metric_0: 5.00 ms a call",
    }
    assert list(model_gaps(model)) == []


def test_metrics_that_cost_nothing_are_not_said_to_cost_zero() -> None:
    """A step that was as often quicker with them as without does not measure them."""
    cost = MetricCost((2 * MS, 3 * MS, 2 * MS, 3 * MS), (3 * MS, 2 * MS, 3 * MS, 2 * MS), ())
    model = ModelFacts(metrics=(MetricFacts("auc", "AUC"),), metric_cost=cost)
    assert dict(model_lines(model)) == {"metrics": "auc: too little to tell from nothing"}


def test_nothing_is_said_of_a_plain_model() -> None:
    """And of one that was not looked at it is said once."""
    assert list(model_lines(ModelFacts())) == list(model_gaps(ModelFacts())) == []
    assert list(model_lines(Missing("no model"))) == []
    assert list(model_gaps(Missing("no model"))) == [("the parts of the model", "no model")]


def test_what_could_not_be_told_is_said() -> None:
    """Each with its reason; metrics only where there are some."""
    model = ModelFacts(layers_missing="a", batch_missing="b", graph_missing="c", times_missing="d")
    assert [reason for _, reason in model_gaps(model)] == ["a", "b", "c", "d"]
    measured = ModelFacts(metrics=(MetricFacts("auc", "AUC"),), metric_cost=Missing("no room"))
    assert list(model_gaps(measured)) == [("what metrics cost", "no room")]

"""dense-embedding-update: the optimizer goes over all rows of a large table."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.parts import STEP, optimized, table
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.compute.dense_embedding_update import CHECK
from tfdiag.model.changes import Change
from tfdiag.model.layers import EmbeddingTable, ModelFacts, OptimizerFacts
from tfdiag.model.quantity import Quantity

ADAM = OptimizerFacts("adam", "Adam")


@pytest.mark.parametrize(("seconds", "fires"), [(5.2 * MS, True), (4.9 * MS, False)])
def test_fires_at_a_twentieth_of_the_step(seconds: float, fires: bool):
    """What decides is the time, not the size of the table."""
    assert bool(results(CHECK, **STEP, model=optimized(ADAM, table(seconds)))) is fires


@pytest.mark.parametrize(("used", "fires"), [(499_000.0, True), (501_000.0, False)])
def test_a_table_that_is_used_is_no_problem(used: float, fires: bool):
    """Where most rows are looked up, most have to be updated."""
    assert bool(results(CHECK, **STEP, model=optimized(ADAM, table(40 * MS, used=used)))) is fires


@pytest.mark.parametrize("healthy", [table(50 * MS, whole_ops=0), table(50 * MS, trainable=False)])
def test_silent_where_only_used_rows_are_updated(healthy: EmbeddingTable):
    """A step without ops over the whole table, and a table that is not trained."""
    assert results(CHECK, **STEP, model=optimized(ADAM, healthy)) == []


@pytest.mark.parametrize(
    ("traced", "saved", "cost"), [(40, 60, 0.6), (60, 40, 0.6), (None, 60, 0.6), (2, 3, 0)]
)
def test_what_single_rows_save_counts_as_well(traced: float | None, saved: float, cost: float):
    """By turns what a sweep over a table pushes out of the caches shows; in the trace what else sweeps."""
    made = table(None if traced is None else traced * MS)
    found = results(CHECK, **STEP, model=optimized(ADAM, made, saved=saved * MS))
    assert [each.finding.cost.value for each in found] == ([pytest.approx(cost)] if cost else [])


def test_a_regularizer_hides_what_single_rows_would_save():
    """Without a trace nothing is known of it, which is not nothing."""
    made = table(None, regularized=True)
    assert "is not known" in not_run(CHECK, **STEP, model=optimized(ADAM, made, saved=0.0))


def test_tables_of_several_shapes_share_what_is_saved():
    """As they share the time in the trace; two of one shape are one finding."""
    tables = (table(30 * MS), table(30 * MS, layer="twin"), table(10 * MS, layer="other", rows=500_000))
    found = results(CHECK, **STEP, model=optimized(ADAM, *tables, saved=80 * MS))
    assert [each.finding.cost.value for each in found] == [pytest.approx(0.6), pytest.approx(0.2)]
    unknown = (table(None), table(30 * MS, layer="other", rows=500_000))
    assert "is not known" in not_run(CHECK, **STEP, model=optimized(ADAM, *unknown, saved=80 * MS))


def test_shows_its_numbers_and_two_ways_out():
    """Rows, those in use, bytes, time; a lazy Adam, and SGD as a change that can be tried."""
    found = only(CHECK, **STEP, model=optimized(ADAM, table(40 * MS)))
    assert found.finding.where == "words"
    assert found.finding.cost.value == pytest.approx(0.4)
    assert "1,000,000 rows of words" in found.finding.title
    assert value(found, "different rows in a batch") == 500
    assert value(found, "size of the table") == 64_000_000
    lazy, sgd = found.suggestions
    assert "class LazyAdam" in lazy.code
    assert sgd.changes == (Change("optimizer", "SGD"),)
    assert isinstance(sgd.predicted, Quantity)
    assert sgd.predicted.value == pytest.approx(100 / 60, rel=0.01)


def test_names_what_else_goes_over_all_rows():
    """Weight decay and a regularizer have to go as well."""
    decayed = OptimizerFacts("adamw", "AdamW", ("weight_decay=0.004",))
    found = only(CHECK, **STEP, model=optimized(decayed, table(40 * MS, regularized=True)))
    assert found.finding.detail
    plain, lazy, _ = found.suggestions
    assert "regularizer" in plain.text
    assert "weight_decay=0.004" in lazy.text
    sgd = OptimizerFacts("sgd", "SGD")
    assert len(only(CHECK, **STEP, model=optimized(sgd, table(40 * MS, regularized=True))).suggestions) == 1


def test_says_what_is_missing():
    """Without a time or without the rows in use nothing is said, but that."""
    missing = ModelFacts(embeddings=(table(None),), times_missing="no trace")
    assert "no trace" in not_run(CHECK, **STEP, model=missing)
    unused = ModelFacts(embeddings=(table(40 * MS, used=None),), batch_missing="no run forwards")
    assert "no run forwards" in not_run(CHECK, **STEP, model=unused)

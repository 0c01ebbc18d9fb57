"""small-batch: a bigger batch would give much for each row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, analysed, sampled
from tests.synthetic_compute import scaled
from tests.unit.checks.running import evidence, not_run, only, results, value
from tfdiag.checks.compute.small_batch import CHECK
from tfdiag.model.changes import Change
from tfdiag.model.pipeline import Function
from tfdiag.model.quantity import Quantity
from tfdiag.remedies.bigger_batch import step_with


def growing(fixed: float, **parts: Any) -> dict[str, Any]:
    """Give a step of 10 ms with 32 rows, this share of which is fixed; dispatch is little of it."""
    step = 10 * MS
    return {
        "compute": 9.8 * MS,
        "dispatch": 0.2 * MS,
        "job": {"batch_size": Quantity(32.0, "rows")},
        "scaling": scaled(fixed * step, (1 - fixed) * step / 32, **parts.pop("scaled", {})),
        **parts,
    }


@pytest.mark.parametrize(("fixed", "fires"), [(0.43, False), (0.46, True)])
def test_fires_from_half_as_fast_again_on(fixed: float, fires: bool):
    """Four times the batch gives 1/(1 - 3/4 of the fixed share)."""
    assert bool(results(CHECK, **growing(fixed))) is fires


def test_shows_its_numbers_and_the_size_that_was_run():
    """The gain against its threshold, both steps, the line, and a change that a trial can make."""
    found = only(CHECK, **growing(0.8))
    gain = evidence(found, "gain for each row with 4 times the batch")
    assert value(found, gain.name) == pytest.approx(1 / (0.2 + 0.8 / 4))
    assert value(found, "the step with 32 rows") == pytest.approx(10 * MS)
    assert value(found, "the step with 128 rows") == pytest.approx(16 * MS)
    assert value(found, "fixed cost of a step, by its batch's size") == pytest.approx(8 * MS)
    assert found.finding.severity == "critical"
    assert found.finding.where == "a batch of 32 rows"
    (bigger,) = found.suggestions
    assert bigger.code == "- dataset.batch(32)\n+ dataset.batch(128)"
    assert bigger.changes == (Change("batch_size", 128),)
    assert "convergence" in bigger.risk


def test_rounds_that_were_slow_as_a_whole_don_t_hide_it():
    """What slows down a round slows down all of its sizes, and their ratio stays."""
    assert only(CHECK, **growing(0.6, scaled={"wobble": 3.0})).finding.cost.value == pytest.approx(0.45)


def test_a_small_gain_is_no_warning():
    """Nothing is wrong with such a job: below twice as fast it is information."""
    assert only(CHECK, **growing(0.55)).finding.severity == "info"


def test_only_sizes_that_were_run_are_suggested():
    """What did not fit into memory or time is not promised."""
    sizes = {"at": (16, 32, 64), "left_out": "it may not fit"}
    assert only(CHECK, **growing(0.9, scaled=sizes)).suggestions[0].changes == (Change("batch_size", 64),)
    assert results(CHECK, **growing(0.6, scaled=sizes)) == []


def test_a_step_that_is_not_linear_is_judged_by_what_was_measured():
    """There is no fixed cost then, but there is a gain."""
    found = only(CHECK, **growing(0.9, scaled={"off": {16: 0.5}}))
    assert "does not grow linearly" in found.finding.detail
    assert [one.name for one in found.finding.evidence if "fixed" in one.name] == []


@pytest.mark.parametrize("parts", [{"wait": 20 * MS}, {"between_epochs": 400 * MS, "calls_per_epoch": 20}])
def test_what_grows_with_the_rows_is_no_gain(parts: dict[str, Any]):
    """Rows that come late come late in any batch, and an epoch ends as often."""
    assert results(CHECK, **growing(0.8, epochs=4, **parts)) == []


def test_what_callbacks_cost_for_each_batch_is_not_the_batch_s_fault():
    """They would be shared by more rows as well, but the device has enough to do."""
    assert results(CHECK, **growing(0.3, callbacks={"Log": 30 * MS})) == []


@pytest.mark.parametrize(
    "parts",
    [{"job": {"run_eagerly": True}}, {"job": {"loop": "custom"}}, {"compute": 5 * MS, "dispatch": 5 * MS}],
    ids=["eager", "a loop of the caller's own", "tiny"],
)
def test_silent_where_another_check_says_it(parts: dict[str, Any]):
    """Eager steps and steps that are mostly dispatch have checks of their own."""
    assert results(CHECK, **growing(0.9, **parts)) == []


def test_undecided_without_other_sizes():
    """What was not run at other sizes is not called well filled."""
    assert "several batch sizes" in not_run(CHECK, compute=10 * MS, dispatch=0.1 * MS)


@pytest.mark.parametrize("rows", [16, 64, 96, 128])
def test_the_live_step_is_predicted_from_its_parts(rows: int):
    """Callbacks stay as they are for each step, the call grows as measured, the wait with the rows."""
    analysis = analysed(**growing(0.5, callbacks={"Log": 2 * MS}, wait=1 * MS))
    found = step_with(analysis, rows)
    assert isinstance(found, Quantity)
    assert found.value == pytest.approx((2 + rows / 32 + 5 + 5 * rows / 32) * MS)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high


def test_handing_over_a_batch_does_not_grow_with_its_rows():
    """Of a wait of 1 ms the stages explain a tenth: no more of it can come from the rows."""
    source = Part("TensorSlice", "from_tensor_slices(…)", 0.1 * MS / 1.5 / 32)
    parts = {"wait": 1 * MS, "pipeline": sampled(source, Part("Batch", "batch(32)", 0.0, 1.0, {"size": 32}))}
    found = step_with(analysed(**growing(0.5, **parts)), 128)
    assert isinstance(found, Quantity)
    assert found.value == pytest.approx((0.9 + 4 * 0.1 + 5 + 4 * 5) * MS)


def test_what_looks_at_no_row_does_not_grow():
    """Whole batches that are repeated and prefetched, and the call of a function on them, cost as much."""
    source = Part("Tensor", "from_tensors(…)", 0.1 * MS)
    call = Part("Map", "map(f)", 0.2 * MS, 1.0, {"function": Function("f")})
    parts = {"wait": 1 * MS, "pipeline": sampled(source, call, Part("Prefetch", "prefetch(1)", 0.3 * MS))}
    found = step_with(analysed(**growing(0.5, **parts)), 128)
    assert isinstance(found, Quantity)
    assert found.value == pytest.approx((1 - 0.3 + 4 * 0.3 + 5 + 4 * 5) * MS)


def test_a_wait_that_hardly_counts_is_for_a_batch_that_is_there():
    """Nobody knows what its stages cost: it may grow with the rows, and most likely does not."""
    found = step_with(analysed(**growing(0.5, wait=0.2 * MS)), 128)
    assert isinstance(found, Quantity)
    assert found.high is not None
    assert found.value == pytest.approx((0.2 + 5 + 4 * 5) * MS)
    assert found.high > (0.8 + 5 + 4 * 5) * MS

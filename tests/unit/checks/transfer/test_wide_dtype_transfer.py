"""wide-dtype-transfer: wider numbers cross the bus than the data needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.traces import MS
from tests.unit.checks.running import is_sound, value
from tests.unit.checks.tracing import needs_a_trace, traced
from tfdiag.analyse.analysis import Analysis
from tfdiag.checks.registry import Result, Undecided
from tfdiag.checks.transfer.wide_dtype_transfer import CHECK
from tfdiag.model.measurements import BatchTensor
from tfdiag.model.quantity import Missing, Quantity


def with_tensors(*tensors: BatchTensor, copy: int = 4 * MS) -> Analysis:
    """Give a step of 10 ms of which copies take a part."""
    analysis = traced(copy=copy, kernels=1, kernel=10 * MS - copy)
    job = replace(analysis.measurements.job, tensors=tensors)
    return replace(analysis, measurements=replace(analysis.measurements, job=job))


def tensor(dtype: str, low: float, high: float, whole: bool = True, size: int = 10**6) -> BatchTensor:
    """Give a part of a batch."""
    return BatchTensor("the first part", dtype, size, whole, Quantity(low, ""), Quantity(high, ""))


def found(analysis: Analysis) -> list[Result]:
    """Run the check; each answer is made sure of."""
    results = list(CHECK.run(analysis))
    for result in results:
        is_sound(CHECK, result)
    return results


@pytest.mark.parametrize(
    ("dtype", "low", "high", "whole", "narrow"),
    [
        ("float32", 0, 255, True, "uint8"),
        ("float32", 0, 256, True, ""),
        ("float32", -1, 255, True, ""),
        ("float32", 0, 255, False, ""),
        ("float32", 0, 1, True, ""),  # all zeros and ones are what made-up batches hold
        ("int64", 0, 255, True, "uint8"),
        ("int64", -5, 70_000, True, "int32"),
        ("int64", 0, 2.0**31, True, ""),
        ("int32", 0, 70_000, True, ""),
        ("float64", -0.5, 0.5, False, "float32"),
        ("uint8", 0, 255, True, ""),
        ("float16", 0, 255, True, ""),
    ],
)
def test_names_the_narrower_type(dtype: str, low: float, high: float, whole: bool, narrow: str):
    """The narrowest that holds the numbers; none where they need what they have."""
    results = found(with_tensors(tensor(dtype, low, high, whole)))
    assert [result.suggestions[0].id for result in results] == (
        [f"wide-dtype-transfer/{narrow}"] if narrow else []
    )


@pytest.mark.parametrize(("copy", "fires"), [(0.67, False), (0.69, True)])
def test_what_it_saves_decides(copy: float, fires: bool):
    """Three quarters of the copy are to be saved, a twentieth of the step is the least worth it."""
    assert bool(found(with_tensors(tensor("float32", 0, 255), copy=int(copy * MS)))) is fires


def test_small_parts_are_not_worth_it():
    """Labels are int64 in nearly every job."""
    labels = BatchTensor("part 1", "int64", 1000, True, Quantity(0, ""), Quantity(9, ""))
    (result,) = found(with_tensors(tensor("float32", 0, 255), labels))
    assert result.finding.where == "the first part of the batch"
    assert value(result, "copies that a narrower type would save, per step") == pytest.approx(3e-3, rel=0.01)


def test_undecided_where_batches_are_not_known():
    """A trace from elsewhere tells bytes, but no types."""
    with pytest.raises(Undecided, match="parts of a batch"):
        list(CHECK.run(with_tensors()))
    assert found(with_tensors(BatchTensor("text", "string", 10, False, Missing(""), Missing("")))) == []
    needs_a_trace(CHECK)

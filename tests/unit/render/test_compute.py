"""What is said about the computation."""

from __future__ import annotations

from dataclasses import replace

from tests.sample_reports import measurements
from tests.synthetic import MS
from tests.synthetic_compute import peak, scaled, work
from tfdiag.model.quantity import Missing
from tfdiag.render.compute import compute_gaps, compute_lines


def test_operations_peaks_and_growth():
    """A line for the operations, one for each type's peak, and the step by its batch."""
    measured = replace(
        measurements(),
        compute=work({"float32": 1.5}, peak("float32", 45)),
        scaling=scaled(2 * MS, 0.05 * MS),
    )
    lines = dict(compute_lines(measured))
    assert lines["operations of a step"] == "1.50 GFLOP in float32: matrix products"
    assert lines["/CPU:0 in float32"].startswith("45.0 GFLOP/s in a matrix product of 1024 x 1024")
    assert lines["the step by rows of its batch"] == (
        "16: 2.80 ms, 32: 3.60 ms, 64: 5.20 ms, 128: 8.40 ms (without input)"
    )
    assert lines["fixed cost and cost of a row"] == ("~2.00 ms and ~50.0 µs; R² 1, at most 0.0% off the line")
    assert list(compute_gaps(measured)) == []


def test_a_step_that_is_not_linear_says_so():
    """No fixed cost is made up for it."""
    measured = replace(measurements(), scaling=scaled(2 * MS, 0.05 * MS, off={128: 1.5}))
    lines = dict(compute_lines(measured))
    assert "fixed cost and cost of a row" not in lines
    assert "rows take" in lines["the step is not linear"]


def test_what_is_missing_has_its_reason():
    """Nothing is shown of it, and it is listed."""
    measured = replace(measurements(), compute=Missing("eager"), scaling=Missing("no room"))
    assert list(compute_lines(measured)) == []
    assert dict(compute_gaps(measured)) == {
        "operations of a step": Missing("eager"),
        "the step at other batch sizes": Missing("no room"),
    }
    unknown = replace(measured, compute=work({}, flops=Missing("unknown shapes")))
    assert dict(compute_gaps(unknown))["operations of a step"] == Missing("unknown shapes")

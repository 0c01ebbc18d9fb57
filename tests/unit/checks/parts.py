"""Models of known make-up, for the checks that look at their parts."""

from __future__ import annotations

from typing import Any

from tests.synthetic import MS
from tfdiag.model.layers import (
    EmbeddingTable,
    LengthCalls,
    Loop,
    MetricCost,
    MetricFacts,
    ModelFacts,
    OptimizerFacts,
    Padding,
    Recurrent,
    TableCost,
    WithoutMetric,
)
from tfdiag.model.quantity import Quantity

__all__ = ["STEP", "loop", "metrics", "optimized", "padded", "recurrent", "table"]

STEP: dict[str, Any] = {"compute": 99 * MS, "dispatch": 1 * MS}
"""A step of 100 ms."""


def loop(seconds: float | None, **fields: Any) -> Loop:
    """Give a loop over rows that takes so long."""
    known: dict[str, Any] = {"kind": "map_fn", "layer": "each_row", "part": "forward"}
    if seconds is not None:
        known["alone"] = Quantity(seconds, "s")
        known["iterations"] = Quantity(64.0, "iterations")
        known["op_s"] = Quantity(5e-6, "s")
    return Loop(**{"name": "net/each_row/map/while", "op": "While", **known, **fields})


def recurrent(seconds: float | None, *off: str, **fields: Any) -> Recurrent:
    """Give an LSTM with these arguments."""
    known: dict[str, Any] = {"layer": "lstm", "cls": "LSTM", "units": 32, "fusable": True, "off": off}
    if seconds is not None:
        known["alone"] = Quantity(seconds, "s")
    return Recurrent(**{**known, **fields})


def table(seconds: float | None, *, used: float | None = 500.0, **fields: Any) -> EmbeddingTable:
    """Give a table of a million rows."""
    known: dict[str, Any] = {
        "layer": "words", "rows": 1_000_000, "dim": 16, "dtype": "float32", "bytes": 64_000_000,
        "whole_ops": 9,
    }  # fmt: skip
    if seconds is not None:
        known["took"] = Quantity(seconds, "s")
    if used is not None:
        known["rows_used"] = Quantity(used, "rows")
    return EmbeddingTable(**{**known, **fields})


def optimized(by: OptimizerFacts, *tables: EmbeddingTable, saved: float | None = None) -> ModelFacts:
    """Give a model with tables and an optimizer; updates of single rows save so much, by turns."""
    known = {}
    if saved is not None:
        known["table_cost"] = TableCost((100 * MS,) * 8, (100 * MS - saved,) * 8)
    return ModelFacts(embeddings=tables, optimizers=(by,), **known)


def padded(part: float, each_s: float, *, timed: bool = True, **fields: Any) -> ModelFacts:
    """Give batches of length 100 of which so much is padding; a position takes so long."""
    length = 100 * (1 - part)
    calls = (
        LengthCalls(100, (100 * MS,) * 8),
        LengthCalls(50, (100 * MS - 50 * each_s,) * 8),
    )
    known: dict[str, Any] = {
        "layer": "words", "side": "right", "value": 0.0, "length": 100.0, "row_length": length,
        "longest": 100.0,
        "share": Quantity(part, "share"), "rows": 256, "batches": 4, "calls": calls if timed else (),
    }  # fmt: skip
    return ModelFacts(padding=(Padding(**{**known, **fields}),))


def metrics(*cost: float, each: bool = True, step: float = 100 * MS) -> ModelFacts:
    """Give metrics that cost so much, in a step of 100 ms."""
    names = [f"metric_{at}" for at in range(len(cost))]
    whole = (step,) * 8

    def less(seconds: float) -> tuple[float, ...]:
        return (step - seconds,) * 8

    return ModelFacts(
        metrics=tuple(MetricFacts(name, "AUC") for name in names),
        metric_cost=MetricCost(
            whole,
            less(sum(cost)),
            tuple(WithoutMetric(name, less(took), whole) for name, took in zip(names, cost, strict=True))
            if each
            else (),
        ),
    )

"""The optimizer goes over all rows of a large embedding in each step.

What it measures
    For each embedding the size of its table, how many different rows a real batch looks up, how many ops of
    the step go over the whole table or the optimizer's slots for it, and from a trace of a few steps how
    long nothing but these ops runs.
Why it matters
    A batch uses a few thousand rows. Adam and most other optimizers of Keras move the averages of all rows
    in each step, used or not: with a large table the step mostly reads and writes memory.
How to fix it
    Use an optimizer that updates the rows that were looked up: SGD without momentum, or a "lazy" Adam as in
    the suggestion. Or make the table smaller: hash rare ids together, or drop them. Weight decay, a
    regularizer, clipping by norm and averaged weights go over all rows as well.
When to ignore it
    When most rows are used in each step, or when the same table is the output layer as well: then its
    gradient has all rows.
References
    https://keras.io/api/optimizers/
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, parts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.layers import EmbeddingTable
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import sparse_update

__all__ = ["CHECK"]

_USED = 0.5
"""With more of the rows in use there is little to leave out."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for each table that costs a share of the step and of which little is used."""
    found = parts.model(analysis)
    seen: set[tuple[int, int]] = set()
    for table in found.embeddings:
        if not table.trainable or not table.whole_ops or (table.rows, table.dim) in seen:
            continue
        seen.add((table.rows, table.dim))  # ops are told by their shape: tables of one shape are one finding
        seconds = parts.per_step(analysis, table.took)
        if seconds is None:
            why = found.times_missing or "the trace of the step does not show it: XLA compiles the step"
            raise Undecided(f"all rows of {table.layer} are updated, and what that costs is not known: {why}")
        cost = min(1.0, analysis.share(seconds))
        if not analysis.crosses(cost, facts.COST_SHARE):
            continue
        if isinstance(table.rows_used, Missing):
            why = found.batch_missing or table.rows_used.reason
            raise Undecided(f"how many rows of {table.layer} a step uses is not known: {why}")
        used = table.rows_used.value / table.rows
        if used >= _USED:
            continue
        yield _result(analysis, table, seconds, cost, used)


def _result(analysis: Analysis, table: EmbeddingTable, seconds: float, cost: float, used: float) -> Result:
    found = parts.model(analysis)
    alike = [
        each.layer
        for each in found.embeddings
        if (each.rows, each.dim) == (table.rows, table.dim) and each.trainable
    ]
    names = parts.listed(alike)
    return Result(
        Finding(
            check=CHECK.id,
            title=f"All {table.rows:,} rows of {names} are updated in each step, {used:.2%} of them are used",
            severity=severity_of(cost),
            cost=facts.share(
                cost, source="time of ops over the whole table, and their part of that which they share"
            ),
            evidence=(
                parts.time_evidence(
                    analysis, "time in ops over the whole table", seconds, "trace of replayed calls"
                ),
                Evidence(
                    "rows of the table that a batch uses",
                    Quantity(used, "share", source="one batch"),
                    Quantity(_USED, "share", origin="given"),
                    "below",
                ),
                Evidence("different rows in a batch", table.rows_used),
                Evidence("size of the table", Quantity(float(table.bytes), "B", source="its shape and type")),
                Evidence(
                    "ops over the whole table",
                    Quantity(float(table.whole_ops), "ops", source="graph of the step"),
                ),
            ),
            where=names,
            detail="A regularizer or constraint of the layer reads all rows, too."
            if table.regularized
            else "",
        ),
        tuple(sparse_update.suggest(analysis, CHECK.id, table, found.optimizers, seconds, used)),
    )


CHECK = Check("dense-embedding-update", "All rows of an embedding are updated", "compute", __doc__, run)

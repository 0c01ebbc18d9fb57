"""The optimizer goes over all rows of a large embedding in each step.

What it measures
    For each embedding the size of its table, how many different rows a real batch looks up, and how many ops
    of the step go over the whole table or the optimizer's slots for it. What that costs is the time of the
    step against one that updates the rows that were looked up and no others, on the same batch, by turns; or,
    where that shows less, how long nothing but these ops runs in a trace of a few steps.
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
from tfdiag.model.layers import EmbeddingTable, ModelFacts
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import sparse_update

__all__ = ["CHECK"]

_SOURCE = "replay with and without, at the job's speed, or trace of its ops if that shows more"
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
        seconds = _seconds(analysis, found, table)
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


def _seconds(analysis: Analysis, found: ModelFacts, table: EmbeddingTable) -> float | None:
    """Give what a table costs a step: by turns with updates of single rows, or its ops in the trace if more.

    By turns what goes over a table counts with what it pushes out of the caches, but settings of the
    optimizer that go over all rows stay. Tables of several shapes share it as the time of their ops.
    """
    traced = parts.per_step(analysis, table.took)
    if isinstance(found.table_cost, Missing) or not found.table_cost.with_s:
        return traced
    if traced is None and table.regularized:
        return None  # its gradient has all rows, which single updates would not spare
    longer = parts.saved(analysis, found.table_cost.with_s, found.table_cost.without_s)
    by_shape = {(each.rows, each.dim): each.took for each in found.embeddings if each.whole_ops}
    if len(by_shape) == 1:
        part = 1.0
    else:
        all_s = sum(took.value for took in by_shape.values() if isinstance(took, Quantity))
        if isinstance(table.took, Missing) or all_s <= 0:
            return traced
        part = table.took.value / all_s
    return max(longer.value * part, traced or 0.0)


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
            cost=facts.share(cost, source=_SOURCE),
            evidence=(
                parts.time_evidence(analysis, "time for the whole table", seconds, _SOURCE),
                *_in_ops(table),
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


def _in_ops(table: EmbeddingTable) -> tuple[Evidence, ...]:
    name = "of a call in ops over the whole table"
    return (Evidence(name, table.took),) if isinstance(table.took, Quantity) else ()


CHECK = Check("dense-embedding-update", "All rows of an embedding are updated", "compute", __doc__, run)

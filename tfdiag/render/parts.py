"""What a report says about the parts of the model: nothing of layers that have nothing to say."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tfdiag.model.layers import EmbeddingTable, Loop, MetricCost, ModelFacts, Padding, Recurrent
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.format import clean, duration, number, share, size

__all__ = ["model_gaps", "model_lines"]

_SHOWN = 6
_LARGE = 2**20
"""Bytes of a table from which on it is shown."""


def model_lines(model: ModelFacts | Missing) -> Iterator[tuple[str, str]]:
    """Give recurrent layers off the fused kernel, large tables, padding, loops and what metrics cost."""
    if isinstance(model, Missing):
        return
    for layer in [each for each in model.recurrent if isinstance(each.alone, Quantity)][:_SHOWN]:
        yield clean(layer.layer), clean(_recurrent(layer))
    for table in [each for each in model.embeddings if each.bytes >= _LARGE][:_SHOWN]:
        yield clean(table.layer), clean(_table(table))
    for padding in model.padding[:1]:
        yield "padding", clean(_padding(padding))
    for loop in [each for each in model.loops if isinstance(each.alone, Quantity)][:_SHOWN]:
        yield clean(loop.layer or loop.part or loop.name), clean(_loop(loop))
    if isinstance(model.metric_cost, MetricCost):
        yield "metrics", clean(_metrics(model, model.metric_cost))


def model_gaps(model: ModelFacts | Missing) -> Iterator[tuple[str, str]]:
    """Give what could not be told of the model."""
    if isinstance(model, Missing):
        yield "the parts of the model", model.reason
        return
    for name, reason in (
        ("layers of the model", model.layers_missing),
        ("what a batch needs of the model", model.batch_missing),
        ("loops in the step", model.graph_missing),
        ("what parts of the step cost", model.times_missing),
    ):
        if reason:
            yield name, reason
    if model.metrics and isinstance(model.metric_cost, Missing):
        yield "what metrics cost", model.metric_cost.reason


def _recurrent(layer: Recurrent) -> str:
    text = f"{layer.cls} with {', '.join(layer.off)}: not for the fused kernel"
    return text + (f", {duration(layer.alone.value)} a call" if isinstance(layer.alone, Quantity) else "")


def _table(table: EmbeddingTable) -> str:
    parts = [f"{number(table.rows)} rows of {number(table.dim)}, {size(table.bytes)}"]
    if isinstance(table.rows_used, Quantity):
        parts.append(f"a batch uses {number(table.rows_used.value)} of them")
    if table.whole_ops:
        parts.append("the step goes over all of them")
    if isinstance(table.took, Quantity):
        parts.append(f"{duration(table.took.value)} a call for that")
    return ", ".join(parts)


def _padding(padding: Padding) -> str:
    part = share(padding.share.value) if isinstance(padding.share, Quantity) else "a part"
    return (
        f"{part} of what {padding.layer} is given, rows of {padding.row_length:.1f} in batches of length "
        f"{padding.length:.1f}"
    )


def _loop(loop: Loop) -> str:
    parts = [loop.kind.replace("_loop", " loop") + (f" in the {loop.part} part" if loop.part else "")]
    if isinstance(loop.iterations, Quantity):
        parts.append(f"{number(loop.iterations.value)} rounds a call")
    if isinstance(loop.alone, Quantity):
        parts.append(f"{duration(loop.alone.value)} a call")
    return ", ".join(parts)


def _metrics(model: ModelFacts, cost: MetricCost) -> str:
    names = ", ".join(each.name for each in model.metrics[:_SHOWN])
    saved = sorted(a - b for a, b in zip(cost.with_s, cost.without_s, strict=False))
    if not saved or saved[len(saved) // 4] <= 0:
        return f"{names}: too little to tell from nothing"
    return f"{names}: {duration(statistics.median(saved))} a call"

"""What a model consists of, as far as that decides what a step costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfdiag.model.quantity import Maybe, Missing

__all__ = [
    "EmbeddingTable", "LayerFacts", "LengthCalls", "Loop", "LoopKind", "MetricCost", "MetricFacts",
    "ModelFacts", "OptimizerFacts", "Padding", "Recurrent", "TableCost", "WithoutMetric",
]  # fmt: skip

LoopKind: TypeAlias = Literal["map_fn", "scan", "recurrent", "while_loop"]


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """A layer, or a model within the model."""

    name: str
    cls: str
    within: str = ""
    """The layer or model that holds it, empty for those of the model itself."""
    policy: str = ""
    input_shape: str = ""
    """`(None, 10)`, empty where nobody knows it."""
    output_shape: str = ""
    parameters: Maybe = Missing("the layer is not built")
    trainable: bool = True


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A layer that goes over time, and what keeps it off the fused kernel that GPUs have."""

    layer: str
    cls: str
    units: int
    fusable: bool
    """There is a fused kernel for layers of this class."""
    off: tuple[str, ...] = ()
    """Arguments that the fused kernel can't do, as the caller wrote them: `recurrent_dropout=0.2`."""
    fused: bool = False
    """The step's graph holds the fused kernel."""
    alone: Maybe = Missing("it was not timed")
    """Seconds of a call in which nothing but the ops of this layer ran, forwards and backwards."""


@dataclass(frozen=True, slots=True)
class EmbeddingTable:
    """The table of an embedding, and what of it a step needs."""

    layer: str
    rows: int
    dim: int
    dtype: str
    bytes: int
    trainable: bool = True
    mask_zero: bool = False
    regularized: bool = False
    """A regularizer or a constraint reads all of it in each step."""
    ids: Maybe = Missing("no batch was looked at")
    """Ids that one batch looks up."""
    rows_used: Maybe = Missing("no batch was looked at")
    """Different ones among them."""
    whole_ops: int = 0
    """Ops of a step that go over all rows of it, or of the optimizer's slots for it."""
    took: Maybe = Missing("it was not timed")
    """Seconds of a call that these ops take; of time in which others ran beside them their part, and
    within the interval none of it or all."""


@dataclass(frozen=True, slots=True)
class LengthCalls:
    """Calls of the train function on the same rows, cut to a length."""

    length: int
    call_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Padding:
    """Positions of real batches that hold nothing."""

    layer: str
    """The layer that is given the sequences."""
    side: Literal["right", "left"]
    value: float
    length: float
    """Mean length of batches, padding included."""
    row_length: float
    """Mean length of rows without it."""
    longest: float
    """The longest row of a batch without it, as a mean over batches."""
    share: Maybe
    """Part of all positions that is padding."""
    rows: int
    batches: int
    calls: tuple[LengthCalls, ...] = ()
    """What a step takes at two lengths."""
    calls_missing: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop inside the step, which runs one small op after the other."""

    name: str
    op: str
    kind: LoopKind
    layer: str = ""
    part: Literal["forward", "backward", "optimizer", "loss", "metrics", ""] = ""
    calls_python: bool = False
    iterations: Maybe = Missing("they were not counted")
    """In a call of the train function."""
    alone: Maybe = Missing("it was not timed")
    """Seconds of a call in which nothing but this loop ran."""
    op_s: Maybe = Missing("it was not timed")
    """What an op of it takes, as a mean."""


@dataclass(frozen=True, slots=True)
class OptimizerFacts:
    """An optimizer that the model holds."""

    name: str
    cls: str
    settings: tuple[str, ...] = ()
    """What makes it go over all rows of a table: `weight_decay=0.01`."""


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """A metric that the step updates, beside the loss."""

    name: str
    cls: str


@dataclass(frozen=True, slots=True)
class WithoutMetric:
    """Calls of the train function with one metric left out."""

    name: str
    call_s: tuple[float, ...]
    with_s: tuple[float, ...]
    """Calls of the whole one, made by turns with these."""


@dataclass(frozen=True, slots=True)
class TableCost:
    """Calls as they are, and with updates of only those rows that were looked up, made by turns."""

    with_s: tuple[float, ...]
    without_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Calls as they are, and with a ready result in the place of a layer that loops, made by turns."""

    layer: str
    with_s: tuple[float, ...]
    without_s: tuple[float, ...]
    rest_s: float = 0.0
    """Of a call, in the layer's other ops, as the trace shows them; without one nothing is timed."""


@dataclass(frozen=True, slots=True)
class MetricCost:
    """Calls with and without the metrics, made by turns; each entry is the mean call of a short stretch."""

    with_s: tuple[float, ...]
    without_s: tuple[float, ...]
    each: tuple[WithoutMetric, ...] = ()
    """Metrics one by one, where there are few and together they take long."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model consists of."""

    layers: tuple[LayerFacts, ...] = ()
    layers_missing: str = ""
    """Why layers are not known, or not all of them; empty where they are."""
    recurrent: tuple[Recurrent, ...] = ()
    embeddings: tuple[EmbeddingTable, ...] = ()
    padding: tuple[Padding, ...] = ()
    batch_missing: str = ""
    """Why nobody looked at what a batch holds, empty where somebody did or where there was nothing to see."""
    loops: tuple[Loop, ...] = ()
    graph_missing: str = ""
    """Why loops are not known, empty where they are."""
    times_missing: str = ""
    """Why the parts of the step were not timed, empty where they were or where there was none to time."""
    optimizers: tuple[OptimizerFacts, ...] = ()
    metrics: tuple[MetricFacts, ...] = ()
    losses: tuple[str, ...] = ()
    metric_cost: MetricCost | Missing = Missing("the step was not timed without its metrics")
    table_cost: TableCost | Missing = Missing("the step was not timed with updates of single rows")
    """Of all tables together."""
    loop_costs: tuple[LoopCost, ...] = ()
    """Of the layers whose loops may cost something, where their results could be stood in for."""

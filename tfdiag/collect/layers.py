"""Facts about a model that need no run: layers, recurrent ones, tables, optimizers, metrics, losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfdiag.compat import keras_parts as door
from tfdiag.model.layers import EmbeddingTable, LayerFacts, MetricFacts, ModelFacts, OptimizerFacts, Recurrent
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["embeddings_in", "maskings_in", "model_facts"]

_MOST_LAYERS = 500
_DEEPEST = 20
_FUSABLE = ("LSTM", "GRU")
_RECURRENT = ("RNN", "LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU")
_DENSE_SETTINGS = (
    "weight_decay",
    "use_ema",
    "clipnorm",
    "global_clipnorm",
    "momentum",
    "gradient_accumulation_steps",
)
_PROBLEMS = (AttributeError, TypeError, ValueError, NotImplementedError, RuntimeError, KeyError, IndexError)
"""What layers raise that were not built, or that the caller wrote."""


def model_facts(model: Any) -> ModelFacts:
    """Walk a model; what can't be told of a layer is left out, not guessed."""
    found = list(_walk(model))
    missing = ""
    if len(found) > _MOST_LAYERS:
        missing = f"the model has more than {_MOST_LAYERS} layers: those after the first are not listed"
    elif not found:
        missing = "the model lists no layers"
    layers = [layer for layer, _ in found]
    return ModelFacts(
        layers=tuple(_layer(layer, within) for layer, within in found[:_MOST_LAYERS]),
        layers_missing=missing,
        recurrent=tuple(_recurrent(layer) for layer in layers if _is_recurrent(layer)),
        embeddings=tuple(_table(layer) for layer in layers if _is_table(layer)),
        optimizers=tuple(map(_optimizer, door.optimizers_of(model))),
        metrics=tuple(MetricFacts(_name(each), _class(each)) for each in door.compiled_metrics(model)),
        losses=tuple(map(_loss, door.compiled_losses(model))),
    )


def embeddings_in(model: Any) -> list[Any]:
    """List the embeddings of a model."""
    return [layer for layer, _ in _walk(model) if _is_table(layer)]


def maskings_in(model: Any) -> list[Any]:
    """List the layers of a model that mask what equals a value."""
    return [layer for layer, _ in _walk(model) if "Masking" in door.class_names(layer)]


def _walk(model: Any) -> Iterator[tuple[Any, str]]:
    """Go through all layers, outer ones first, each once with the name of what holds it."""
    seen = {id(model)}
    level = [(layer, "") for layer in door.layers_within(model)]
    for _ in range(_DEEPEST):
        deeper: list[tuple[Any, str]] = []
        for layer, within in level:
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            yield layer, within
            deeper.extend((inner, _name(layer)) for inner in door.layers_within(layer))
        level = deeper


def _name(thing: Any) -> str:
    return str(getattr(thing, "name", "") or type(thing).__name__)


def _class(thing: Any) -> str:
    """Name the class, and for one that wraps a function that function."""
    function = getattr(thing, "_fn", None) or getattr(thing, "fn", None)
    name = getattr(function, "__name__", "")
    wraps = type(thing).__name__ in (
        "MeanMetricWrapper",
        "LossFunctionWrapper",
        "SumOverBatchSizeMetricWrapper",
    )
    return name if wraps and name else type(thing).__name__


def _layer(layer: Any, within: str) -> LayerFacts:
    policy: Any = getattr(layer, "dtype_policy", None)
    return LayerFacts(
        name=_name(layer),
        cls=type(layer).__name__,
        within=within,
        policy=str(getattr(policy, "name", "") or getattr(layer, "dtype", "") or ""),
        input_shape=_shape(layer, "input"),
        output_shape=_shape(layer, "output"),
        parameters=_parameters(layer),
        trainable=bool(getattr(layer, "trainable", True)),
    )


def _shape(layer: Any, side: str) -> str:
    """Give a shape from the layer's place in a graph of layers, or from how it was built."""
    try:
        tensor = getattr(layer, side)
        many = tensor if isinstance(tensor, (list, tuple)) else [tensor]
        return " and ".join(str(tuple(each.shape)) for each in many)
    except _PROBLEMS:
        pass
    if side == "output":
        return ""
    try:
        built = (layer.get_build_config() or {}).get("input_shape")
        return "" if built is None else str(tuple(built))
    except _PROBLEMS:
        return ""


def _parameters(layer: Any) -> Maybe:
    try:
        return Quantity(float(layer.count_params()), "parameters", source="count_params()")
    except _PROBLEMS:
        return Missing("the layer is not built")


def _is_table(layer: Any) -> bool:
    names = door.class_names(layer)
    return (
        "Embedding" in names
        and bool(getattr(layer, "input_dim", 0))
        and bool(getattr(layer, "output_dim", 0))
    )


def _table(layer: Any) -> EmbeddingTable:
    rows, dim = int(layer.input_dim), int(layer.output_dim)
    try:
        dtype = str(getattr(layer.embeddings.dtype, "name", layer.embeddings.dtype))
    except _PROBLEMS:
        dtype = str(getattr(layer, "variable_dtype", "") or "float32")
    size = {"float16": 2, "bfloat16": 2, "float64": 8}.get(dtype, 4)
    return EmbeddingTable(
        layer=_name(layer),
        rows=rows,
        dim=dim,
        dtype=dtype,
        bytes=rows * dim * size,
        trainable=bool(getattr(layer, "trainable", True)),
        mask_zero=bool(getattr(layer, "mask_zero", False)),
        regularized=any(
            getattr(layer, name, None) is not None
            for name in ("embeddings_regularizer", "embeddings_constraint", "activity_regularizer")
        ),
    )


def _is_recurrent(layer: Any) -> bool:
    # A Bidirectional holds two of them, and is none itself.
    return not set(_RECURRENT).isdisjoint(door.class_names(layer)) and not hasattr(layer, "forward_layer")


def _recurrent(layer: Any) -> Recurrent:
    names = door.class_names(layer)
    return Recurrent(
        layer=_name(layer),
        cls=type(layer).__name__,
        units=_units(layer),
        fusable=not set(_FUSABLE).isdisjoint(names),
        off=tuple(_off(layer, gru="GRU" in names)) if not set(_FUSABLE).isdisjoint(names) else (),
    )


def _units(layer: Any) -> int:
    value = getattr(layer, "units", None) or getattr(getattr(layer, "cell", None), "units", None)
    return value if isinstance(value, int) else 0


def _off(layer: Any, *, gru: bool) -> Iterator[str]:
    """Name the arguments that the fused kernel can't do."""
    for argument, wanted in (("activation", "tanh"), ("recurrent_activation", "sigmoid")):
        function = getattr(layer, argument, None)
        name = str(getattr(function, "__name__", function))
        if name != wanted:
            yield f'{argument}="{name}"' if name.isidentifier() else f"{argument}={name}"
    if getattr(layer, "recurrent_dropout", 0):
        yield f"recurrent_dropout={layer.recurrent_dropout}"
    if getattr(layer, "unroll", False):
        yield "unroll=True"
    if not getattr(layer, "use_bias", True):
        yield "use_bias=False"
    if gru and not getattr(layer, "reset_after", True):
        yield "reset_after=False"
    if getattr(layer, "use_cudnn", "auto") is False:
        yield "use_cudnn=False"


def _optimizer(optimizer: Any) -> OptimizerFacts:
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of one that scales the loss
    settings = []
    for name in _DENSE_SETTINGS:
        value = getattr(inner, name, None)
        if isinstance(value, (bool, int, float)) and value:
            settings.append(f"{name}={value}")
    return OptimizerFacts(_name(optimizer), type(inner).__name__, tuple(settings))


def _loss(loss: Any) -> str:
    return (
        loss if isinstance(loss, str) else str(getattr(loss, "name", "") or getattr(loss, "__name__", "loss"))
    )

"""Facts about models of all kinds, without running them."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tf_keras

from tfdiag.collect.layers import model_facts
from tfdiag.compat import keras_parts as door
from tfdiag.model.layers import ModelFacts
from tfdiag.model.quantity import Missing, Quantity


def nested() -> Any:
    """Give a model with a model and wrappers in it."""
    inner = keras.Sequential(
        [
            keras.Input((None, 8)),
            keras.layers.Bidirectional(keras.layers.GRU(4, reset_after=False), name="both"),
        ],
        name="inner",
    )
    inputs = keras.Input((5,), dtype="int32")
    hidden = keras.layers.Embedding(50, 8, name="words")(inputs)
    hidden = keras.layers.TimeDistributed(keras.layers.Dense(8, name="each"), name="over_time")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, dtype="mixed_float16")(inner(hidden)))
    model.compile(
        keras.optimizers.AdamW(weight_decay=0.01), "mse", metrics=["mae", keras.metrics.AUC(name="auc")]
    )
    return model


def test_nested_models_and_wrappers_are_walked() -> None:
    """Each layer once, with what holds it, its class, shapes, parameters and policy."""
    found = model_facts(nested())
    by_name = {layer.name: layer for layer in found.layers}
    assert by_name["words"].input_shape == "(None, 5)"
    assert by_name["words"].output_shape == "(None, 5, 8)"
    assert by_name["words"].parameters == Quantity(400.0, "parameters", source="count_params()")
    assert by_name["each"].within == "over_time"
    assert by_name["both"].within == "inner"
    assert any(layer.policy == "mixed_float16" for layer in found.layers)
    assert {(each.cls, each.off) for each in found.recurrent} == {("GRU", ("reset_after=False",))}
    assert len(found.recurrent) == 2
    (table,) = found.embeddings
    assert (table.layer, table.rows, table.dim, table.bytes, table.mask_zero) == ("words", 50, 8, 1600, False)
    (optimizer,) = found.optimizers
    assert (optimizer.cls, optimizer.settings) == ("AdamW", ("weight_decay=0.01",))
    assert found.losses == ("mse",)


def test_metrics_are_listed_once_they_are_built() -> None:
    """Those of compile, without what only keeps the loss."""
    model = nested()
    x, y = keras.ops.ones((4, 5), "int32"), keras.ops.ones((4, 1))
    model.compute_metrics(x, y, model(x), None)
    assert [(each.name, each.cls) for each in model_facts(model).metrics] == [
        ("mae", "MeanAbsoluteError"),
        ("auc", "AUC"),
    ]


class Held(keras.Model):
    """Keeps layers in a list and a dict, and has two optimizers."""

    def __init__(self) -> None:
        """Make them."""
        super().__init__()
        self.rows = [keras.layers.Dense(2, name="in_list")]
        self.named = {"a": keras.layers.LSTM(3, recurrent_dropout=0.5, name="in_dict")}
        self.second = keras.optimizers.SGD(momentum=0.9, name="second")


def test_a_subclassed_model_that_was_never_built() -> None:
    """What it holds is known, what only building tells is not."""
    model = Held()
    model.compile("adam", "mse")
    found = model_facts(model)
    by_name = {layer.name: layer for layer in found.layers}
    assert {"in_list", "in_dict"} <= set(by_name)
    assert by_name["in_list"].input_shape == by_name["in_list"].output_shape == ""
    assert isinstance(by_name["in_list"].parameters, Missing)
    assert [each.off for each in found.recurrent] == [("recurrent_dropout=0.5",)]
    assert {(each.cls, each.settings) for each in found.optimizers} == {
        ("Adam", ()),
        ("SGD", ("momentum=0.9",)),
    }


@pytest.mark.parametrize(
    ("options", "off"),
    [
        ({}, ()),
        ({"activation": "relu"}, ('activation="relu"',)),
        (
            {"recurrent_activation": "hard_sigmoid", "unroll": True},
            ('recurrent_activation="hard_sigmoid"', "unroll=True"),
        ),
        ({"use_bias": False}, ("use_bias=False",)),
        ({"dropout": 0.5, "go_backwards": True}, ()),
    ],
)
@pytest.mark.parametrize("flavour", [keras, tf_keras])
def test_what_keeps_a_layer_off_the_fused_kernel(
    flavour: Any, options: dict[str, Any], off: tuple[str, ...]
) -> None:
    """Each argument as it was written; dropout outside of the recurrence is none of them."""
    model = flavour.Sequential([flavour.layers.LSTM(3, **options)])
    (layer,) = model_facts(model).recurrent
    assert (layer.off, layer.fusable, layer.units) == (off, True, 3)


def test_layers_without_a_fused_kernel() -> None:
    """SimpleRNN and cells of one's own have none, so nothing keeps them off it."""
    layers = [keras.layers.SimpleRNN(3), keras.layers.RNN(keras.layers.LSTMCell(3))]
    found = model_facts(keras.Sequential(layers)).recurrent
    assert [(each.fusable, each.off, each.units) for each in found] == [(False, (), 3), (False, (), 3)]


def test_tf_keras_models_and_things_that_are_none() -> None:
    """The same facts for tf_keras; an object without layers says that it lists none."""
    model = tf_keras.Sequential(
        [
            tf_keras.Input((5,)),
            tf_keras.layers.Embedding(30, 4),
            tf_keras.layers.Bidirectional(tf_keras.layers.LSTM(2)),
        ]
    )
    model.compile("adagrad", "mse", metrics=["mae"])
    found = model_facts(model)
    assert [each.rows for each in found.embeddings] == [30]
    assert [each.cls for each in found.recurrent] == ["LSTM", "LSTM"]
    assert [each.cls for each in found.optimizers] == ["Adagrad"]
    assert model_facts(type("Nothing", (), {})()) == ModelFacts(layers_missing="the model lists no layers")


def fail_within(context: Any) -> None:
    """Raise while a context lasts."""
    with context:
        raise KeyError


def test_what_was_changed_for_a_look_is_put_back() -> None:
    """Metrics, calls and input specifications are their own again, also after an error."""
    model = nested()
    metric = keras.metrics.AUC()
    layer = model.get_layer("words")
    before = [dict(vars(thing)) for thing in (model, metric, layer)]
    for context in (
        door.without_metrics((metric,)),
        door.watched_calls([layer], lambda *_: None),
        door.any_length(model),
    ):
        with pytest.raises(KeyError):
            fail_within(context)
    assert [dict(vars(thing)) for thing in (model, metric, layer)] == before

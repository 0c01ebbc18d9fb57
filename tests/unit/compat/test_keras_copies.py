"""Copies of Keras jobs with one thing changed: what can't be copied says why, and never raises."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tfdiag.compat.keras_copies import clone, put_settings, without_metrics_setting


@keras.saving.register_keras_serializable("tests")
class Counts(keras.metrics.Metric):
    """A metric as people write it: its constructor takes no dtype."""

    def __init__(self, name: str = "counts") -> None:
        """Count from nothing."""
        super().__init__(name=name)
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count a batch."""
        self.total.assign_add(1.0)

    def result(self) -> Any:
        """Give the count."""
        return self.total


def model_of(outputs: int = 1, **compiled: Any) -> Any:
    """Give a model with so many outputs."""
    inputs = keras.Input((4,))
    heads = [keras.layers.Dense(1, name=f"out{number}")(inputs) for number in range(outputs)]
    model = keras.Model(inputs, heads if outputs > 1 else heads[0])
    model.compile(optimizer="sgd", loss=["mse"] * outputs if outputs > 1 else "mse", **compiled)
    return model


def names_without(model: Any, *targets: str) -> list[str]:
    """Train a step without some metrics, and give the names of those that are left."""
    setting = without_metrics_setting(model, targets)
    assert isinstance(setting, dict), setting
    put_settings(model, setting)
    x = np.zeros((8, 4), "float32")
    count = len(model.outputs)
    y = [np.zeros((8, 1), "float32")] * count if count > 1 else np.zeros((8, 1), "float32")
    logs = model.fit(x, y, verbose=0).history
    return sorted(name for name in logs if "loss" not in name)


def test_one_of_several_metrics_is_dropped():
    """The others stay, in new objects: those of the job keep what they counted."""
    mean = keras.metrics.MeanAbsoluteError(name="mine")
    model = model_of(metrics=["mse", mean, "mape"], weighted_metrics=["mae"])
    assert names_without(model, "mse") == ["mae", "mape", "mine"]
    assert not any(metric is mean for metric in vars(model)["_compile_metrics"].metrics)


def test_two_metrics_are_dropped_together():
    """What is dropped second does not bring the first one back."""
    assert names_without(model_of(metrics=["mse", "mae", "mape"]), "mse", "mape") == ["mae"]


@pytest.mark.parametrize(
    "metrics", [[["mse"], ["mae"]], [["mse", "mae"], None], {"out0": ["mse"], "out1": "mae"}, ["mse", "mae"]]
)
def test_metrics_of_several_outputs_keep_their_places(metrics: Any):
    """A list or dict by output is one afterwards, also where an output has none."""
    left = names_without(model_of(2, metrics=metrics), "mse")
    assert len(left) == 1
    assert left[0].endswith("mae")


def test_what_can_not_be_made_anew_says_why():
    """A metric of the caller's own that stays can't always be copied; one that goes need not be."""
    model = model_of(metrics=["mae", Counts()])
    said = without_metrics_setting(model, ["mae"])
    assert isinstance(said, str)
    assert "can't be made anew" in said
    assert names_without(model, "counts") == ["mae"]


def test_an_unknown_metric_is_not_dropped():
    """Nothing is claimed of a change that changes nothing."""
    assert without_metrics_setting(model_of(metrics=["mae"]), ["mape"]) == (
        "there is no metric mape among those of compile"
    )
    assert without_metrics_setting(model_of(metrics=["mae"]), [""]) == {"_compile_metrics": None}


class Doubled(keras.Model):
    """A model with a step of its own, whose constructor takes layers' arguments."""

    def __init__(self, units: int = 3) -> None:
        """Make it of Keras' functional parts."""
        inputs = keras.Input((4,))
        super().__init__(inputs=inputs, outputs=keras.layers.Dense(1)(keras.layers.Dense(units)(inputs)))

    def train_step(self, data: Any) -> Any:
        """Train twice."""
        super().train_step(data)
        return super().train_step(data)


def test_a_model_that_keras_copies_as_another_is_not_tried():
    """Its own step would be lost."""
    model = Doubled()
    model.compile("sgd", "mse")
    said = clone(model, policy="", optimizer="adam")
    assert isinstance(said, str)
    assert "Doubled" in said


def own_loss(y_true: Any, y_pred: Any) -> Any:
    """Give the error."""
    return keras.ops.mean(keras.ops.abs(y_true - y_pred))


class OwnLayer(keras.layers.Dense):
    """A layer of the caller's, which Keras does not know by name."""


def test_a_clone_has_the_callers_classes_and_weights():
    """A loss and a layer that are not registered anywhere, and another optimizer."""
    inputs = keras.Input((4,))
    model = keras.Model(inputs, OwnLayer(1)(inputs))
    model.compile("adam", own_loss)
    made = clone(model, policy="", optimizer="SGD")
    assert not isinstance(made, str), made
    assert type(made.layers[-1]) is OwnLayer
    assert type(made.optimizer).__name__ == "SGD"
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), made.get_weights(), strict=True))


def test_the_policy_reaches_models_in_the_model():
    """A backbone is a model by itself, whose layers take the policy too."""
    backbone = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="inner")])
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1, name="outer")(backbone(inputs)))
    model.compile("sgd", "mse")
    made = clone(model, policy="mixed_bfloat16", optimizer="")
    assert not isinstance(made, str), made
    inner = next(layer for part in made.layers if getattr(part, "layers", None) for layer in part.layers)
    assert inner.dtype_policy.name == "mixed_bfloat16"
    assert made.get_layer("outer").dtype_policy.name == "mixed_bfloat16"
    made.fit(np.zeros((8, 4), "float32"), np.zeros((8, 1), "float32"), verbose=0)

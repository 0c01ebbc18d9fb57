"""Compiled copies of models: what is in them, and what can't be copied."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tfdiag.compat.clones import clone
from tfdiag.errors import ModelError


class Scaled(keras.layers.Layer):
    """A layer of the caller's own."""

    def call(self, x):
        """Double."""
        return 2.0 * x


def own_loss(y, z):
    """Give a loss that Keras has no name for."""
    return keras.ops.mean(keras.ops.square(y - z))


class Stepping(keras.Model):
    """A model whose step is its own."""

    def train_step(self, data):
        """Count as Keras does."""
        return super().train_step(data)


def functional(cls=keras.Model):
    """Give a model with a layer and a loss of the caller's own."""
    inputs = keras.Input((3,))
    model = cls(inputs, keras.layers.Dense(1)(Scaled()(inputs)))
    model.compile(
        keras.optimizers.Adam(0.5), own_loss, metrics=["mae"], jit_compile=True, steps_per_execution=2
    )
    return model


@pytest.mark.parametrize("cls", [keras.Model, Stepping])
def test_a_copy_has_weights_and_compilation(cls):
    """Own layers, losses and steps included; it trains, and the original stays as it is."""
    model = functional(cls)
    before = model.get_weights()
    copy = clone(model, jit_compile=False)
    assert type(copy) is type(model)
    for one, other in zip(before, copy.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (copy.jit_compile, model.jit_compile) == (False, True)
    assert copy.steps_per_execution == 2
    assert float(copy.optimizer.learning_rate) == 0.5
    copy.fit(np.ones((8, 3)), np.zeros((8, 1)), batch_size=4, verbose=0)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(before[0], copy.get_weights()[0])


def test_what_has_no_weights_is_refused():
    """A model that is not built has nothing to copy."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match="not built"):
        clone(model)


def test_tf_keras_models_are_copied_too():
    """By their own Keras."""
    tf_keras = pytest.importorskip("tf_keras")
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(3,))])
    model.compile("sgd", "mse")
    copy = clone(model, jit_compile=False)
    assert isinstance(copy, tf_keras.Sequential)
    np.testing.assert_array_equal(copy.get_weights()[0], model.get_weights()[0])

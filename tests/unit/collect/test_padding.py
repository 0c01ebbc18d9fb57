"""What real batches hold: rows of tables, padding, and what a length costs."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tfdiag.collect.padding import Given, given_in, measure_lengths, padding_of, worth_timing
from tfdiag.model.quantity import Quantity


def ids(*lengths: int, whole: int = 10, left: bool = False, value: int = 0) -> np.ndarray:
    """Give rows of these lengths, padded."""
    rows = np.full((len(lengths), whole), value, "int32")
    for row, own in zip(rows, lengths, strict=True):
        row[slice(whole - own, whole) if left else slice(0, own)] = np.arange(1, own + 1)
    return rows


def share(padding: Any) -> float:
    """Give the part that is padding."""
    assert isinstance(padding.share, Quantity)
    return padding.share.value


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(("value", "masked"), [(0, True), (0, False), (99, False)])
def test_padding_is_counted_on_either_side(left: bool, value: int, masked: bool) -> None:
    """With a mask or without, whatever it is padded with; also in batches that are read after the first."""
    batch = ids(2, 4, 10, left=left, value=value), np.ones(3)
    given = Given("words", batch[0], mask_zero=masked)
    whole = tuple(map(tf.constant, batch))
    padding = padding_of(given, whole, [(tf.constant(ids(1, 1, 1, left=left, value=value)), tf.ones(3))])
    assert padding is not None
    assert (padding.side, padding.value, padding.batches, padding.rows) == (
        "left" if left else "right",
        value,
        2,
        6,
    )
    assert share(padding) == pytest.approx((8 + 6 + 27) / 60)
    assert padding.row_length == pytest.approx((2 + 4 + 10 + 3) / 6)
    assert padding.longest == pytest.approx((10 + 1) / 2)
    assert worth_timing(padding)


@pytest.mark.parametrize(
    "values",
    [
        ids(3, 3, whole=7),  # columns of a table
        np.random.default_rng(0).integers(0, 50, (64, 10)),
        ids(10, 10),
        np.ones((4, 10), "float32"),
        np.zeros((4, 3, 10), "int32"),
        np.zeros((0, 10), "int32"),
    ],
)
def test_what_is_no_padding(values: np.ndarray) -> None:
    """Few columns, numbers at random, full rows, other types and ranks, nothing at all."""
    padding = padding_of(Given("words", values), (values,))
    assert padding is None or share(padding) < 0.15


def test_zeros_inside_a_row_are_no_padding() -> None:
    """Only what stands at an end counts."""
    values = ids(10, 10)
    values[:, 3:5] = 0
    assert padding_of(Given("words", values, mask_zero=True), values) is None


def test_a_masking_layer_tells_its_value() -> None:
    """Positions in which all features have it."""
    values = np.ones((2, 10, 3), "float32")
    values[0, 4:] = -1.0
    values[1, 9, 0] = -1.0
    padding = padding_of(Given("mask", values, mask_value=-1.0), values)
    assert padding is not None
    assert share(padding) == pytest.approx(6 / 20)


def text(flavour: Any, *, length: int | None = 40, pool: bool = True) -> Any:
    """Give a model of text, for one length unless told otherwise."""
    layers = [flavour.layers.GlobalAveragePooling1D()] if pool else [flavour.layers.Flatten()]
    model = flavour.Sequential(
        [
            flavour.Input((length,), dtype="int32"),
            flavour.layers.Embedding(60, 8, name="words"),
            flavour.layers.Conv1D(8, 3),
            *layers,
            flavour.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    return model


class Own(keras.Model):
    """Looks up in its own way."""

    def __init__(self) -> None:
        """Make layers, and keep them in a list."""
        super().__init__()
        self.parts = [keras.layers.Embedding(60, 4, name="words"), keras.layers.Dense(1)]

    def call(self, x: Any) -> Any:
        """Take a dict."""
        return self.parts[1](tf.reduce_mean(self.parts[0](x["ids"]), axis=1))


def test_rows_in_use_are_those_that_the_model_looks_up() -> None:
    """Through layers, dicts and subclassed models; nothing where nothing is looked up."""
    batch = ids(30, 20, whole=40)
    for model, inputs in ((text(keras), batch), (text(tf_keras), batch), (Own(), {"ids": batch})):
        model(tf.nest.map_structure(tf.constant, inputs))
        (given,) = given_in(model, (tf.nest.map_structure(tf.constant, inputs), tf.ones((2, 1))))
        assert given.layer == "words"
        assert np.array_equal(given.values, batch)
    assert given_in(keras.Sequential([keras.layers.Dense(1)]), (tf.ones((2, 3)),)) == []


def lengths(model: Any, batch: Any, seconds: float = 30.0) -> Any:
    """Time a model at two lengths."""
    padding = padding_of(Given("words", batch[0].numpy()), batch)
    assert padding is not None
    model(batch[0])
    spec = tf.nest.map_structure(tf.TensorSpec.from_tensor, batch)
    return measure_lengths(
        model,
        batch,
        spec,
        padding,
        first_call_s=0.0,
        call_s=0.02,
        turns_until=time.perf_counter() + 2.0,
        until=time.perf_counter() + seconds,
        clock=time.perf_counter,
        should_stop=lambda: False,
    )


@pytest.mark.parametrize("flavour", [keras, tf_keras])
def test_a_model_for_one_length_is_timed_at_another(flavour: Any) -> None:
    """Its layers can, though its input says otherwise; the model is as before."""
    model = text(flavour)
    batch = tf.constant(ids(*[10] * 8, whole=40)), tf.ones((8, 1))
    before = model.train_function
    (whole, cut), missing = lengths(model, batch, seconds=0.0001 + 1.0)
    assert (whole.length, cut.length, missing) == (40, 10, "")
    assert len(whole.call_s) == len(cut.call_s) >= 3
    assert model.train_function is before
    assert "_manual_input_spec" not in vars(model)


def test_a_model_that_takes_one_length_only_says_so() -> None:
    """And where there is no time, that."""
    batch = tf.constant(ids(*[10] * 8, whole=40)), tf.ones((8, 1))
    calls, missing = lengths(text(keras, pool=False), batch)
    assert calls == ()
    assert "no other length" in missing
    calls, missing = lengths(text(keras), batch, seconds=0.0)
    assert calls == ()
    assert "budget" in missing

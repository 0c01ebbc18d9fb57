"""Models of `tf_keras`, the older Keras, are diagnosed and put back as those of Keras 3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tf_keras

import tfdiag
from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound
from tests.traces_left import leaves_no_trace


def legacy_model(**compile_args: Any) -> Any:
    """Give a model like `jobs.tiny_model`."""
    layers = [
        tf_keras.Input((jobs.FEATURES,)),
        tf_keras.layers.Dense(8, activation="relu"),
        tf_keras.layers.Dropout(0.1),
        tf_keras.layers.Dense(1),
    ]
    model = tf_keras.Sequential(layers)
    model.compile(**{"optimizer": "adam", "loss": "mse", "metrics": ["mae"], **compile_args})
    return model


def test_slow_input() -> None:
    """A slow input is the verdict."""
    model, dataset = legacy_model(), jobs.slow(jobs.batches(300))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.measurements.job.loop == "tf_keras"
    assert report.verdict.code == "input-bound"


@pytest.mark.parametrize("optimizer", ["rmsprop", tf_keras.optimizers.legacy.Adam], ids=str)
def test_arrays_with_callbacks(optimizer: Any) -> None:
    """Arrays, a callback and validation data go to the older `fit` as well."""
    model = legacy_model(optimizer=optimizer if isinstance(optimizer, str) else optimizer())
    x, y = jobs.arrays(16 * 40)
    stop = tf_keras.callbacks.EarlyStopping(patience=3)
    kwargs = {"validation_data": (x[:32], y[:32]), "callbacks": [stop], "epochs": 5}

    with leaves_no_trace(model, callbacks=[stop], dataset=x):
        report = diagnose(model, x, y=y, batch_size=16, fit_kwargs=kwargs)

    is_sound(report, batch_size=16)
    assert "EarlyStopping" in " ".join(report.measurements.job.callbacks)


def test_training_goes_on_as_without() -> None:
    """Two twins, one of them diagnosed in the middle, end with the same weights."""
    pair = []
    for _ in range(2):
        tf_keras.utils.set_random_seed(7)
        model = tf_keras.Sequential([tf_keras.Input((jobs.FEATURES,)), tf_keras.layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(jobs.batches(5), verbose=0)
        pair.append(model)

    with leaves_no_trace(pair[1]):
        diagnose(pair[1], jobs.batches(20))

    for model in pair:
        model.fit(jobs.batches(5), verbose=0)
    for one, other in zip(pair[0].variables, pair[1].variables, strict=True):
        assert np.array_equal(one.numpy(), other.numpy())


def test_uncompiled_model_is_refused() -> None:
    """An uncompiled model of the older Keras is refused as one of the newer is."""
    model = tf_keras.Sequential([tf_keras.Input((jobs.FEATURES,)), tf_keras.layers.Dense(1)])

    with leaves_no_trace(model), pytest.raises(tfdiag.TfdiagError, match="compile"):
        diagnose(model, jobs.batches(20))

"""What a trainer offers, for Keras 3 and for tf_keras alike."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.integration import jobs
from tfdiag.compat import keras as door
from tfdiag.compat.tensorflow import current_device
from tfdiag.errors import ModelError


def legacy_model(**compile_args: Any) -> Any:
    """Give a model of the older Keras."""
    model = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compile_args})
    return model


FLAVOURS: dict[str, Callable[..., Any]] = {"keras": jobs.tiny_model, "tf_keras": legacy_model}


class Mine(keras.Model):
    """A model of the caller's own class."""


class Model:
    """Has the name, and is none."""


def test_flavour() -> None:
    """A model is known by where its class comes from, also behind classes of the caller's."""
    assert door.flavour(jobs.tiny_model()) == "keras"
    assert door.flavour(Mine()) == "keras"
    assert door.flavour(legacy_model()) == "tf_keras"
    for other in (None, Model(), keras.layers.Dense(1), tf.Module(), "model"):
        assert door.flavour(other) == ""


def test_what_is_no_model_is_named() -> None:
    """The refusal says what was received, and what to do about it."""
    with pytest.raises(ModelError, match=r"got builtins\.dict; for a loop of your own pass train_step="):
        door.require_model({})
    assert door.require_model(legacy_model()) == "tf_keras"


def test_versions_and_backend() -> None:
    """The version is that of the Keras that trains the model, and the backend the one that computes."""
    assert door.version(jobs.tiny_model()) == keras.__version__
    assert door.version(legacy_model()) == f"{tf_keras.__version__} (tf_keras)"
    assert door.backend_of(jobs.tiny_model()) == door.backend_of(legacy_model()) == "tensorflow"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_compiled_or_not(flavour: str) -> None:
    """A model is compiled once `compile` was called."""
    assert door.is_compiled(FLAVOURS[flavour]())
    bare = (keras if flavour == "keras" else tf_keras).Sequential()
    assert not door.is_compiled(bare)


def test_kinds_of_inputs_and_objects() -> None:
    """A PyDataset, by either name, is told from arrays; Keras' objects from others."""

    class Old(tf_keras.utils.Sequence):
        """The older name."""

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return index

    assert door.is_py_dataset(jobs.SlowBatches())
    assert door.is_py_dataset(Old())
    assert not door.is_py_dataset([1, 2])
    assert door.is_keras_object(keras.layers.Dense(1)) and door.is_keras_object(Mine())
    assert not door.is_keras_object(Model())


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("eager", [False, True])
def test_a_null_step_takes_batches_and_computes_nothing(flavour: str, steps: int, eager: bool) -> None:
    """It pulls as many batches as the model's own train function, and changes no weight."""
    arguments: dict[str, Any] = {"steps_per_execution": steps, "run_eagerly": eager}
    model = FLAVOURS[flavour](**arguments)
    before = [np.array(weight) for weight in model.get_weights()]
    step = door.null_step(model, ["loss", "mae"])
    iterator = iter(jobs.batches(10))
    logs = step(iterator)
    assert set(logs) == {"loss", "mae"}
    assert {float(value) for value in logs.values()} == {0.0}
    assert len(list(iterator)) == 10 - steps
    assert all(map(np.array_equal, before, model.get_weights()))


def test_a_null_step_under_a_strategy() -> None:
    """The step that does nothing is dispatched through the model's own strategy."""
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = jobs.tiny_model()
    step = door.null_step(model, ["loss"])
    dataset = strategy.experimental_distribute_dataset(jobs.batches(3))
    assert float(step(iter(dataset))["loss"]) == 0.0


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_steps_per_execution(flavour: str) -> None:
    """The steps of a call are what compile was told, and 1 where nobody was."""
    assert door.steps_per_execution(FLAVOURS[flavour](steps_per_execution=4)) == 4
    assert door.steps_per_execution(FLAVOURS[flavour]()) == 1
    assert door.steps_per_execution(object()) == 1


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_train_function_is_the_models_own(flavour: str) -> None:
    """The function is built where there is none, and is the same when asked again."""
    model = FLAVOURS[flavour]()
    step = door.make_train_function(model)
    assert step is model.train_function is door.make_train_function(model)


X = np.zeros((100, 4), "float32")

LENGTHS: list[tuple[dict[str, Any], int | None]] = [
    ({"x": X}, 4),
    ({"x": X, "batch_size": 30}, 4),
    ({"x": X, "batch_size": 50}, 2),
    ({"x": X[:5], "batch_size": 50}, 1),
    ({"x": {"a": X, "b": X}, "batch_size": 10}, 10),
    ({"x": [X, X], "batch_size": 10}, 10),
    ({"x": X, "batch_size": 10, "validation_split": 0.25}, 8),
    ({"x": X, "batch_size": 10, "validation_split": 0.25, "validation_data": (X, X)}, 10),
    ({"x": jobs.SlowBatches(7)}, 7),
    ({"x": jobs.SlowBatches(None)}, None),
    ({"x": iter([1])}, None),
    ({"x": []}, None),
    ({"x": {}}, None),
    ({}, None),
]


@pytest.mark.parametrize(("arguments", "expected"), LENGTHS)
def test_length_of_an_epoch(arguments: dict[str, Any], expected: int | None) -> None:
    """An epoch has the batches that fit would count, or nobody knows."""
    assert door.epoch_length(arguments) == expected


def test_the_length_of_an_epoch_is_fits() -> None:
    """With a validation split, fit itself counts the same batches."""
    model, counted = jobs.tiny_model(), []
    counter = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: counted.append(batch))
    arguments = {"x": X[:97], "y": X[:97, :1], "batch_size": 10, "validation_split": 0.23}
    model.fit(**arguments, callbacks=[counter], verbose=0)
    assert door.epoch_length(arguments) == len(counted)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_fit_would_iterate(flavour: str) -> None:
    """Arrays become the dataset that fit makes of them."""
    model = FLAVOURS[flavour]()
    adapted = door.adapter_dataset(model, {"x": X, "y": X[:, :1], "batch_size": 25, "shuffle": False})
    dataset = getattr(adapted, "dataset", adapted)
    shapes = [tuple(x.shape) for x, *_ in dataset]
    assert shapes == [(25, 4)] * 4
    getattr(adapted, "close", lambda: None)()


def test_the_workers_of_a_py_dataset_end() -> None:
    """A PyDataset with workers is read, and its workers are gone when it is closed."""
    before = threading.active_count()
    adapted = door.adapter_dataset(jobs.tiny_model(), {"x": jobs.SlowBatches(3, workers=2)})
    iterator = iter(adapted.dataset)
    assert next(iterator)[0].shape == (8, 4)
    del iterator
    adapted.close()
    assert threading.active_count() <= before + 1


def test_an_adapter_that_is_gone_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Keras has moved its adapters, nothing is given instead of an error."""
    from keras.src.trainers import data_adapters

    monkeypatch.delattr(data_adapters, "get_data_adapter")
    assert door.adapter_dataset(jobs.tiny_model(), {"x": X}) is None


def test_global_state_goes_round() -> None:
    """Name counters, policy, seeds and what was made meanwhile are as before, in the same objects."""
    keras.backend.clear_session()
    keras.layers.Dense(1)
    tracker = door._state_tracker()
    counters = tracker.object_name_uids
    kept = door.global_state()
    keras.layers.Dense(1)
    keras.layers.Dropout(0.5)
    tracker.made_by_a_run = 5
    keras.config.set_dtype_policy("mixed_bfloat16")
    door.restore_global_state(kept)
    assert tracker.object_name_uids is counters
    assert not hasattr(tracker, "made_by_a_run")
    assert keras.config.dtype_policy().name == "float32"
    assert keras.layers.Dense(1).name == "dense_1"


def test_a_keras_without_the_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the private tracker is gone, nothing is kept and nothing fails."""
    monkeypatch.setattr(door, "_state_tracker", lambda: None)
    assert door.global_state() == {}
    door.restore_global_state({"object_name_uids": {}})
    assert door.seed_generators() == []


def test_the_global_seed_generator_is_found() -> None:
    """Keras' own seed generator is listed once somebody has made one."""
    kept = door.global_state()
    try:
        keras.backend.clear_session()
        assert door.seed_generators() == []
        keras.random.uniform((1,))
        assert len(door.seed_generators()) == 1
        assert isinstance(door.seed_generators()[0], keras.random.SeedGenerator)
    finally:
        door.restore_global_state(kept)


def test_quiet_silences_only_its_own() -> None:
    """What Keras warns about because of the diagnosis is not heard, everything else is."""

    def warn() -> None:
        with door.quiet():
            for text in ("`shuffle=True` was passed, but will be ignored", "Your input ran out of data; x"):
                warnings.warn(text, UserWarning, stacklevel=1)
            warnings.warn("the learning rate is odd", UserWarning, stacklevel=1)

    with pytest.warns(UserWarning, match="learning rate is odd") as heard:
        warn()
    assert len(heard) == 1


def test_batches_that_workers_had_ready_are_let_go() -> None:
    """Keras keeps them for another epoch, in an adapter that TensorFlow never lets go of."""

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> Any:
            return np.full((2, 3), index, np.float32), np.zeros((2, 1), np.float32)

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    adapted = door.adapter_dataset(model, {"x": Batches(workers=2, max_queue_size=4)})
    next(iter(adapted.dataset))
    adapted.close()
    assert not adapted.adapter.enqueuer.is_running()
    assert adapted.adapter.enqueuer.ready_queue.empty()


def test_another_thread_sees_the_device_of_this_one() -> None:
    """A tf.device around the caller holds there as well, and only while it is asked for."""
    found = []

    def look(scope: Any) -> None:
        found.append(current_device())
        with scope:
            found.append(current_device())

    with tf.device("/CPU:0"):
        scope = door.carry_context()
    for each in (scope, door.carry_context()):
        thread = threading.Thread(target=look, args=(each,))
        thread.start()
        thread.join()
    assert [name.rpartition("/")[2] for name in found] == ["", "device:CPU:0", "", ""]

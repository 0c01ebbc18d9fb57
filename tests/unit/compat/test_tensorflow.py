"""The door to TensorFlow, also where there is none."""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from tfdiag.compat import keras as keras_door
from tfdiag.compat import tensorflow as door
from tfdiag.errors import TensorFlowMissingError, TfdiagError


@pytest.fixture
def fresh() -> Iterator[None]:
    """Forget what the doors have imported, before and after."""
    for cached in (door.tensorflow, keras_door.keras):
        cached.cache_clear()
    yield
    for cached in (door.tensorflow, keras_door.keras):
        cached.cache_clear()


def without(monkeypatch: pytest.MonkeyPatch, missing: str, instead: Any = None) -> None:
    """Make one module impossible to import, or another one."""
    real = importlib.import_module

    def import_module(name: str, package: str | None = None) -> Any:
        if name == missing:
            if instead is not None:
                return instead
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", import_module)


def test_without_tensorflow(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one error names the reason and what to install, and keeps the cause."""
    without(monkeypatch, "tensorflow")
    with pytest.raises(TensorFlowMissingError) as caught:
        door.tensorflow()
    message = str(caught.value)
    assert "No module named 'tensorflow'" in message
    assert 'pip install "tfdiag[tensorflow]"' in message
    assert "\n" not in message
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert isinstance(caught.value, TfdiagError)


def test_a_folder_named_tensorflow(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else of that name, as an empty folder is, is said to be no TensorFlow."""
    without(monkeypatch, "tensorflow", types.ModuleType("tensorflow"))
    with pytest.raises(TensorFlowMissingError, match=r"without tf\.function"):
        door.tensorflow()


def test_a_failure_is_not_remembered(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once TensorFlow is installed it is found, in the same process."""
    with monkeypatch.context() as patch:
        without(patch, "tensorflow")
        with pytest.raises(TensorFlowMissingError):
            door.tensorflow()
    assert door.tensorflow() is tf


def test_without_keras(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TensorFlow whose Keras can't be imported is told apart from no TensorFlow."""
    without(monkeypatch, "keras")
    with pytest.raises(TensorFlowMissingError, match="TensorFlow is installed but Keras can't be imported"):
        keras_door.keras()


def test_inside_a_function() -> None:
    """Only code that is being traced stands inside a function."""
    seen: list[bool] = []

    @tf.function
    def traced() -> None:
        seen.append(door.in_function())

    traced()
    assert seen == [True]
    assert not door.in_function()


def test_traces_are_counted() -> None:
    """The counter of a function, or of all those that a closure calls, goes up with each trace."""

    @tf.function
    def one(x: Any) -> Any:
        return x

    @tf.function
    def two(x: Any) -> Any:
        return x

    def both(x: Any) -> None:
        one(x)
        two(x)

    single, double = door.tracing_count(one), door.tracing_count(both)
    assert single is not None and double is not None
    both(tf.zeros(1))
    assert (single(), double()) == (1, 2)
    one(tf.zeros(2))
    both(tf.zeros(1))
    assert (single(), double()) == (2, 3)
    assert door.tracing_count(lambda x: x) is None


def test_variables_of_a_function() -> None:
    """The variables that traced graphs use are listed once each."""
    first, second = tf.Variable(1.0), tf.Variable(2.0)

    @tf.function
    def step(x: Any) -> Any:
        return x * first + second + first

    assert door.variables_of_function(step) == []
    step(tf.constant(1.0))
    step(tf.zeros(2))
    assert {id(v) for v in door.variables_of_function(step)} == {id(first), id(second)}
    assert door.variables_of_function(lambda: None) == []


def test_kinds() -> None:
    """Variables and modules are told from what only looks like them."""
    assert door.is_variable(tf.Variable(1)) and not door.is_variable(tf.constant(1))
    assert door.is_module(tf.Module()) and not door.is_module(tf)
    variable = tf.Variable(1)
    assert door.components(variable) == [variable] or door.components(variable)[0] is variable


def test_the_end_of_data_and_the_base_of_errors() -> None:
    """What ends an epoch is told from what fails."""
    iterator = iter(tf.data.Dataset.range(0))
    with pytest.raises(door.end_of_data()):
        iterator.get_next()
    with pytest.raises(door.op_error()):
        tf.debugging.assert_equal(tf.io.read_file("no/such/file"), "")


def test_op_seeds_go_round() -> None:
    """What the next op without a seed is given is the same after putting back, again and again."""
    tf.random.set_seed(21)
    tf.compat.v1.get_seed(None)
    kept = door.eager_random_state()
    first = tf.compat.v1.get_seed(None)
    for _ in range(2):
        door.restore_eager_random_state(kept)
        assert tf.compat.v1.get_seed(None) == first


def test_devices_and_threads() -> None:
    """The CPU is listed by its name and kind; thread counts are those that were configured."""
    assert ("/device:CPU:0", "CPU", "") in door.device_list()
    assert door.thread_settings() == (
        tf.config.threading.get_intra_op_parallelism_threads(),
        tf.config.threading.get_inter_op_parallelism_threads(),
    )
    assert door.version() == tf.__version__

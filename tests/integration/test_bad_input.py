"""What can't be diagnosed is refused in words, before anything is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdiag
from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound
from tests.integration.processes import run_python, succeeds
from tests.traces_left import leaves_no_trace


class Taken:
    """Counts the batches that were taken from a dataset."""

    def __init__(self) -> None:
        """Count from zero."""
        self.count = 0
        self.dataset = jobs.on_each_batch(jobs.batches(20), self._take)

    def _take(self, _: int) -> None:
        self.count += 1


def says(error: pytest.ExceptionInfo[tfdiag.TfdiagError], *words: str) -> None:
    """Check that a message is a sentence for a person, with these words in it."""
    message = str(error.value)
    for word in words:
        assert word.lower() in message.lower(), message
    assert len(message) > 30, message
    assert "Traceback" not in message


def test_uncompiled_model() -> None:
    """A model without optimizer and loss can't be trained, and the message says `compile`."""
    model = keras.Sequential([keras.Input((jobs.FEATURES,)), keras.layers.Dense(1)])
    taken = Taken()

    with leaves_no_trace(model, dataset=taken.dataset):
        with pytest.raises(tfdiag.TfdiagError) as error:
            diagnose(model, taken.dataset)

    says(error, "compile", "train_step")
    assert taken.count == 0


NOT_MODELS: dict[str, Any] = {"None": None, "str": "model.keras", "function": lambda x: x}


@pytest.mark.parametrize("name", NOT_MODELS)
def test_what_is_no_model(name: str) -> None:
    """Something that is no Keras model is named by its type."""
    taken = Taken()

    with leaves_no_trace(dataset=taken.dataset), pytest.raises(tfdiag.TfdiagError) as error:
        diagnose(NOT_MODELS[name], taken.dataset)

    says(error, "model", type(NOT_MODELS[name]).__name__)
    assert taken.count == 0


def test_no_dataset() -> None:
    """A call without data says that data is missing."""
    model = jobs.tiny_model()

    with leaves_no_trace(model), pytest.raises(tfdiag.TfdiagError) as error:
        diagnose(model)

    says(error, "dataset")


@pytest.mark.parametrize("name", ["x", "epochs_", "train_step"])
def test_fit_kwargs_that_make_no_sense(name: str) -> None:
    """An argument that `fit` does not know is named; one that is `dataset` is sent there."""
    model = jobs.tiny_model()
    kwargs: dict[str, Any] = {name: 3}

    with leaves_no_trace(model), pytest.raises(tfdiag.TfdiagError) as error:
        diagnose(model, jobs.batches(20), fit_kwargs=kwargs)

    says(error, name)


BAD_NUMBERS: list[dict[str, Any]] = [
    {"budget": 0},
    {"budget": -1.0},
    {"budget": float("nan")},
    {"budget": float("inf")},
    {"budget": "60"},
    {"steps": 0},
    {"steps": -5},
    {"steps": 2.5},
    {"batch_size": 0},
]


@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=str)
def test_numbers_that_make_no_sense(bad: dict[str, Any]) -> None:
    """A number that can't be used is named with its value."""
    model, taken = jobs.tiny_model(), Taken()
    dataset: Any = jobs.arrays() if "batch_size" in bad else taken.dataset
    ((name, value),) = bad.items()

    with leaves_no_trace(model, dataset=dataset), pytest.raises(tfdiag.TfdiagError) as error:
        tfdiag.diagnose(model, dataset, **bad)

    says(error, name, str(value))
    assert taken.count == 0


def test_unknown_check_to_ignore() -> None:
    """A check to ignore that does not exist is a mistake, not silence."""
    model = jobs.tiny_model()

    with leaves_no_trace(model), pytest.raises(tfdiag.TfdiagError) as error:
        diagnose(model, jobs.batches(20), ignore=("slow-calback",))

    says(error, "slow-calback", "slow-callback")


def empty_arrays() -> tuple[np.ndarray, np.ndarray]:
    """Arrays without rows."""
    return np.zeros((0, jobs.FEATURES), "float32"), np.zeros((0, 1), "float32")


EMPTY: dict[str, Callable[[], Any]] = {
    "take(0)": lambda: jobs.batches(20).take(0),
    "filtered away": lambda: jobs.batches(20).filter(lambda x, y: False),
    "arrays": empty_arrays,
    "generator": lambda: jobs.CountedGenerator(0).generator,
    "PyDataset": lambda: jobs.SlowBatches(0),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_dataset(name: str) -> None:
    """A dataset without a batch is said to be empty."""
    model, dataset = jobs.tiny_model(), EMPTY[name]()

    with leaves_no_trace(model, dataset=dataset), pytest.raises(tfdiag.TfdiagError) as error:
        diagnose(model, dataset)

    says(error, "empty")


WRONG_STRUCTURE: dict[str, Callable[[], Any]] = {
    "four elements": lambda: jobs.batches(20).map(lambda x, y: (x, y, y, y)),
    "other features": lambda: jobs.batches(20).map(lambda x, y: (x[:, :2], y)),
    "no target": lambda: jobs.batches(20).map(lambda x, y: x),
    "not batched": lambda: jobs.batches(20).unbatch(),
    "strings": lambda: jobs.batches(20).map(lambda x, y: (tf.strings.as_string(x), y)),
    "a number": lambda: 3,
    "a list of strings": lambda: ["train", "test"],
}


@pytest.mark.parametrize("name", WRONG_STRUCTURE)
def test_wrong_structure(name: str) -> None:
    """A dataset that the model can't take is refused with what it yields."""
    model, dataset = jobs.tiny_model(), WRONG_STRUCTURE[name]()

    with leaves_no_trace(model, dataset=dataset), pytest.raises(tfdiag.TfdiagError) as error:
        diagnose(model, dataset)

    says(error)


def test_arrays_of_different_length() -> None:
    """Inputs and targets of different length are told with both lengths."""
    model = jobs.tiny_model()
    x, y = jobs.arrays()

    with leaves_no_trace(model, dataset=x), pytest.raises(tfdiag.TfdiagError) as error:
        diagnose(model, x, y=y[:-8])

    says(error, str(len(x)), str(len(y) - 8))


def test_targets_beside_a_dataset() -> None:
    """`y` beside a dataset that has targets is refused, as in `fit`."""
    model, taken = jobs.tiny_model(), Taken()

    with leaves_no_trace(model, dataset=taken.dataset), pytest.raises(tfdiag.TfdiagError) as error:
        diagnose(model, taken.dataset, y=jobs.arrays()[1])

    says(error, "y")
    assert taken.count == 0


def test_dataset_of_one_batch() -> None:
    """One batch is diagnosed, with what that leaves open."""
    model, dataset = jobs.tiny_model(), jobs.batches(1)

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)


def test_generator_of_one_batch() -> None:
    """One batch that can't be had again leads to a low confidence, or to a refusal in words."""
    model, counted = jobs.tiny_model(), jobs.CountedGenerator(1)

    with leaves_no_trace(model):
        try:
            report = diagnose(model, counted.generator)
        except tfdiag.TfdiagError as error:
            refusal, report = str(error), None

    if report is None:
        assert "batch" in refusal
    else:
        assert report.verdict.confidence < 0.9
        assert report.measurements.job.batches_used == 1


def test_nan_loss_is_a_warning() -> None:
    """A loss that is not a number is said, and is no reason to stop."""
    model = jobs.tiny_model()
    dataset = jobs.batches(None).map(lambda x, y: (x, y * float("nan")))

    with leaves_no_trace(model, dataset=dataset):
        report = diagnose(model, dataset)

    is_sound(report, batch_size=jobs.BATCH)
    assert report.measurements.live.nan_loss
    assert any("nan" in warning.lower() for warning in report.warnings)


def test_inside_a_tf_function() -> None:
    """A call while a graph is traced is refused."""
    model, dataset = jobs.tiny_model(), jobs.batches(20)

    @tf.function
    def traced() -> None:
        diagnose(model, dataset)

    with leaves_no_trace(model, dataset=dataset), pytest.raises(tfdiag.TfdiagError) as error:
        traced()

    says(error, "tf.function")


def test_inside_a_running_fit_of_the_same_model() -> None:
    """A call from a callback of the model's own training is refused, and training goes on."""
    model = jobs.tiny_model()
    errors: list[tfdiag.TfdiagError] = []

    class Asks(keras.callbacks.Callback):
        """Diagnoses the model that is being trained."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                with pytest.raises(tfdiag.TfdiagError) as error:
                    diagnose(model, jobs.batches(20))
                errors.append(error.value)

    model.fit(jobs.batches(5), callbacks=[Asks()], verbose=0)

    assert len(errors) == 1
    assert "fit" in str(errors[0])
    assert int(model.optimizer.iterations.numpy()) == 5


def test_inside_a_running_fit_of_another_model() -> None:
    """Another model may be diagnosed from a callback: only the caller's time suffers."""
    model, other, reports = jobs.tiny_model(), jobs.tiny_model(), []

    class Asks(keras.callbacks.Callback):
        """Diagnoses another model than the one that is being trained."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            reports.append(diagnose(other, jobs.batches(20)))

    model.fit(jobs.batches(5), callbacks=[Asks()], verbose=0)

    is_sound(reports[0], batch_size=jobs.BATCH)


def test_after_a_fit_that_was_interrupted() -> None:
    """A training that ended with an error is over: the model can be diagnosed."""
    model = jobs.tiny_model()

    class Stops(keras.callbacks.Callback):
        """Raises in the middle."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(jobs.batches(5), callbacks=[Stops()], verbose=0)

    is_sound(diagnose(model, jobs.batches(20)), batch_size=jobs.BATCH)


def test_variables_that_cannot_be_read() -> None:
    """A model whose variables are gone can't be put back, so it is not run."""
    model, taken = jobs.tiny_model(), Taken()
    kernel = model.layers[0].kernel

    class Gone(type(kernel.value)):
        """A variable whose device memory is gone."""

        def numpy(self) -> Any:
            raise tf.errors.FailedPreconditionError(None, None, "could not find the resource")

        read_value = value = _read_variable_op = __array__ = numpy

    kernel.value.__class__ = Gone
    with pytest.raises(tfdiag.TfdiagError) as error:
        diagnose(model, taken.dataset)

    says(error, kernel.path)
    assert taken.count == 0


def test_keras_on_another_backend() -> None:
    """A model of Keras on another backend is refused with the backend's name."""
    printed = succeeds(
        """
        import keras, numpy as np, tfdiag
        from keras.src.backend import config
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        config._BACKEND = "jax"  # what all of Keras answers now; no other backend is installed
        assert keras.backend.backend() == keras.config.backend() == "jax"
        before = [np.array(variable.value) for variable in model.variables]
        try:
            tfdiag.diagnose(model, np.zeros((64, 4)), y=np.zeros((64, 1)), budget=5)
        except tfdiag.TfdiagError as error:
            print(error)
        after = [np.array(variable.value) for variable in model.variables]
        assert all(map(np.array_equal, before, after))
        """
    )

    assert "jax" in printed
    assert "KERAS_BACKEND" in printed
    assert "tensorflow" in printed.lower()


BLOCKER = """
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def test_no_tensorflow() -> None:
    """Without TensorFlow the first use says what to install, in one error."""
    result = run_python(
        BLOCKER.format(blocked={"tensorflow", "keras", "tf_keras"})
        + "import tfdiag\ntfdiag.diagnose(object(), object())\n"
    )

    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert "TensorFlowMissingError" in last
    assert "pip install" in last
    assert "tfdiag[" in last
    assert "During handling" not in result.stderr


def test_reports_need_no_tensorflow(tmp_path: Path) -> None:
    """A saved report is read, shown and kept where there is no TensorFlow."""
    model, path = jobs.tiny_model(), tmp_path / "report.json"
    report = diagnose(model, jobs.batches(20))
    report.save(path)

    printed = succeeds(
        BLOCKER.format(blocked={"tensorflow", "keras", "tf_keras"})
        + f"""
import json, pathlib, tfdiag
path = pathlib.Path({str(path)!r})
report = tfdiag.load(path)
assert json.loads(report.to_json()) == json.loads(path.read_text())
assert tfdiag.Report.from_dict(report.to_dict()) == report
report.to_markdown(), report.to_html(), report.metrics()
print(report)
"""
    )

    assert report.verdict.headline in " ".join(printed.split())


def test_import_is_light() -> None:
    """Importing tfdiag imports neither TensorFlow nor Keras nor NVML."""
    printed = succeeds(
        """
        import sys
        import tfdiag
        tfdiag.Report, tfdiag.TfdiagError
        heavy = {"tensorflow", "keras", "tf_keras", "pynvml", "jax", "torch"}
        print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
        """
    )

    assert printed.strip() == "[]"

"""What is kept of a job and put back bit for bit."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.integration import jobs
from tests.integration.processes import succeeds
from tests.traces_left import difference, leaves_no_trace, state_of
from tfdiag.collect.snapshot import Snapshot
from tfdiag.compat import host
from tfdiag.errors import ModelError, SnapshotError


class Holder:
    """An object of the caller's own."""

    def __init__(self, **attributes: Any) -> None:
        """Hold these."""
        vars(self).update(attributes)


def numbers(*values: float) -> np.ndarray:
    """Give an array of these."""
    return np.array(values, dtype="float32")


# Models --------------------------------------------------------------------------------------


def dropout_model() -> Any:
    """Give a model with weights, slots, metrics and a seed generator, all in the middle of their life."""
    model = jobs.tiny_model(dropout=0.5)
    model.fit(jobs.batches(2), verbose=0)
    return model


def legacy_model(**compile_args: Any) -> Any:
    """Give the like of the older Keras."""
    layers = [tf_keras.Input((4,)), tf_keras.layers.Dense(3), tf_keras.layers.Dense(1)]
    model = tf_keras.Sequential(layers)
    model.compile(**{"optimizer": "adam", "loss": "mse", "metrics": ["mae"], **compile_args})
    return model


def trained(model: Any) -> Any:
    """Train a little."""
    model.fit(jobs.batches(2), verbose=0)
    return model


def batch_norm_model() -> Any:
    """Give a model with variables that are no weights of a gradient."""
    layers = [keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    return jobs.compiled(keras.Sequential(layers), optimizer="sgd")


MODELS: dict[str, Callable[[], Any]] = {
    "trained": dropout_model,
    "built, not trained": jobs.tiny_model,
    "not built": lambda: jobs.compiled(keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(1)])),
    "own step": lambda: jobs.compiled(jobs.OwnStep(), metrics=None),
    "batch norm": batch_norm_model,
    "tf_keras": legacy_model,
    "tf_keras trained": lambda: trained(legacy_model()),
    "tf_keras legacy optimizer": lambda: legacy_model(optimizer=tf_keras.optimizers.legacy.Adam()),
    "tf_keras not built": lambda: _compiled_legacy(tf_keras.Sequential([tf_keras.layers.Dense(1)])),
}


def _compiled_legacy(model: Any) -> Any:
    model.compile("adam", "mse", metrics=["mae"])
    return model


@pytest.mark.parametrize("name", MODELS)
def test_training_is_undone(name: str, tmp_path: Path) -> None:
    """Weights, slots, metrics, seeds, what is built and every attribute are as they were."""
    model = MODELS[name]()
    with leaves_no_trace(model):
        snapshot = Snapshot([model], tmp_path)
        validation = None if name == "own step" else jobs.batches(1)
        model.fit(jobs.batches(3), verbose=0, validation_data=validation)
        snapshot.restore()


def test_training_changes_what_is_compared(tmp_path: Path) -> None:
    """The comparison that the other tests rest on sees what training changes."""
    model = dropout_model()
    before = state_of(model)
    snapshot = Snapshot([model], tmp_path)
    model.fit(jobs.batches(3), verbose=0)
    lines = "\n".join(difference(before, state_of(model)))
    for word in ("iteration", "momentum", "seed", "kernel"):
        assert word in lines or word in str([v.path for v in model.variables + model.optimizer.variables])
    assert lines.count("value") > 8
    snapshot.restore()
    assert difference(before, state_of(model)) == []


def test_an_unbuilt_model_is_unbuilt_again(tmp_path: Path) -> None:
    """Variables that were created in the run are gone, and the next fit creates them anew."""
    keras.utils.set_random_seed(3)
    model = MODELS["not built"]()
    snapshot = Snapshot([model], tmp_path)
    model.fit(jobs.batches(3), verbose=0)
    assert model.built and len(model.variables) == 4
    snapshot.restore()
    assert not model.built
    assert not any(layer.built for layer in model.layers)
    assert model.layers[0].weights == []
    assert not model.optimizer.built
    assert model.optimizer.variables[0].numpy() == 0
    model.fit(jobs.batches(3), verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 3


def test_training_goes_on_as_its_twin(tmp_path: Path) -> None:
    """After the restore, the next steps give the bits that they would have given."""
    ends = []
    for disturbed in (False, True):
        keras.utils.set_random_seed(5)
        model = dropout_model()
        if disturbed:
            snapshot = Snapshot([model], tmp_path)
            model.fit(jobs.batches(4), verbose=0)
            np.random.random()  # noqa: NPY002  # the global state is what is put back
            tf.random.uniform(())
            snapshot.restore()
        history = model.fit(jobs.batches(3), verbose=0)
        ends.append(([v.numpy() for v in model.variables], history.history["loss"]))
    (weights, losses), (again, losses_again) = ends
    assert losses == losses_again
    assert all(np.array_equal(a, b) for a, b in zip(weights, again, strict=True))


def test_name_counters_of_keras(tmp_path: Path) -> None:
    """The next layer gets the name that it would have got."""
    keras.backend.clear_session()
    assert keras.layers.Dense(1).name == "dense"
    snapshot = Snapshot([jobs.tiny_model()], tmp_path)
    names = [keras.layers.Dense(1).name for _ in range(3)]
    snapshot.restore()
    assert keras.layers.Dense(1).name == names[0]


def test_distributed_variables_are_put_back_on_each_device() -> None:
    """Each replica of a mirrored variable gets its own value back, also where they differ."""
    succeeds(
        """
        import pathlib
        import tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        import keras
        from tests.integration import jobs
        from tests.traces_left import difference, state_of
        from tfdiag.collect.snapshot import Snapshot

        strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
        with strategy.scope():
            model = jobs.tiny_model()
            local = tf.Variable(1.0, synchronization=tf.VariableSynchronization.ON_READ,
                                aggregation=tf.VariableAggregation.SUM)
        local.values[1].assign(5.0)
        before = state_of(model)
        assert sum("replica 1" in path for path in before) > 4
        snapshot = Snapshot([model, local], pathlib.Path("unused"))
        model.fit(jobs.batches(3), verbose=0)
        for replica in local.values:
            replica.assign_add(1.0)
        assert any("replica 1" in line for line in difference(before, state_of(model)))
        snapshot.restore()
        assert difference(before, state_of(model)) == []
        assert [float(replica.numpy()) for replica in local.values] == [1.0, 5.0]
        """
    )


# Objects -------------------------------------------------------------------------------------


def test_containers_are_restored_in_place(tmp_path: Path) -> None:
    """Lists, dicts, sets and deques are the same objects with the same contents in the same order."""
    inner = [1, 2]
    ordered = collections.OrderedDict(a=1, b=2, c=3)
    counts = collections.defaultdict(list, {"x": inner})
    holder = Holder(
        rows=[inner, 3],
        table={"a": 1, "b": {"deep": [4]}},
        words={"one", "two"},
        last=collections.deque([1, 2, 3], maxlen=3),
        ordered=ordered,
        counts=counts,
        pair=([5], {"six": 6}),
    )
    same = dict(vars(holder))
    snapshot = Snapshot([holder], tmp_path)
    inner.append(9)
    holder.rows.clear()
    holder.table["b"]["deep"].append(5)
    holder.table["c"] = 2
    del holder.table["a"]
    holder.words.discard("one")
    holder.words.add("three")
    holder.last.append(4)
    ordered.move_to_end("a")
    ordered["d"] = 4
    counts["y"].append(1)
    holder.pair[0].append(7)
    holder.pair[1]["seven"] = 7
    holder.rows = []
    holder.new = 1
    del holder.words
    snapshot.restore()
    assert vars(holder).keys() == same.keys()
    assert all(vars(holder)[name] is value for name, value in same.items())
    assert inner == [1, 2]
    assert holder.rows == [inner, 3]
    assert list(holder.table) == ["a", "b"]
    assert holder.table["b"] == {"deep": [4]}
    assert holder.words == {"one", "two"}
    assert list(holder.last) == [1, 2, 3]
    assert list(ordered.items()) == [("a", 1), ("b", 2), ("c", 3)]
    assert dict(counts) == {"x": inner}
    assert holder.pair == ([5], {"six": 6})


def test_the_order_of_a_dict_is_restored(tmp_path: Path) -> None:
    """A dict whose entries were put in another order has its own order again."""
    holder = Holder(table={"a": 1, "b": 2})
    snapshot = Snapshot([holder], tmp_path)
    holder.table["a"] = holder.table.pop("a")
    snapshot.restore()
    assert list(holder.table) == ["a", "b"]


def test_tensorflows_containers(tmp_path: Path) -> None:
    """Lists and dicts that TensorFlow has wrapped, for it tracks them, are restored in place."""
    module = tf.Module()
    module.rows = [tf.Variable(1.0), tf.Variable(2.0)]
    module.table = {"a": tf.Variable(3.0)}
    rows, table = module.rows, module.table
    assert type(rows).__name__ == "ListWrapper"
    assert type(table).__name__ == "_DictWrapper"
    snapshot = Snapshot([module], tmp_path)
    module.rows.append(tf.Variable(4.0))
    module.rows[0].assign(9.0)
    module.table["b"] = tf.Variable(5.0)
    module.table["a"].assign(9.0)
    module.extra = tf.Variable(6.0)
    snapshot.restore()
    assert module.rows is rows and module.table is table
    assert [float(v) for v in module.rows] == [1.0, 2.0]
    assert {key: float(v) for key, v in module.table.items()} == {"a": 3.0}
    assert not hasattr(module, "extra")
    assert sorted(float(v) for v in module.trainable_variables) == [1.0, 2.0, 3.0]


def test_a_module_inside_a_module(tmp_path: Path) -> None:
    """A `tf.Module` of the caller's is restored with what it owns, also what it made in the run."""

    class Net(tf.Module):
        """Makes a variable in its first call."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = tf.Variable([1.0, 2.0])
            self.late: Any = None
            self.inner = tf.Module()
            self.inner.steps = tf.Variable(0, dtype=tf.int64)

        def __call__(self) -> None:
            if self.late is None:
                self.late = tf.Variable(1.0)
            self.scale.assign_add([1.0, 1.0])
            self.inner.steps.assign_add(1)

    net = Net()
    snapshot = Snapshot([net], tmp_path)
    net()
    snapshot.restore()
    assert net.late is None
    assert list(net.scale.numpy()) == [1.0, 2.0]
    assert int(net.inner.steps) == 0
    assert len(net.variables) == 2


def test_arrays_are_restored_in_place(tmp_path: Path) -> None:
    """A numpy array that an object holds has its values back; one that can't be written is left."""
    frozen = numbers(1, 2)
    frozen.flags.writeable = False
    holder = Holder(order=np.arange(5), frozen=frozen, texts=np.array([{"a"}], dtype=object))
    order = holder.order
    snapshot = Snapshot([holder], tmp_path)
    np.random.default_rng(1).shuffle(holder.order)
    holder.order[0] = 77
    snapshot.restore()
    assert holder.order is order
    assert list(order) == [0, 1, 2, 3, 4]


def test_a_shuffled_py_dataset_is_put_back(tmp_path: Path) -> None:
    """A dataset of the caller's own class that changes between epochs is one of the roots."""
    dataset = jobs.SlowBatches()
    dataset.order = np.arange(6)
    snapshot = Snapshot([dataset], tmp_path)
    dataset.order[:] = 0
    dataset._length = 3
    snapshot.restore()
    assert list(dataset.order) == [0, 1, 2, 3, 4, 5]
    assert dataset._length == 20


def test_foreign_objects_are_left_alone(tmp_path: Path) -> None:
    """What belongs to a library or is code is not rolled back: a logger keeps what it was told."""
    import logging

    logger = logging.getLogger("tests.snapshot")
    function = test_foreign_objects_are_left_alone
    holder = Holder(logger=logger, function=function, callback=keras.callbacks.EarlyStopping())
    snapshot = Snapshot([holder], tmp_path)
    logger.mark, function.mark = "kept", "kept"  # type: ignore[attr-defined]
    holder.callback.wait = 5
    snapshot.restore()
    assert (logger.mark, function.mark) == ("kept", "kept")  # type: ignore[attr-defined]
    assert holder.callback.wait == 0
    del logger.mark, function.mark  # type: ignore[attr-defined]


def test_circles_end(tmp_path: Path) -> None:
    """Objects that refer to each other are walked once."""
    one, two = Holder(), Holder()
    one.other, two.other = two, one
    one.itself = [one]
    one.itself.append(one.itself)
    snapshot = Snapshot([one, two], tmp_path)
    one.itself.clear()
    two.other = None
    snapshot.restore()
    assert two.other is one
    assert one.itself[0] is one and one.itself[1] is one.itself


# Values --------------------------------------------------------------------------------------

VALUES = {
    "float16": tf.constant([1.5, -2.0], tf.float16),
    "bfloat16": tf.constant([1.5, -2.0], tf.bfloat16),
    "bool": tf.constant([True, False]),
    "int64": tf.constant(2**62, tf.int64),
    "complex": tf.constant(1 + 2j),
    "string": tf.constant(["a", "bcd"]),
    "nan": tf.constant(np.array([0x7FC00001, 0xFF800000], dtype="uint32").view("float32")),
    "empty": tf.zeros((0, 3)),
}


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("name", [*VALUES])
def test_values_of_every_type(
    name: str, spill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each type of value comes back bit for bit, from memory and from a file."""
    if spill:
        monkeypatch.setattr(host, "free_memory_bytes", lambda: 0)
    variable, other = tf.Variable(VALUES[name]), tf.Variable(1.0)
    snapshot = Snapshot([[variable, other]], tmp_path)
    assert bool(list(tmp_path.iterdir())) is spill
    variable.assign(tf.zeros_like(variable))
    snapshot.restore()
    assert variable.numpy().tobytes() == VALUES[name].numpy().tobytes() or name == "string"
    assert variable.numpy().tolist() == VALUES[name].numpy().tolist() or name == "nan"


def test_large_state_goes_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When memory is short the values stand in files of the private folder and come back from there."""
    model = dropout_model()
    with leaves_no_trace(model):
        monkeypatch.setattr(host, "free_memory_bytes", lambda: 100)
        snapshot = Snapshot([model], tmp_path)
        files = list(tmp_path.iterdir())
        assert len(files) > 5
        assert sum(file.stat().st_size for file in files) >= snapshot.bytes > 100
        model.fit(jobs.batches(2), verbose=0)
        snapshot.restore()


def test_small_state_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a quarter of the free memory is used, and no file is written."""
    variables = [tf.Variable(tf.zeros(250)), tf.Variable(tf.zeros((5, 5), tf.float64))]
    monkeypatch.setattr(host, "free_memory_bytes", lambda: 4 * 1200)
    assert Snapshot([variables], tmp_path).bytes == 1200
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(host, "free_memory_bytes", lambda: 4 * 1200 - 1)
    Snapshot([variables], tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_no_room_is_refused_with_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither memory nor disk: the error says how much was needed and had, before anything is read."""
    monkeypatch.setattr(host, "free_memory_bytes", lambda: 2**28)
    monkeypatch.setattr(host, "free_disk_bytes", lambda folder: 2**28 if folder == str(tmp_path) else 2**60)

    class Huge:
        """Stands for three GiB that nobody has to allocate."""

        shape = tf.TensorShape([3, 2**28])
        dtype = tf.float32
        name = "huge"

        def numpy(self) -> None:
            raise AssertionError("read before the size was checked")

    monkeypatch.setattr("tfdiag.compat.tensorflow.is_variable", lambda value: isinstance(value, Huge))
    with pytest.raises(SnapshotError, match=r"takes 3\.0 GiB; .*0\.2 GiB free"):
        Snapshot([[Huge()]], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_variable_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A variable whose memory is gone leads to a refusal that names it."""
    variable = tf.Variable(1.0, name="gone_one")

    class Gone(type(variable)):  # type: ignore[misc]  # the class of TensorFlow's variables is private
        """A variable whose device memory is gone."""

        def numpy(self) -> Any:
            raise tf.errors.FailedPreconditionError(None, None, "could not find the resource")

    variable.__class__ = Gone
    with pytest.raises(ModelError, match=r"gone_one.*could not find the resource"):
        Snapshot([[variable]], tmp_path)


def test_one_that_cannot_be_put_back_keeps_nothing_from_it(tmp_path: Path) -> None:
    """A variable that refuses its value is named in the error; all the others have theirs."""
    first, bad, last = tf.Variable(1.0), tf.Variable(2.0, name="stubborn"), tf.Variable(3.0)
    holder = Holder(variables=[first, bad, last], note="before")
    snapshot = Snapshot([holder], tmp_path)
    expected = random.getstate()
    random.seed(4)
    first.assign(0.0)
    last.assign(0.0)
    holder.note = "after"

    class Stubborn(type(bad)):  # type: ignore[misc]  # the class of TensorFlow's variables is private
        """A variable that takes no value."""

        def assign(self, *_: Any, **__: Any) -> Any:
            raise tf.errors.FailedPreconditionError(None, None, "read only")

    bad.__class__ = Stubborn
    with pytest.raises(SnapshotError, match=r"1 variables could not be put back: stubborn.*read only"):
        snapshot.restore()
    assert (float(first), float(last), holder.note) == (1.0, 3.0, "before")
    assert random.getstate() == expected


# Randomness ----------------------------------------------------------------------------------


def test_random_generators_are_put_back(tmp_path: Path) -> None:
    """Python's, numpy's, TensorFlow's and Keras' generators give what they would have given."""
    keras.utils.set_random_seed(11)
    tf.random.set_seed(11)
    keras.random.uniform((1,))

    def draw() -> list[Any]:
        return [
            random.random(),  # noqa: S311  # no secret: the state is meant
            float(np.random.random()),  # noqa: NPY002  # the global state is meant
            tf.compat.v1.get_seed(None),  # what the next op without a seed is given
            float(keras.random.uniform(())),
            float(tf.random.get_global_generator().uniform(())),
        ]

    tf.random.get_global_generator()
    snapshot = Snapshot([], tmp_path)
    first = draw()
    for _ in range(2):
        snapshot.restore()
        assert draw() == first
    assert all(a != b for a, b in zip(draw(), first, strict=True))


def test_a_restore_can_be_repeated(tmp_path: Path) -> None:
    """What is put back is a copy: a second restore gives the same bits."""
    model = dropout_model()
    with leaves_no_trace(model):
        snapshot = Snapshot([model], tmp_path)
        for _ in range(2):
            model.fit(jobs.batches(2), verbose=0)
            snapshot.restore()

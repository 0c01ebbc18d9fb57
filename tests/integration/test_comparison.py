"""`compare_devices` without an accelerator: what is measured, said, refused and left as it was."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfdiag
from tests.crossings import device_run
from tfdiag.analyse.comparison import crossings_of, device_cost, limit_of, transfer_of
from tfdiag.compat.sessions import MovedSession
from tfdiag.errors import JobError, UsageError
from tfdiag.model import codec
from tfdiag.model.comparison import ComparisonData
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.devices import DeviceComparison, headline

BUDGET = 0.8


def compared(*args, **options):
    """Compare within a short budget."""
    return tfdiag.compare_devices(*args, **{"budget": BUDGET, **options})


def test_a_tiny_call_is_fixed_cost():
    """Adding two small matrices is dispatch, and the text says that a GPU would not help."""
    matrix = tf.ones((10, 10))
    found = compared(tf.add, matrix, matrix)
    cost = found.on("CPU:0")
    assert isinstance(cost.call, Quantity) and isinstance(cost.fixed, Quantity)
    assert cost.fixed.value > 0.5 * cost.call.value
    assert "assumption" in str(found)
    assert found.scaled == "all arrays"
    assert codec.decode(ComparisonData, json.loads(found.to_json())) == codec.decode(
        ComparisonData, found.to_dict()
    )
    assert repr(found).startswith("<tfdiag.DeviceComparison of")


def test_a_call_that_computes_grows_with_its_size():
    """Only the first matrix can have more rows; nearly all of the call grows with them."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((384, 384)).astype("float32") for _ in range(2))
    found = compared(tf.matmul, left, right)
    cost = found.devices[0]
    assert found.scaled == "array 1"
    assert isinstance(found.rows, Quantity)
    assert found.rows.value == 384
    assert isinstance(cost.per_row, Quantity) and isinstance(cost.call, Quantity)
    assert cost.per_row.value * 384 > 0.5 * cost.call.value
    assert isinstance(found.limit, Quantity)
    assert found.limit.value > 2
    assert len(found.runs[0].sizes) >= 4


def test_nothing_to_scale_is_said():
    """A function without arrays, one that returns nothing, and what a call then costs."""
    calls = []
    found = compared(lambda: calls.append(1), budget=0.2)
    assert isinstance(found.devices[0].call, Quantity)
    assert isinstance(found.rows, Missing)
    assert "no argument" in found.sizes_missing
    assert len(calls) == found.devices[0].calls
    assert "Not measured" in str(found)


def test_a_function_that_takes_one_size_only():
    """Its own words say why there are no others."""

    def picky(x):
        if x.shape[0] != 6:
            raise ValueError("six rows, please")
        return x

    found = compared(picky, np.zeros((6, 2), "float32"), budget=0.2)
    assert "six rows, please" in found.sizes_missing
    assert isinstance(found.devices[0].call, Quantity)


def test_a_train_step_and_what_is_left_as_it_was():
    """Variables are as the calls left them; generators, names and the logger's level are as before."""
    weights = tf.Variable(tf.zeros((4, 1)))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2) + 0.0 * tf.reduce_sum(tf.random.normal((2,)))
        weights.assign_sub(0.1 * tape.gradient(loss, weights))

    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    tf.random.set_seed(1)
    expected = random.Random(1).random(), np.random.RandomState(1).rand()  # noqa: S311
    level = tf.get_logger().level
    found = compared(step, tf.ones((8, 4)), tf.ones((8, 1)), budget=3)
    assert (random.random(), np.random.rand()) == expected  # noqa: NPY002, S311
    assert tf.get_logger().level == level
    cost = found.devices[0]
    assert isinstance(cost.first_call, Quantity) and isinstance(cost.call, Quantity)
    assert cost.first_call.value > 3 * cost.call.value  # it traced
    assert float(tf.reduce_sum(weights)) > 0.9
    assert found.scaled == "all arrays" or "first calls took" in found.sizes_missing


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3,), {}, "got int"),
        ((abs, 1), {"devices": ["GPU:7"]}, "there is no /GPU:7; TensorFlow sees /CPU:0"),
        ((abs, 1), {"devices": "CPU"}, r"devices=\['CPU'\]"),
        ((abs, 1), {"devices": []}, "no device is named"),
        ((abs, 1), {"budget": 0}, "budget is a finite number"),
        ((abs, 1), {"budget": "ten"}, "budget is a finite number"),
    ],
)
def test_what_is_refused(arguments, options, message):
    """Before anything is called, with what was received and what to do."""
    with pytest.raises(UsageError, match=message):
        compared(*arguments, **options)


def test_refused_inside_a_function():
    """A graph has no clock."""
    with pytest.raises(UsageError, match="call it from Python"):
        tf.function(lambda: compared(abs, 1), autograph=False)()


def test_a_function_that_always_fails():
    """Its error is the cause of ours."""

    def broken():
        raise KeyError("gone")

    with pytest.raises(JobError, match="gone") as caught:
        compared(broken)
    assert isinstance(caught.value.__cause__, KeyError)


class Trains:
    """A script of TensorFlow 1: a graph that trains two kinds of variables, and its session."""

    def __init__(self) -> None:
        """Build it."""
        v1 = tf.compat.v1
        with tf.Graph().as_default() as graph:
            self.x = v1.placeholder(tf.float32, (None, 4), name="x")
            old = v1.get_variable("old", (4, 1), use_resource=False)
            new = v1.get_variable("new", (4, 1), use_resource=True)
            v1.get_variable("without_a_value", (4, 1))
            self.variables = [old, new]
            self.loss = tf.reduce_sum((self.x @ old + self.x @ new) ** 2, name="loss")
            self.train = v1.train.GradientDescentOptimizer(1e-3).minimize(self.loss, var_list=self.variables)
            begin = [each.initializer for each in self.variables]
        self.session = v1.Session(graph=graph)
        self.session.run(begin)

    def step(self, value: Any) -> Any:
        """Train on one batch."""
        return self.session.run({"loss": ["loss:0", self.loss], "did": self.train}, {"x:0": value})


def test_a_session_is_copied_and_its_copy_runs():
    """The reader is told what ran; the caller's variables and session are as they were."""
    script, batch = Trains(), np.ones((8, 4), "float32")
    before, loss = script.session.run([script.variables, script.loss], {script.x: batch})
    found = compared(script.step, batch)
    assert isinstance(found.devices[0].call, Quantity)
    assert "a copy of it ran on /CPU:0" in found.notes[0]
    after, same = script.session.run([script.variables, script.loss], {script.x: batch})
    np.testing.assert_array_equal(before, after)
    assert same == loss
    assert script.step(batch)["loss"] == [loss, loss]
    script.session.close()


def test_a_session_computes_the_same_in_its_copy():
    """Its values come along, and what runs in the block is told by device."""
    script, batch = Trains(), np.ones((8, 4), "float32")
    loss = script.session.run(script.loss, {script.x: batch})
    moved = MovedSession(script.session, "/CPU:0")
    with moved.standing_in(), script.session.as_default():
        assert script.loss.eval({script.x: batch}) == loss
        script.step(batch)
        assert script.loss.eval({script.x: batch}) < loss
    assert moved.places == ("/CPU:0",)
    watched = vars(script.session)["run"] = lambda *args: None  # somebody else looks on as well
    with moved.standing_in():
        assert script.session.run is not watched
    assert vars(script.session).pop("run") is watched
    assert script.session.run(script.loss, {script.x: batch}) == loss
    moved.close()
    script.session.close()


def test_a_session_whose_state_can_not_be_copied_is_refused():
    """A queue gives each element once; nothing was run."""
    with tf.Graph().as_default() as graph:
        queue = tf.queue.FIFOQueue(10, [tf.float32], [()])
        put, taken = queue.enqueue(1.0), queue.dequeue()
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(put)
        with pytest.raises(UsageError, match=r"FIFOQueue.*can't be copied"):
            compared(lambda: session.run(taken))
        assert session.run(queue.size()) == 1


def one(fixed: float, row: float, size: float) -> ComparisonData:
    """Give a comparison on the CPU alone, of calls with 100 rows and so many bytes."""
    run = device_run("/CPU:0", fixed=fixed, row=row, sizes=(10, 100, 1000))
    cost = device_cost(run, 100, copies_inside=False)
    return ComparisonData(
        "work", Quantity(100.0, "rows"), (cost,), limit=limit_of(cost), transfer=transfer_of(size)
    )


def test_one_device_says_what_another_could_give():
    """Little where most is fixed, or its data would have to cross a bus; much where it grows."""
    assert "a GPU would not help" in headline(one(1e-3, 1e-6, 1e3))
    assert "cross the bus" in headline(one(1e-4, 9e-6, 1e7))
    assert "up to 10" in headline(one(1e-4, 9e-6, 1e3)) or "up to 9" in headline(one(1e-4, 9e-6, 1e3))


def two(cpu: float, gpu: float, **more) -> DeviceComparison:
    """Give a comparison of two devices by what a call costs on each."""
    sizes = (8, 32, 128)
    runs = (
        device_run("/CPU:0", fixed=cpu / 2, row=cpu / 64, sizes=sizes),
        device_run("/GPU:0", fixed=gpu, row=0, sizes=sizes, there=gpu / 10, back=gpu / 20),
    )
    costs = tuple(device_cost(run, 32, copies_inside=False) for run in runs)
    found = ComparisonData(
        "work", Quantity(32.0, "rows"), costs, crossings_of(runs, 32, copies_inside=False), **more
    )
    return DeviceComparison.from_data(found)


def test_the_headline_names_the_faster_device():
    """With its ratio, whichever it is, and "the same" within the noise."""
    for found, best in ((two(1e-3, 2e-3), "/CPU:0"), (two(2e-3, 1e-3), "/GPU:0")):
        assert re.match(rf"{best} is (1\.9|2\.0)", headline(found))
    assert "take the same" in headline(two(1e-3, 1.01e-3))
    text = str(two(1e-3, 2e-3, scaled="all arrays", notes=("a note",)))
    for part in ("/GPU:0 is faster from", "data from and to the host", "arguments there", "- a note"):
        assert part in text
    assert all(len(line) <= 100 for line in text.splitlines())

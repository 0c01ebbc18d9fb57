"""The kept batch at several sizes, through the model's own train function."""

from __future__ import annotations

import itertools
import time
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.integration import jobs
from tests.unit.compat.test_keras import FLAVOURS
from tests.unit.fakes import FakeClock
from tfdiag.collect import peak, scaling
from tfdiag.collect.scaling import Room, _Memory, _Timer, cannot_scale, measure_scaling, resized, sizes_for
from tfdiag.compat import host
from tfdiag.compat.keras import make_train_function
from tfdiag.compat.tensorflow import tracing_count
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.scaling import Scaling

ROOM = Room(window_s=20.0, call_s=1e-3, trace_s=0.1, compiles=False)


@pytest.fixture(autouse=True)
def _few_rounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make real runs short."""
    if "fake_clock" not in request.node.name:
        monkeypatch.setattr(scaling, "_MOST_ROUNDS", 4)


def scaled(model: Any, dataset: Any, room: Room = ROOM, rows: int = jobs.BATCH) -> Scaling | Missing:
    """Replay the first batch of a dataset at several sizes."""
    return measure_scaling(
        model,
        next(iter(dataset)),
        dataset.element_spec,
        rows,
        room=room,
        device="",
        clock=time.perf_counter,
        should_stop=lambda: False,
    )


@pytest.mark.parametrize("rows", [16, 20], ids=["one size", "any size"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_sizes_take_turns_and_the_train_function_stays(flavour: str, rows: int) -> None:
    """Each round has each size; the job's own function is used where it takes any size, and never changed."""
    model = FLAVOURS[flavour]()
    dataset = tf.data.Dataset.from_tensor_slices(jobs.arrays(rows))
    dataset = dataset.batch(jobs.BATCH, drop_remainder=rows == 16)
    model.fit(dataset, verbose=0)
    before = model.train_function
    traces = tracing_count(make_train_function(model))
    assert traces is not None
    traced = traces()
    found = scaled(model, dataset)
    assert isinstance(found, Scaling)
    assert [size.rows for size in found.sizes] == [4, 8, 16, 32]
    assert len({len(size.round_s) for size in found.sizes}) == 1
    assert len(found.sizes[0].round_s) >= 3
    assert all(second > 0 for size in found.sizes for second in size.round_s)
    assert found.retraced is (rows == 16)
    assert found.left_out == ""
    assert model.train_function is before
    assert traces() == traced


def test_rows_are_cut_and_repeated() -> None:
    """Every part of the batch keeps its rows together, in any structure."""
    batch = {"a": np.arange(6).reshape(3, 2), "b": (tf.constant(["x", "y", "z"]),)}
    small, large = resized(batch, 3, 1), resized(batch, 3, 7)
    assert small["a"].numpy().tolist() == [[0, 1]]
    assert large["a"].numpy()[:, 0].tolist() == [0, 2, 4, 0, 2, 4, 0]
    assert large["b"][0].numpy().tolist() == [b"x", b"y", b"z", b"x", b"y", b"z", b"x"]


@pytest.mark.parametrize(
    ("rows", "sizes"), [(32, [16, 32, 64, 128]), (1, [1, 2, 4]), (5, [2, 5, 10, 20]), (2, [1, 2, 4, 8])]
)
def test_sizes_around_the_jobs_own(rows: int, sizes: list[int]) -> None:
    """Half to four times; a batch of one row can't be halved."""
    assert sizes_for(np.zeros((rows, 3)), rows) == (sizes, "")


MIB = 2**20


@pytest.mark.parametrize(
    ("row_bytes", "sizes"),
    [
        (MIB, [4, 8, 16, 32]),  # 8 and 32 MiB
        (MIB + 4, [2, 4, 8, 16]),  # each size with its own memory: 8 and 4, 8, 16, 32 MiB would be 68
        (2 * MIB, [2, 4, 8, 16]),  # 16 and 32 MiB
        (4 * MIB, [2, 4, 8]),  # 32 and 32 MiB
        (32 * MIB, [2, 4, 8]),  # two batches of 256 MiB
    ],
)
def test_sizes_hold_no_more_than_is_promised(row_bytes: int, sizes: list[int]) -> None:
    """All of them, and the batch itself, take 64 MiB or two batches; what is left out is said."""
    large = np.broadcast_to(np.float32(0), (8, row_bytes // 4))  # so large, without the memory
    found, why = sizes_for((large, np.zeros(8, np.int64)), 8)
    assert found == sizes
    assert ("MiB of the job's data" in why) is (sizes[-1] < 32)


def test_one_large_row_has_no_sizes_that_may_be_held() -> None:
    """A batch of one row that could only grow is not tried, for that reason."""
    found = scaled(jobs.tiny_model(), tf.data.Dataset.from_tensors(jobs.arrays(1)), rows=1)
    assert isinstance(found, Scaling)
    wide = jobs.compiled(keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)]))
    found = scaled(
        wide, tf.data.Dataset.from_tensors((np.zeros((1, 10 * MIB), "f4"), np.zeros((1, 1)))), rows=1
    )
    assert isinstance(found, Missing)
    assert "MiB of the job's data" in found.reason


def test_sizes_share_memory() -> None:
    """Slices of the largest one are no copies of it."""
    largest = resized(np.zeros((4, 64), "float32"), 4, 16)
    addresses = {
        np.asarray(memoryview(resized(largest, 16, rows))).__array_interface__["data"][0]
        for rows in (1, 4, 8, 16)
    }
    assert len(addresses) == 1


def fixed_model() -> Any:
    """Give a model that takes batches of one size."""
    return jobs.compiled(keras.Sequential([keras.Input((4,), batch_size=8), keras.layers.Dense(1)]))


def stateful_model() -> Any:
    """Give a model that carries its state on."""
    inputs = keras.Input((2, 4), batch_size=None)
    cell = keras.layers.SimpleRNN(2, stateful=False, name="memory")
    model = keras.Model(inputs, cell(inputs))
    cell.stateful = True
    return model


@pytest.mark.parametrize(
    ("model", "batch", "why"),
    [
        (fixed_model, np.zeros((8, 4)), "batches of 8 rows and no others"),
        (stateful_model, np.zeros((8, 2, 4)), "memory keeps its state"),
        (jobs.tiny_model, (np.zeros((8, 4)), np.zeros((3, 8))), "does not begin with its 8 rows"),
        (jobs.tiny_model, (np.zeros((8, 4)), np.float32(1)), "does not begin with its 8 rows"),
        (jobs.tiny_model, (tf.sparse.eye(8), np.zeros((8, 1))), "sparse or ragged"),
        (jobs.tiny_model, (np.zeros((8, 4)), np.zeros((8, 1))), ""),
    ],
    ids=["fixed size", "stateful", "time first", "a scalar", "sparse", "plain"],
)
def test_what_can_not_be_given_other_sizes_says_why(model: Any, batch: Any, why: str) -> None:
    """A model or a batch that has one size only is a reason, and nothing is run."""
    found = cannot_scale(model(), batch, 8)
    assert why in found
    assert bool(found) is bool(why)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (Room(20.0, 1e-3, 0.1, compiles=False), [4, 8, 16, 32]),
        (Room(20.0, 0.7, 0.1, compiles=False), [4, 8, 16]),
        (Room(20.0, 4.0, 0.1, compiles=False), None),
        (Room(1.0, 0.04, 0.5, compiles=False, most_s=2.0), [4, 8, 16]),
        (Room(20.0, 1e-3, 8.0, compiles=True), None),
    ],
    ids=["room", "less", "none", "the fewest", "compiling"],
)
def test_the_largest_sizes_are_left_out_where_there_is_no_room(
    room: Room, expected: list[int] | None
) -> None:
    """Three sizes or none: what does not fit into the time is not begun."""
    found = scaled(jobs.tiny_model(), jobs.batches(2), room)
    if expected is None:
        assert isinstance(found, Missing)
        assert "budget" in found.reason
    else:
        assert isinstance(found, Scaling)
        assert [size.rows for size in found.sizes] == expected
        assert bool(found.left_out) is (len(expected) < 4)


def test_rounds_on_a_fake_clock() -> None:
    """Calls of known length come out as they are, as many as fit into the window."""
    clock = FakeClock()
    calls: list[int] = []

    def step(iterator: Any) -> None:
        rows = next(iterator)
        calls.append(rows)
        clock.advance(0.01 + 0.001 * rows)

    timer = _Timer(step, clock, lambda: False, 20.0, on_host=True)
    memory = _Memory("")
    for rows in (4, 8, 16):
        timer.begin(rows, _Always(rows), memory)
    timer.run()
    assert [round(size.round_s[0], 9) for size in timer.sizes] == [0.014, 0.018, 0.026]
    assert {len(size.round_s) for size in timer.sizes} == {24}
    assert clock() <= 100.0 + 20.0
    order = [rows for before, rows in itertools.pairwise(calls) if rows != before]
    assert order[:9] == [8, 16, 8, 4, 8, 16, 8, 4, 8]  # first calls, then there and back again


class _Always:
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        while True:
            yield self.rows


def test_memory_that_may_not_be_there_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a size needed more than nothing, times the next factor, has to fit into half of what is free."""
    monkeypatch.setattr(host, "resident_bytes", lambda: 2**30)
    monkeypatch.setattr(host, "peak_memory_bytes", lambda: 2**31)
    monkeypatch.setattr(host, "free_memory_bytes", lambda: 5 * 2**30)
    assert _Memory("").too_small(2) == ""
    monkeypatch.setattr(host, "free_memory_bytes", lambda: 3 * 2**30)
    assert "2.0 GiB more" in _Memory("").too_small(2)
    monkeypatch.setattr(host, "peak_memory_bytes", lambda: None)
    assert _Memory("").too_small(2) == ""


def test_an_eager_step_is_not_traced() -> None:
    """It runs at any size as it is."""
    model = jobs.tiny_model(run_eagerly=True)
    dataset = jobs.batches(2)
    found = scaled(model, dataset)
    assert isinstance(found, Scaling)
    assert not found.retraced
    assert model.run_eagerly


def test_a_peak_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product and a convolution in the step's type, on the CPU; the second time nothing is run."""
    monkeypatch.setattr(peak, "_KEPT", {})
    wanted: list[peak.Wanted] = [("matrix product", "float32", True), ("convolution", "float32", True)]

    def measured() -> Any:
        until = time.perf_counter() + 1.0
        return peak.measure_peaks(
            "/CPU:0", wanted, until=until, clock=time.perf_counter, should_stop=lambda: False
        )

    found, missing = measured()
    assert missing == ""
    assert [each.kind for each in found] == ["matrix product", "convolution"]
    for each in found:
        assert isinstance(each.rate, Quantity)
        assert 1e8 < each.rate.value < 1e15
        assert each.rate.unit == "FLOP/s"
    monkeypatch.setattr(peak, "_measured", None)
    assert measured()[0] == found


def test_no_time_for_a_peak_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept of what was not measured, nor of a type that the device does not have."""
    monkeypatch.setattr(peak, "_KEPT", {})
    clock = FakeClock()

    def measured(kind: str, until: float) -> Any:
        return peak.measure_peaks(
            "/CPU:0", [("matrix product", kind, True)], until=until, clock=clock, should_stop=lambda: False
        )

    found, missing = measured("float32", clock() - 1)
    assert (found, "budget" in missing) == ((), True)
    found, missing = measured("bool", clock() + 1)
    assert (found, "no matrix product in bool" in missing) == ((), True)
    assert peak._KEPT == {}


def test_what_the_processor_has_for_low_precision(tmp_path: Any) -> None:
    """Its flags are read; a platform that lists none says so."""
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags\t\t: fpu avx512_bf16 amx_bf16 sse\n")
    assert host.low_precision_features(tmp_path) == ("avx512_bf16", "amx_bf16")
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags : fpu sse\n")
    assert host.low_precision_features(tmp_path) == ()
    (tmp_path / "cpuinfo").write_text("processor : 0\n")
    assert isinstance(host.low_precision_features(tmp_path), Missing)
    assert isinstance(host.low_precision_features(tmp_path / "none"), Missing)
    peak_bytes = host.peak_memory_bytes()
    assert peak_bytes is None or peak_bytes >= 0.5 * host.resident_bytes() > 0

"""The step without its input, and the input without its step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.integration import jobs
from tests.integration.processes import succeeds
from tests.unit.compat.test_keras import FLAVOURS
from tests.unit.fakes import FakeClock
from tfdiag.collect.alone import measure_alone
from tfdiag.collect.replay import Pace, measure_replay, measure_replay_of_step, resident
from tfdiag.compat.keras import make_train_function
from tfdiag.compat.profiler import Tracer
from tfdiag.compat.stamps import Stamps
from tfdiag.compat.tensorflow import tracing_count
from tfdiag.model.measurements import Replay, Traced
from tfdiag.model.quantity import Missing


def never() -> bool:
    """Stop never."""
    return False


NO_PACE = Pace(0.0, False)


def replayed(model: Any, kept: Any, folder: Path, seconds: float) -> Replay:
    """Replay a kept batch for a while."""
    return measure_replay(
        model,
        kept,
        pace=NO_PACE,
        tracer=Tracer(folder),
        until=time.perf_counter() + seconds,
        clock=time.perf_counter,
        should_stop=never,
    )


def structured() -> tf.data.Dataset:
    """Give batches of an unknown number of rows, in a structure."""
    rows = {"a": tf.zeros((10, 3)), "b": tf.zeros((10, 2), tf.int32)}
    return tf.data.Dataset.from_tensor_slices((rows, tf.zeros((10, 1)))).batch(4)


SPECS: dict[str, Callable[[], tf.data.Dataset]] = {
    "known rows": lambda: jobs.batches(3),
    "unknown rows": lambda: tf.data.Dataset.from_tensor_slices(jobs.arrays(20)).batch(8),
    "a structure": structured,
    "one part": lambda: tf.data.Dataset.from_tensor_slices(tf.zeros((10, 2))).batch(4),
    "a dict": lambda: tf.data.Dataset.from_tensor_slices({"a": tf.zeros((9, 2))}).batch(4),
    "unknown width": lambda: tf.data.Dataset.from_tensor_slices(tf.zeros((9, 2))).padded_batch(4, [None]),
    "sparse": lambda: tf.data.Dataset.from_tensor_slices(tf.sparse.eye(5)).batch(2),
    "a ragged part": lambda: tf.data.Dataset.from_tensor_slices(
        (tf.ragged.constant([[1], [2, 3], [4]]), tf.zeros((3, 1)))
    ).batch(2),
    "ragged": lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3], [4]])).batch(2),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_resident_dataset_looks_like_the_real_one(name: str) -> None:
    """It has the real element spec, unknown dimensions too, and gives the same batch for ever."""
    dataset = SPECS[name]()
    batch = next(iter(dataset))
    kept = resident(None, batch, dataset.element_spec)
    assert kept.element_spec == dataset.element_spec
    given = list(kept.take(3))
    for again in given:
        for one, other in zip(
            tf.nest.flatten(again, expand_composites=True),
            tf.nest.flatten(batch, expand_composites=True),
            strict=True,
        ):
            assert np.array_equal(one, other)
    assert len(given) == 3


def test_nothing_runs_beside_a_resident_dataset() -> None:
    """Neither tuning nor a prefetch works while the step is timed."""
    options = resident(None, tf.zeros(2), tf.TensorSpec(2)).options()
    assert options.autotune.enabled is False
    assert options.experimental_optimization.apply_default_optimizations is False


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("rows", [16, 20], ids=["whole batches", "a short last batch"])
def test_replaying_traces_nothing_anew(flavour: str, rows: int, tmp_path: Path) -> None:
    """The train function that fit has traced takes the kept batch as it is."""
    model = FLAVOURS[flavour][1]() if isinstance(FLAVOURS[flavour], tuple) else FLAVOURS[flavour]()
    dataset = tf.data.Dataset.from_tensor_slices(jobs.arrays(rows)).batch(8)
    model.fit(dataset, verbose=0)
    traces = tracing_count(make_train_function(model))
    assert traces is not None
    before = traces()
    kept = resident(model, next(iter(dataset)), dataset.element_spec)
    replay = measure_replay(
        model,
        kept,
        pace=NO_PACE,
        tracer=Tracer(tmp_path),
        until=time.perf_counter() + 0.1,
        clock=time.perf_counter,
        should_stop=never,
    )
    assert traces() == before >= 1
    assert len(replay.call_s) >= 3
    assert isinstance(replay.traced, Traced)
    assert 0 < replay.traced.busy_s < sum(replay.traced.call_s)
    assert replay.empty_call_s == ()  # needed only where there is no trace
    assert replay.graph_call_s == ()
    assert replay.cpu_s > 0


def test_a_profiler_that_is_taken_leaves_the_empty_step(tmp_path: Path) -> None:
    """Where somebody profiles already, dispatch is told by a call with an empty step."""
    model, dataset = jobs.tiny_model(), jobs.batches(3)
    kept = resident(model, next(iter(dataset)), dataset.element_spec)
    tf.profiler.experimental.start(str(tmp_path / "theirs"))
    try:
        replay = replayed(model, kept, tmp_path, 0.3)
    finally:
        tf.profiler.experimental.stop()
    assert isinstance(replay.traced, Missing)
    assert len(replay.empty_call_s) >= 3
    assert np.median(replay.empty_call_s) < np.median(replay.call_s)


def test_an_eager_step_is_timed_in_a_graph_too(tmp_path: Path) -> None:
    """What compiling the step to a graph would give is measured, and the model is eager again."""
    model = jobs.tiny_model(run_eagerly=True)
    before = make_train_function(model)
    dataset = jobs.batches(3)
    kept = resident(model, next(iter(dataset)), dataset.element_spec)
    replay = measure_replay(
        model,
        kept,
        pace=NO_PACE,
        tracer=Tracer(tmp_path),
        until=time.perf_counter() + 0.3,
        clock=time.perf_counter,
        should_stop=never,
    )
    assert model.run_eagerly
    assert model.train_function is before
    assert len(replay.graph_call_s) >= 3
    assert replay.graph_missing == ""
    assert np.median(replay.graph_call_s) < np.median(replay.call_s)
    assert not tf.config.functions_run_eagerly()


def test_a_step_that_no_graph_can_take_says_why(tmp_path: Path) -> None:
    """A step that needs Python values can't be traced, which is a reason and no error."""

    class NeedsPython(jobs.OwnStep):
        def train_step(self, data: Any) -> Any:
            return {"loss": tf.constant(float(tf.reduce_sum(data[0])))}

    model = NeedsPython()
    model.compile(run_eagerly=True)
    dataset = jobs.batches(3)
    kept = resident(model, next(iter(dataset)), dataset.element_spec)
    replay = measure_replay(
        model,
        kept,
        pace=NO_PACE,
        tracer=Tracer(tmp_path),
        until=time.perf_counter() + 0.1,
        clock=time.perf_counter,
        should_stop=never,
    )
    assert replay.graph_call_s == ()
    assert replay.graph_missing.startswith("the step can't be traced to a graph: ")


def test_replay_on_two_replicas() -> None:
    """A batch of a distributed dataset is put together, kept and spread again."""
    succeeds(
        """
        import tempfile, time
        from pathlib import Path
        import tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        from tests.integration import jobs
        from tfdiag.collect.replay import Pace, measure_replay, resident
        from tfdiag.compat.profiler import Tracer
        strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
        with strategy.scope():
            model = jobs.tiny_model()
        model.fit(jobs.batches(2), verbose=0)
        real = strategy.experimental_distribute_dataset(jobs.batches(4))
        batch = next(iter(real))
        kept = resident(model, batch, real.element_spec)
        again = next(iter(kept))
        for one, other in zip(batch, again):
            for a, b in zip(one.values, other.values):
                assert (a.numpy() == b.numpy()).all() and a.shape == (4, a.shape[1])
        folder = tempfile.TemporaryDirectory()
        replay = measure_replay(model, kept, pace=Pace(0.0, False), tracer=Tracer(Path(folder.name)),
                                until=time.perf_counter() + 0.5,
                                clock=time.perf_counter, should_stop=lambda: False)
        assert len(replay.call_s) >= 3
        folder.cleanup()
        """
    )


def test_a_callers_own_step_on_a_fake_clock(tmp_path: Path) -> None:
    """First call, steady calls and calls at the job's own pace are told apart; the batch is the same."""
    clock, count, batches = FakeClock(), itertools.count(), []

    def step(batch: Any) -> Any:
        batches.append(batch)
        clock.advance(5.0 if next(count) == 0 else 0.5)

    replay = measure_replay_of_step(
        step,
        "batch",
        pace=Pace(0.0, True),
        tracer=Tracer(tmp_path),
        until=clock() + 100.0,
        clock=clock,
        should_stop=lambda: len(batches) > 50,
    )
    assert replay.first_call_s == pytest.approx(5.0)
    assert set(np.round(replay.call_s, 9)) == {0.5}
    assert replay.paced_call_s == ()
    assert set(batches) == {"batch"}
    assert replay.empty_call_s == () or replay.empty_call_s[0] == 0.0


def test_the_end_of_the_window_is_kept(tmp_path: Path) -> None:
    """Calls end with the window, after three of them at least."""
    clock = FakeClock()
    replay = measure_replay_of_step(
        clock.taking(40.0),
        1.0,
        pace=NO_PACE,
        tracer=Tracer(tmp_path),
        until=clock() + 100.0,
        clock=clock,
        should_stop=lambda: clock() > 180,
    )
    assert len(replay.call_s) <= 3
    assert clock() <= 300.0


def test_a_stop_ends_a_replay(tmp_path: Path) -> None:
    """Whoever asks for the end gets it after the call that is running."""
    clock = FakeClock()
    replay = measure_replay_of_step(
        clock.taking(1.0),
        1.0,
        pace=Pace(0.5, True),
        tracer=Tracer(tmp_path),
        until=clock() + 1e6,
        clock=clock,
        should_stop=lambda: True,
    )
    assert (replay.call_s, replay.paced_call_s, replay.empty_call_s) == ((), (), ())


# The input alone -----------------------------------------------------------------------------


class Timed:
    """An input whose batches take known times."""

    def __init__(self, clock: FakeClock, seconds: float, count: float) -> None:
        """Count what is taken."""
        self.clock, self.seconds, self.count, self.taken = clock, seconds, count, 0

    def __iter__(self) -> Any:
        """Give batches; the first one fills buffers."""
        while self.taken < self.count:
            self.clock.advance(self.seconds + 3.0 * (self.taken == 0))
            self.taken += 1
            yield self.taken


def test_the_input_alone_is_timed() -> None:
    """The first batch stands apart from the others, and the first one is kept."""
    clock = FakeClock()
    alone = measure_alone(Timed(clock, 0.25, 8), until=clock() + 100.0, clock=clock, should_stop=never)
    assert alone.first_batch == 1
    assert alone.measured is not None
    assert alone.measured.first_batch_s == pytest.approx(3.25)
    assert alone.measured.batch_s == pytest.approx([0.25] * 7)


def test_a_steady_input_is_left_early() -> None:
    """Once the rate is known no more batches are taken; time that is up ends it as well."""
    clock = FakeClock()
    source = Timed(clock, 0.25, 10_000)
    measure_alone(source, until=clock() + 1e6, clock=clock, should_stop=never)
    assert source.taken < 100
    source = Timed(clock, 0.25, 10_000)
    measure_alone(source, until=clock() + 5.0, clock=clock, should_stop=never)
    assert source.taken <= 10
    source = Timed(clock, 0.25, 10_000)
    measure_alone(source, until=clock() + 1e6, clock=clock, should_stop=lambda: source.taken >= 4)
    assert source.taken == 4


def test_the_end_of_a_real_dataset() -> None:
    """A dataset that runs out is measured as far as it goes, and fails with its own error where it fails."""
    clock = time.perf_counter
    alone = measure_alone(jobs.batches(5), until=clock() + 10, clock=clock, should_stop=never)
    assert alone.measured is not None
    assert len(alone.measured.batch_s) == 4
    assert alone.first_batch[0].shape == (8, 4)

    def act(k: int) -> None:
        if k == 2:
            raise RuntimeError("broken")

    with pytest.raises(tf.errors.OpError, match="broken"):
        measure_alone(
            jobs.on_each_batch(jobs.batches(5), act), until=clock() + 10, clock=clock, should_stop=never
        )


@pytest.mark.parametrize("pace", [NO_PACE, Pace(0.002, False)], ids=["fast", "paced"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_stamped_replay_traces_nothing_anew_and_tells_the_way_to_the_batch(
    flavour: str, pace: Pace, tmp_path: Path
) -> None:
    """With the same stage live and in the replay one trace serves both, and each call has its arrival."""
    model = FLAVOURS[flavour][1]() if isinstance(FLAVOURS[flavour], tuple) else FLAVOURS[flavour]()
    dataset = jobs.no_autotune(tf.data.Dataset.from_tensor_slices(jobs.arrays(20)).batch(8))
    stamps = Stamps(time.perf_counter)
    model.fit(stamps.stage(dataset), verbose=0)
    traces = tracing_count(make_train_function(model))
    assert traces is not None
    before = traces()
    kept = stamps.stage(resident(model, next(iter(dataset)), dataset.element_spec))
    replay = measure_replay(
        model,
        kept,
        pace=pace,
        tracer=Tracer(tmp_path),
        until=time.perf_counter() + 0.3,
        clock=time.perf_counter,
        should_stop=never,
        stamps=stamps,
    )
    assert traces() == before >= 1
    calls = replay.paced_call_s or replay.call_s
    assert bool(replay.paced_call_s) == (pace is not NO_PACE)
    assert 0.5 * len(calls) <= len(replay.arrival_s) <= len(calls)
    assert 0 < np.median(replay.arrival_s) < np.median(calls)

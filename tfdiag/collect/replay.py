"""The step without input: one batch, kept, through the same train function again and again."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tfdiag import stats
from tfdiag.collect.arrivals import Arrivals, arrivals_of
from tfdiag.compat import keras, tensorflow
from tfdiag.compat.profiler import Tracer
from tfdiag.model.measurements import Replay, Traced
from tfdiag.model.quantity import Missing

__all__ = ["Pace", "call_times", "measure_replay", "measure_replay_of_step", "repeat", "resident"]

_LEAST = 15
_GOOD_ENOUGH = 0.015
_MAX_CALLS = 20_000
_PACED_CALLS = 150
"""In one stretch."""
_STRETCHES = 3
"""A machine has slow seconds. What is spread over several stretches is not judged by one of them."""
_TRACED_CALLS = 40
_PACE_LEAST_S = 10e-6
"""Below this a job leaves no pause worth imitating."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What the job does between two steps' work."""

    pause_s: float
    busy: bool
    """The processor works meanwhile, in callbacks or in the input."""


def resident(model: Any, batch: Any, element_spec: Any) -> Any:
    """Build an endless dataset of one batch with the element spec of the real one.

    The spec has to be the same, or the train function would be traced once more for a shape that is
    fully known; and nothing may run beside the step, so all tuning is off.
    """
    tf = tensorflow.tensorflow()
    strategy = getattr(model, "distribute_strategy", None)
    replicas = int(getattr(strategy, "num_replicas_in_sync", 1) or 1)
    if replicas > 1:
        batch = _gathered(strategy, batch)
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    if replicas == 1 and dataset.element_spec != element_spec:
        dataset = dataset.map(
            # AutoGraph would write a temporary file to convert what needs no conversion.
            tf.autograph.experimental.do_not_convert(lambda *parts: _relaxed(parts, element_spec))
        )
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.deterministic = True
    dataset = dataset.with_options(options)
    if strategy is not None and replicas > 1:
        dataset = strategy.experimental_distribute_dataset(dataset)
    return dataset


def _gathered(strategy: Any, batch: Any) -> Any:
    tf = tensorflow.tensorflow()
    return tf.nest.map_structure(
        lambda part: tf.concat(strategy.experimental_local_results(part), axis=0), batch
    )


def _relaxed(parts: tuple[Any, ...], element_spec: Any) -> Any:
    """Forget what the real element spec does not know either."""
    tf = tensorflow.tensorflow()

    def relax(tensor: Any, spec: Any) -> Any:
        if isinstance(spec, tf.TensorSpec) and isinstance(tensor, tf.Tensor):
            return tf.compat.v1.placeholder_with_default(tensor, spec.shape)
        return tensor

    value = parts if isinstance(element_spec, tuple) else parts[0]
    # Ragged and sparse parts are taken apart: what they don't know stands in the specs of their tensors.
    flat = [tf.nest.flatten(each, expand_composites=True) for each in (value, element_spec)]
    relaxed = [relax(tensor, spec) for tensor, spec in zip(*flat, strict=True)]
    return tf.nest.pack_sequence_as(element_spec, relaxed, expand_composites=True)


def measure_replay(
    model: Any,
    dataset: Any,
    *,
    pace: Pace,
    tracer: Tracer,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
    stamps: Arrivals | None = None,
    on_device: bool = False,
) -> Replay:
    """Time the model's own train function on one batch, and what dispatching it costs.

    `stamps` tells when batches of the dataset arrived, where something does. `on_device` says that
    the ops run beside the host, so that its trace does not tell dispatch.
    """
    eager = bool(getattr(model, "run_eagerly", False)) or tensorflow.functions_run_eagerly()
    window = until - clock()
    step = keras.make_train_function(model)
    timed, paced = _in_stretches(
        step, dataset, pace, window * (0.15 if eager else 0.25), window * 0.4, clock, should_stop, stamps
    )
    traced: Traced | Missing = Missing("an eager step has no ops of a graph")
    if not eager and not should_stop():
        traced = _traced(step, dataset, pace, clock() + 0.1 * window, clock, tracer, should_stop)
    graph: list[float] = []
    graph_missing = ""
    if eager and not should_stop():
        graph, graph_missing = _in_graph(model, dataset, clock() + 0.3 * window, clock, should_stop)
    empty: list[float] = []
    if (on_device or isinstance(traced, Missing)) and not should_stop():
        names = list(timed.logs) if isinstance(timed.logs, dict) else ["loss"]
        null = keras.null_step(model, names)
        empty = _time_calls(null, dataset, clock() + 0.2 * window, clock, should_stop).call_s
    return Replay(
        call_s=tuple(timed.call_s),
        cpu_s=timed.cpu_s,
        first_call_s=timed.first_s,
        empty_call_s=tuple(empty),
        paced_call_s=tuple(paced.call_s),
        pace_s=pace.pause_s,
        graph_call_s=tuple(graph),
        graph_missing=graph_missing,
        steps_per_call=keras.steps_per_execution(model),
        traced=traced,
        arrival_s=tuple(paced.arrival_s or timed.arrival_s),
    )


def repeat(
    step: Callable[[Any], Any],
    data: Any,
    *,
    pace: Pace,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> None:
    """Make steps at the pace of the job until told to stop."""
    iterator = iter(data)
    while not should_stop():
        _pause(pace, clock)
        step(iterator)


def _in_graph(
    model: Any,
    dataset: Any,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> tuple[list[float], str]:
    """Time the same step compiled to a graph; a step that can't be traced says why."""
    tf = tensorflow.tensorflow()
    everywhere = tensorflow.functions_run_eagerly()
    # Whatever is measured afterwards is the job as it is, so the model gets these back at once.
    kept = getattr(model, "run_eagerly", False), getattr(model, "train_function", None)
    try:
        tf.config.run_functions_eagerly(False)
        model.run_eagerly = False
        model.train_function = None
        step = keras.make_train_function(model)
        calls = _time_calls(step, dataset, until, clock, should_stop).call_s
    except (tf.errors.OpError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        return [], f"the step can't be traced to a graph: {(str(error).splitlines() or ['?'])[0]}"
    finally:
        tf.config.run_functions_eagerly(everywhere)
        model.run_eagerly, model.train_function = kept
    return calls, ""


def measure_replay_of_step(
    train_step: Callable[[Any], Any],
    batch: Any,
    *,
    pace: Pace,
    tracer: Tracer,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> Replay:
    """Time a caller's own step function on one batch, and an empty `tf.function` beside it."""
    tf = tensorflow.tensorflow()

    empty_step = tf.function(lambda _: tf.constant(0.0), autograph=False)

    def forever() -> Any:
        while True:
            yield batch

    window = until - clock()

    def step(iterator: Any) -> Any:
        return train_step(next(iterator))

    timed, paced = _in_stretches(
        step, _Endless(forever), pace, 0.4 * window, 0.4 * window, clock, should_stop
    )
    traced = _traced(step, forever(), pace, clock() + 0.1 * window, clock, tracer, should_stop)
    empty: list[float] = []
    with contextlib.suppress(TypeError, ValueError):  # a batch that a graph can't take
        empty = _time_calls(
            lambda it: empty_step(next(it)), forever(), clock() + 0.1 * window, clock, should_stop
        ).call_s
    return Replay(
        tuple(timed.call_s),
        timed.cpu_s,
        timed.first_s,
        tuple(empty),
        paced_call_s=tuple(paced.call_s),
        pace_s=pace.pause_s,
        traced=traced,
    )


@dataclass(slots=True)
class _Timed:
    """Calls one after the other."""

    first_s: float
    call_s: list[float]
    cpu_s: float
    logs: Any
    arrival_s: list[float]


@dataclass(slots=True)
class _Paced:
    """Calls with the job's pauses between them."""

    call_s: list[float] = field(default_factory=list)
    arrival_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Endless:
    """Something that can be iterated again and again, as a dataset can."""

    make: Callable[[], Any]

    def __iter__(self) -> Any:
        return self.make()


def _in_stretches(
    step: Callable[[Any], Any],
    dataset: Any,
    pace: Pace,
    fast_s: float,
    paced_s: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
    stamps: Arrivals | None = None,
) -> tuple[_Timed, _Paced]:
    """Time calls as fast as they go and calls at the job's pace, by turns."""
    paced = _Paced()
    whole: _Timed | None = None
    for _ in range(_STRETCHES):
        part = _time_calls(step, dataset, clock() + fast_s / _STRETCHES, clock, should_stop, stamps)
        if whole is None:
            whole = part
        else:
            whole.call_s += part.call_s
            whole.cpu_s += part.cpu_s
            whole.arrival_s += part.arrival_s
        slow = _paced(step, dataset, pace, clock() + paced_s / _STRETCHES, clock, should_stop, stamps)
        paced.call_s += slow.call_s
        paced.arrival_s += slow.arrival_s
        if should_stop():
            break
    assert whole is not None
    return whole, paced


def call_times(
    step: Callable[[Any], Any],
    dataset: Any,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> list[float]:
    """Time calls one after the other, the first one left out."""
    return _time_calls(step, dataset, until, clock, should_stop).call_s


def _time_calls(
    step: Callable[[Any], Any],
    dataset: Any,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
    stamps: Arrivals | None = None,
) -> _Timed:
    iterator = iter(dataset)
    begin = clock()
    logs = step(iterator)
    _wait_for(logs)
    first_s = clock() - begin
    times: list[float] = []
    processor = time.process_time()
    next_check = _LEAST
    begin = last = clock()
    while not should_stop() and len(times) < _MAX_CALLS:
        logs = step(iterator)
        now = clock()
        times.append(now - last)
        last = now
        if now >= until and len(times) >= 3:
            break
        if len(times) >= next_check:
            next_check *= 2
            if sum(times) > 0.25 and _settled(times):
                break
    _wait_for(logs)
    cpu_s = time.process_time() - processor
    ends = [begin, *(begin + np.cumsum(times))]
    return _Timed(first_s, times, cpu_s, logs, _arrived(list(itertools.pairwise(ends)), stamps))


def _paced(
    step: Callable[[Any], Any],
    dataset: Any,
    pace: Pace,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
    stamps: Arrivals | None = None,
) -> _Paced:
    """Time calls with the job's own pauses between them.

    A step that follows the last one at once runs on warm caches and waking threads; after some
    milliseconds of something else it does not, and takes longer for the same work.
    """
    if pace.pause_s < _PACE_LEAST_S:
        return _Paced()
    calls: list[tuple[float, float]] = []
    iterator = iter(dataset)
    step(iterator)
    while len(calls) < _PACED_CALLS and not should_stop():
        _pause(pace, clock)
        begin = clock()
        logs = step(iterator)
        now = clock()
        calls.append((begin, now))
        if now >= until and len(calls) >= 3:
            break
        _wait_for(logs)
    return _Paced([end - begin for begin, end in calls], _arrived(calls, stamps))


def _arrived(calls: list[tuple[float, float]], stamps: Arrivals | None) -> list[float]:
    """Give how long after their starts the batches of calls arrived, as far as that is known."""
    if stamps is None:
        return []
    return [after for after in arrivals_of(calls, stamps.read()) if not math.isnan(after)]


def _pause(pace: Pace, clock: Callable[[], float]) -> None:
    if pace.pause_s < _PACE_LEAST_S:
        return
    if not pace.busy:
        time.sleep(pace.pause_s)
        return
    end = clock() + pace.pause_s
    while clock() < end:
        pass


def _traced(
    step: Callable[[Any], Any],
    dataset: Any,
    pace: Pace,
    until: float,
    clock: Callable[[], float],
    tracer: Tracer,
    should_stop: Callable[[], bool],
) -> Traced | Missing:
    """Trace some calls at the job's pace, to see how long the step's own ops run."""
    iterator = iter(dataset)
    _wait_for(step(iterator))
    if missing := tracer.start():
        return missing
    times: list[float] = []
    try:
        while len(times) < _TRACED_CALLS and not should_stop():
            _pause(pace, clock)
            begin = clock()
            logs = step(iterator)
            times.append(clock() - begin)
            _wait_for(logs)
            if clock() >= until and len(times) >= 3:
                break
    finally:
        worked = tracer.stop()
    if isinstance(worked, Missing):
        return worked
    if not times:
        return Missing("no call was traced")
    traced = Traced(worked.graph_s, tuple(times), worked.eager_ops)
    if traced.eager:
        return replace(traced, busy_s=worked.eager_s)
    return traced if worked.graph_s else Missing("the trace holds no ops of a graph")


def _wait_for(logs: Any) -> None:
    """Make sure that an accelerator has finished what was dispatched."""
    for value in logs.values() if isinstance(logs, dict) else [logs]:
        if hasattr(value, "numpy"):
            value.numpy()


def _settled(times: list[float]) -> bool:
    series = np.array(times)
    steady = series[stats.warmup_end(series) :]
    return len(steady) >= _LEAST and stats.mean(steady).relative_half_width < _GOOD_ENOUGH

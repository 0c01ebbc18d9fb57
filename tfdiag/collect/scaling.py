"""Replays the kept batch at several sizes: what of a step is a fixed cost, and what each row costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdiag.collect.replay import resident
from tfdiag.compat import compute, devices, gpu, host, keras, tensorflow
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.scaling import Scaling, SizeTimes

__all__ = ["Room", "cannot_scale", "measure_scaling", "resized", "sizes_for"]

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_LEAST_SIZES = 3
_MOST_SIZES = 4
_HELD_BYTES = 64 * 2**20
"""Of the caller's rows, or two batches where that is more; the kept batch is one of them."""
_ALIGNED = 64
"""Rows of so many bytes: a slice of the first of them shares their memory."""
_LEAST_ROUNDS = 3
_MOST_ROUNDS = 24
_FIRST_CALLS = 2
"""Of each size, in no round: they trace, compile and choose kernels."""
_STRETCH_S = 0.01
_MOST_CALLS = 50
"""Both of one size, in one round."""
_DISTURBED = 4
"""In a stretch of so many calls the first is left out: it finds the caches as another size left them."""
_MEMORY_SHARE = 0.5
"""Of what is free on the host."""
_DEVICE_SHARE = 0.9
"""Of what TensorFlow may take on a device."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a replay at several sizes may take, and what is known of its calls."""

    window_s: float
    call_s: float
    """A call with the job's own batch."""
    trace_s: float
    """A call that traces or compiles."""
    compiles: bool
    """Each new shape is compiled."""
    most_s: float = 0.0
    """What may be taken where the fewest sizes that tell anything don't fit into the window."""


def sizes_for(batch: Any, rows: int) -> tuple[list[int], str]:
    """Give the sizes to try, smallest first, and why none is larger; a batch of one row has no half."""
    parts = [devices.size_of(part) for part in tensorflow.tensorflow().nest.flatten(batch)]
    most = max(_HELD_BYTES, 2 * sum(parts))
    why = ""
    for count in range(len(_FACTORS), _LEAST_SIZES - 1, -1):
        sizes = sorted({max(1, round(factor * rows)) for factor in _FACTORS[:count]})[-_MOST_SIZES:]
        # Parts whose slices don't share memory are held once for each size.
        copies = [max(sizes) if size % (_ALIGNED * rows) == 0 else sum(sizes) for size in parts]
        held = sum(size * (1 + copy / rows) for size, copy in zip(parts, copies, strict=True))
        if held <= most or count == _LEAST_SIZES:
            break
        why = f"batches of {sizes[-1]} rows would hold more than {most / 2**20:.0f} MiB of the job's data"
    return sizes, why


def cannot_scale(model: Any, batch: Any, rows: int) -> str:
    """Say why batches of another size can't be given to this model; empty if they can."""
    if not keras.has_default_strategy(model):
        return "under a tf.distribute strategy the batch is split among replicas: other sizes are not tried"
    if fixed := compute.fixed_batch_size(model):
        return f"the model takes batches of {fixed} rows and no others"
    if stateful := compute.stateful_layers(model):
        return f"{stateful[0]} keeps its state from batch to batch, so all batches must have one size"
    tf = tensorflow.tensorflow()
    for part in tf.nest.flatten(batch):
        if isinstance(part, (tf.SparseTensor, tf.RaggedTensor)):
            return "a part of the batch is sparse or ragged"
        shape: Any = getattr(part, "shape", ())
        if not len(shape) or shape[0] != rows:
            return (
                f"a part of the batch has the shape {tuple(shape)}, which does not begin with its {rows} rows"
            )
    return ""


def resized(batch: Any, rows: int, wanted: int) -> Any:
    """Cut a batch, which copies nothing where that can be, or repeat its rows."""
    tf = tensorflow.tensorflow()
    which = np.arange(wanted) % rows

    def change(part: Any) -> Any:
        return tf.gather(part, which) if wanted > rows else tf.convert_to_tensor(part)[:wanted]

    with tf.device("/CPU:0"):
        return tf.nest.map_structure(change, batch)


def measure_scaling(
    model: Any,
    batch: Any,
    element_spec: Any,
    rows: int,
    *,
    room: Room,
    device: str,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> Scaling | Missing:
    """Time the train function at several sizes, by turns, so that a slow second tilts nothing.

    Where the job's own trace takes batches of any size it is used. Where it takes one size only, a train
    function of our own is traced once for any size; the model gets its own one back.
    """
    tf = tensorflow.tensorflow()
    if why := cannot_scale(model, batch, rows):
        return Missing(why)
    eager = bool(getattr(model, "run_eagerly", False)) or tensorflow.functions_run_eagerly()
    spec, known = _any_size(tf, batch, element_spec)
    anew = not known and not eager
    wanted, too_large = sizes_for(batch, rows)
    if too_large and len(wanted) < _LEAST_SIZES:
        return Missing(too_large)
    sizes, window_s, why_fewer = _that_fit(wanted, rows, room, anew=anew)
    if len(sizes) < _LEAST_SIZES:
        return Missing(why_fewer)
    why_fewer = why_fewer or too_large
    largest = resized(batch, rows, sizes[-1])

    def datasets() -> Iterator[tuple[int, Any]]:
        for size in sizes:
            yield size, resident(model, resized(largest, sizes[-1], size), spec)

    before = getattr(model, "train_function", None)
    try:
        if anew:
            model.train_function = None
        step = keras.make_train_function(model)
    finally:
        model.train_function = before
    memory = _Memory(device)
    timer = _Timer(step, clock, should_stop, window_s, on_host=not device)
    why_left_out = ""
    for size, dataset in datasets():
        if timer.sizes and (why_left_out := memory.too_small(size / timer.sizes[-1].rows)):
            break
        try:
            timer.begin(size, dataset, memory)
        except tf.errors.ResourceExhaustedError:
            why_left_out = f"a batch of {size} rows does not fit into memory"
            break
        if should_stop():
            break
    timer.run()
    return _scaling(timer, rows, keras.steps_per_execution(model), anew, why_left_out or why_fewer, memory)


def _scaling(
    timer: _Timer, rows: int, steps_per_call: int, anew: bool, left_out: str, memory: _Memory
) -> Scaling | Missing:
    if len(timer.sizes) < _LEAST_SIZES:
        return Missing(left_out or "the budget ended before three sizes had run")
    if len(timer.sizes[0].round_s) < _LEAST_ROUNDS:
        return Missing("the budget left no time to run the step at several batch sizes")
    sizes = tuple(
        SizeTimes(each.rows, tuple(each.round_s), each.calls, each.first_s, each.memory)
        for each in timer.sizes
    )
    return Scaling(rows, sizes, steps_per_call, anew, left_out, memory.limit)


def _any_size(tf: Any, batch: Any, element_spec: Any) -> tuple[Any, bool]:
    """Give the spec of batches of any size, and whether it is the one that the job's own input has."""

    def relax(part: Any, spec: Any) -> Any:
        shape = spec.shape if isinstance(spec, tf.TensorSpec) else part.shape
        if shape.rank is None:
            return spec
        return tf.TensorSpec([None, *shape[1:]], part.dtype)

    tensors = tf.nest.map_structure(tf.convert_to_tensor, batch)
    try:
        tf.nest.assert_same_structure(tensors, element_spec)
    except (TypeError, ValueError):  # the kept batch is not one of the dataset that was iterated
        element_spec = tf.nest.map_structure(tf.TensorSpec.from_tensor, tensors)
    spec = tf.nest.map_structure(relax, tensors, element_spec)
    return spec, bool(spec == element_spec)


def _that_fit(sizes: list[int], rows: int, room: Room, *, anew: bool) -> tuple[list[int], float, str]:
    """Leave out the largest sizes until the rest fits into the time, and say how much of it they may take."""
    why = ""
    for count in range(len(sizes), _LEAST_SIZES - 1, -1):
        chosen = sizes[:count]
        work = sum(max(0.3, size / rows) for size in chosen) * room.call_s
        new = count if room.compiles else 1 if anew else 0
        needs_s = (_FIRST_CALLS + 1.5 * _LEAST_ROUNDS) * work + new * room.trace_s
        if needs_s <= (max(room.window_s, room.most_s) if count == _LEAST_SIZES else room.window_s):
            return chosen, max(room.window_s, needs_s), why
        why = f"there was no time for batches of {chosen[-1]} rows"
    return [], 0.0, "the budget left no time to run the step at several batch sizes"


@dataclass(slots=True)
class _Size:
    rows: int
    iterator: Any
    call_s: float
    first_s: float
    memory: Maybe
    round_s: list[float]
    calls: int = 0


class _Timer:
    """Makes calls of several sizes, by turns."""

    def __init__(
        self,
        step: Callable[[Any], Any],
        clock: Callable[[], float],
        should_stop: Callable[[], bool],
        window_s: float,
        *,
        on_host: bool,
    ) -> None:
        self.on_host = on_host
        self.step, self.clock, self.should_stop = step, clock, should_stop
        self.end = clock() + window_s
        # What was planned for is finished, though the machine may have become slower meanwhile.
        self.hard_end = self.end + 0.5 * window_s
        self.sizes: list[_Size] = []

    def begin(self, rows: int, dataset: Any, memory: _Memory) -> None:
        """Make the first calls of a size."""
        iterator = iter(dataset)
        memory.before()
        took = []
        for _ in range(_FIRST_CALLS):
            begin = self.clock()
            _wait_for(self.step(iterator))
            took.append(self.clock() - begin)
        self.sizes.append(_Size(rows, iterator, took[-1], took[0], memory.after(), []))

    def run(self) -> None:
        """Make rounds until the time is up; only whole ones count."""
        if len(self.sizes) < _LEAST_SIZES:
            return
        each = max(0.0, self.end - self.clock()) / (len(self.sizes) * (_MOST_ROUNDS + 1))
        stretch_s = min(_STRETCH_S, each)
        for number in range(_MOST_ROUNDS):
            order: Sequence[_Size] = self.sizes if number % 2 else self.sizes[::-1]
            means = {}
            for size in order:
                if self._out_of_time(size, number):
                    return
                means[size.rows] = self._stretch(size, stretch_s)
            for size in self.sizes:
                size.round_s.append(means[size.rows])

    def _out_of_time(self, size: _Size, rounds: int) -> bool:
        if self.should_stop():
            return True
        end = self.hard_end if rounds < _LEAST_ROUNDS else self.end
        return self.clock() + size.call_s > end

    def _stretch(self, size: _Size, seconds: float) -> float:
        count = int(min(_MOST_CALLS, max(1, round(seconds / max(size.call_s, 1e-6)))))
        if count >= _DISTURBED:
            _wait_for(self.step(size.iterator))
            count -= 1
        begin = self.clock()
        times = []
        for _ in range(count):
            before = self.clock()
            logs = self.step(size.iterator)
            times.append(self.clock() - before)
        _wait_for(logs)
        # A device works on after its calls have returned; on the CPU one that was disturbed is left out.
        typical = float(np.median(times)) if self.on_host else (self.clock() - begin) / count
        size.call_s = typical
        size.calls += count
        return typical


class _Memory:
    """Tells what a size needs: from TensorFlow's allocator on a device, from the process on the host.

    Both know the most that was ever in use. Where that does not rise, a size needed no more than that.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.limit: Maybe = Missing("not known")
        self._now = 0.0
        self._peak = 0.0
        self._known = False
        self.before()

    def before(self) -> None:
        """Note what is in use before a size is run."""
        self._known = self._read()

    def after(self) -> Maybe:
        """Give the most that was in use, where a size has needed more than anything before it."""
        peak = self._peak
        if not self._known or not self._read() or self._peak <= peak:
            return Missing("it needed no more memory than had been in use before")
        source = "TensorFlow's allocator" if self.device else "the process's peak"
        return Quantity(self._peak, "B", source=source, count=1)

    def too_small(self, times: float) -> str:
        """Say whether a batch that is so many times as large may not fit; empty if it surely does."""
        if not self._read():
            return ""
        needs = times * max(0.0, self._peak - self._now)
        if isinstance(self.limit, Missing):
            return ""
        allowed = self.limit.value * (_DEVICE_SHARE if self.device else _MEMORY_SHARE)
        if (self._now if self.device else 0.0) + needs <= allowed:
            return ""
        return (
            f"a batch {times:g} times as large may need {needs / 2**30:.1f} GiB more, which there may not be"
        )

    def _read(self) -> bool:
        if self.device:
            found = gpu.allocated(self.device)
            if isinstance(found, Missing):
                return False
            self._now, self._peak = found
            self.limit = gpu.allocator_limit(self.device)
            return True
        peak = host.peak_memory_bytes()
        if peak is None:
            return False
        self._now, self._peak = float(host.resident_bytes()), float(peak)
        self.limit = Quantity(float(host.free_memory_bytes()), "B", source="free memory of the host")
        return True


def _wait_for(logs: Any) -> None:
    """Make sure that an accelerator has finished what was dispatched."""
    for value in logs.values() if isinstance(logs, dict) else [logs]:
        if hasattr(value, "numpy"):
            value.numpy()

"""The door to the moment at which a batch arrives: a last stage of our own that stamps each element.

Where autotuning is off tf.data keeps no model, and nothing else tells how long a step waited for its batch.

Private names and where they were seen, with what happens when they are gone:

- `map_op._MapDataset(…, use_inter_op_parallelism=False)` (2.16 to 2.21), a map whose function runs in the
  thread that asks for the batch: nothing is stamped, and waits are estimated. The public `Dataset.map` hands
  each call to another thread, which costs a step eight times as much.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tfdiag.compat.tensorflow import tensorflow
from tfdiag.compat.tfdata import is_dataset

__all__ = ["Stamps", "can_be_stamped"]

_SIZE = 4096
"""Stamps kept; they are read every few hundred calls at the latest."""
_OFFSET_TRIES = 5
_COST_TURNS = 4
_COST_CALLS = 30
_CLOCK_STEP_S = 0.5e-3
"""A system clock that moved by more than this between two readings was set, and what it stamped is no use."""

Floats = npt.NDArray[np.float64]


def can_be_stamped(dataset: Any) -> bool:
    """Say whether a last stage would run when a batch is asked for, and at no other time.

    With autotuning the runtime adds a prefetch behind the last stage, and `slack` looks for the caller's own
    prefetch there.
    """
    if not is_dataset(dataset):
        return False
    options = dataset.options()
    return options.autotune.enabled is False and not getattr(options, "experimental_slack", False)


class Stamps:
    """Writes down when batches of a dataset arrive, in the time of a clock of ours."""

    def __init__(self, clock: Callable[[], float]) -> None:
        tf = tensorflow()
        self._clock = clock
        with tf.device("CPU:0"):
            self._ring = tf.Variable(tf.zeros([_SIZE], tf.float64), trainable=False)
            self._taken = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.cost_s = 0.0
        """What the stage adds to a batch, once it was measured."""
        self._read = 0
        self._offset = self._offset_now()

    def stage(self, dataset: Any) -> Any | None:
        """Give the dataset with a stamp at its end, its elements as they are; None where that can't be."""
        tf = tensorflow()
        ring, taken = self._ring, self._taken

        def stamp(*parts: Any) -> Any:
            element = parts if isinstance(dataset.element_spec, tuple) else parts[0]
            tensors = tf.nest.flatten(element, expand_composites=True)
            with tf.device("CPU:0"):
                with tf.control_dependencies(tensors):
                    now = tf.timestamp()
                row = taken.assign_add(1, read_value=True) - 1
                written = tf.raw_ops.ResourceScatterUpdate(
                    resource=ring.handle, indices=row % _SIZE, updates=now
                )
            with tf.control_dependencies([written]):
                given = [tf.identity(tensor) for tensor in tensors]
            return tf.nest.pack_sequence_as(element, given, expand_composites=True)

        try:
            stage = importlib.import_module("tensorflow.python.data.ops.map_op")._MapDataset
            # AutoGraph would write a temporary file to convert what needs no conversion.
            function = tf.autograph.experimental.do_not_convert(stamp)
            staged = stage(dataset, function, use_inter_op_parallelism=False)
            same = staged.element_spec == dataset.element_spec
        except (ImportError, AttributeError, TypeError, ValueError, tf.errors.OpError):
            return None
        # With another spec the train function would be traced once more.
        return staged if same else None

    def read(self) -> Floats:
        """Give when batches arrived since the last reading, newest last; the oldest may be forgotten."""
        taken = int(self._taken.numpy())
        first = max(self._read, taken - _SIZE)
        rows = np.arange(first, taken) % _SIZE
        times: Floats = self._ring.numpy()[rows]
        before, self._offset = self._offset, self._offset_now()
        self._read = taken
        if abs(self._offset - before) > _CLOCK_STEP_S:
            return times[:0]
        return times + self._offset

    def measure_cost(self) -> None:
        """Time batches that cost nothing with the stage and without, taken in a function, as steps do."""
        tf = tensorflow()
        plain = tf.data.Dataset.from_tensors(0).repeat()
        options = tf.data.Options()
        options.autotune.enabled = False
        plain = plain.with_options(options)
        staged = self.stage(plain)
        if staged is None:
            return
        take = tf.function(lambda iterator: iterator.get_next(), autograph=False)
        iterators = [iter(plain), iter(staged)]
        times: list[list[float]] = [[], []]
        for turn in range(2 * _COST_TURNS):
            iterator, taken = iterators[turn % 2], times[turn % 2]
            take(iterator)
            for _ in range(_COST_CALLS):
                begin = self._clock()
                take(iterator)
                taken.append(self._clock() - begin)
        without, with_stage = (float(np.median(series)) for series in times)
        self.cost_s = max(0.0, with_stage - without)

    def _offset_now(self) -> float:
        """Give what must be added to the system's time to have the clock's."""
        best, offset = np.inf, 0.0
        for _ in range(_OFFSET_TRIES):
            begin = self._clock()
            system = time.time()
            end = self._clock()
            if end - begin < best:
                best, offset = end - begin, 0.5 * (begin + end) - system
        return offset

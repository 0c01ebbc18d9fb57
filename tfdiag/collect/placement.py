"""Finds out where the ops of a step run, and how long those that hold it up take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfdiag.collect.op_times import copy_times, op_times, seconds_of_each
from tfdiag.collect.placing import main_device, marks, place, text_layers
from tfdiag.collect.walked import Known, Names
from tfdiag.compat import keras, tensorflow
from tfdiag.compat import placement as door
from tfdiag.compat.op_spans import read_spans
from tfdiag.compat.profiler import Tracer
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["measure_placement", "measure_placement_of_step"]

_NO_ACCELERATOR = "there is no accelerator, so nothing crosses devices"
_CALLS_LEAST = 3
_CALLS_MOST = 10


def measure_placement(
    model: Any,
    make_dataset: Callable[[], Any],
    *,
    batch: int | None,
    first_call_s: float,
    call_s: float,
    tracer: Tracer,
    until: float,
    clock: Callable[[], float],
) -> Placement | Missing:
    """Look at the graph of a model's train function; on an accelerator run it once more to see it cut up."""
    step = keras.make_train_function(model)
    iterator = functools.cache(lambda: iter(make_dataset()))  # most steps have no use for one
    return _Look(
        step=step,
        call=lambda: step(iterator()),
        give=lambda on_iterator: (iterator() if on_iterator else next(iterator()),),
        names=Names(frozenset(door.layer_names(model)), door.optimizer_name(model)),
        batch=batch,
        first_call_s=first_call_s,
        call_s=call_s,
        tracer=tracer,
        until=until,
        clock=clock,
    ).measure()


def measure_placement_of_step(
    train_step: Callable[[Any], Any],
    batch: Any,
    *,
    size: int | None,
    first_call_s: float,
    call_s: float,
    tracer: Tracer,
    until: float,
    clock: Callable[[], float],
) -> Placement | Missing:
    """Do the same for a caller's own step function."""
    return _Look(
        step=train_step,
        call=lambda: train_step(batch),
        give=lambda _: (batch,),
        names=Names(),
        batch=size,
        first_call_s=first_call_s,
        call_s=call_s,
        tracer=tracer,
        until=until,
        clock=clock,
    ).measure()


class _Look:
    def __init__(
        self,
        *,
        step: Any,
        call: Callable[[], Any],
        give: Callable[[bool], tuple[Any, ...]],
        names: Names,
        batch: int | None,
        first_call_s: float,
        call_s: float,
        tracer: Tracer,
        until: float,
        clock: Callable[[], float],
    ) -> None:
        self.step = step
        self.call = call
        self.give = give
        self.names = names
        self.batch = batch
        self.first_call_s = first_call_s
        self.call_s = call_s
        self.tracer = tracer
        self.until = until
        self.clock = clock

    def measure(self) -> Placement | Missing:
        """Place the ops, then time those that are worth it."""
        concrete = door.step_function(self.step)
        if concrete is None:
            return Missing("the step has no traced graph that says where its ops run")
        several = bool(door.accelerators())
        traced = door.nodes_of(concrete, shapes=several)
        cut: door.Cut | Missing = self._cut(concrete) if several else Missing(_NO_ACCELERATOR)
        known = Known(
            self.names,
            door.variables_of(concrete),
            self.batch,
            door.has_kernel,
            door.python_function,
        )
        if several and isinstance(cut, Missing):
            # Without the parts nothing is known of devices, and what is not known is not on the CPU.
            found = replace(place(traced, (), known), devices=(), copies_missing=cut.reason)
        else:
            found = place(traced, () if isinstance(cut, Missing) else cut.parts, known)
            found = replace(found, copies_missing=cut.reason if isinstance(cut, Missing) else "")
        if not found.ops and not any(copy.purpose in ("inside", "variable") for copy in found.copies):
            return found
        return self._timed(traced, found, several)

    def _cut(self, concrete: Any) -> door.Cut | Missing:
        if self.clock() + self.first_call_s > self.until:
            return Missing("the budget left no time to see the step's graph cut up")
        on_iterator = door.takes_iterator(concrete)
        tf = tensorflow.tensorflow()
        try:
            return door.cut_up(concrete, lambda: self.give(on_iterator))
        except (tf.errors.OpError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            return Missing(f"the step's graph could not be cut up: {(str(error).splitlines() or ['?'])[0]}")

    def _timed(self, traced: Any, found: Placement, several: bool) -> Placement:
        """Trace some calls, and say how long the ops that were found hold them up."""
        if self.clock() + (1 + _CALLS_LEAST) * self.call_s > self.until:
            return replace(found, times_missing="the budget left no time to trace the step")
        _wait_for(self.call())
        if missing := self.tracer.start(device=several, all_ops=True):
            return replace(found, times_missing=missing.reason)
        calls = 0
        spans: Any = Missing("no call was traced")
        try:
            while calls < _CALLS_MOST and (calls < _CALLS_LEAST or self.clock() < self.until):
                _wait_for(self.call())
                calls += 1
        finally:
            spans = self.tracer.stop_with(read_spans)
        if isinstance(spans, Missing):
            return replace(found, times_missing=spans.reason)
        if several and not spans.kernels and not main_device(found.devices).startswith("/CPU"):
            return replace(found, times_missing="the trace holds no kernels of the accelerator")
        marked = marks(traced, found.ops)
        layers = text_layers(traced, found.ops, self.names)
        each = seconds_of_each(spans, marked, calls)
        source = "trace of replayed calls"
        return replace(
            found,
            ops=tuple(
                replace(op, per_call_s=Quantity(each[op.name, op.op], "s", source=source, count=calls))
                if (op.name, op.op) in each
                else op
                for op in found.ops
            ),
            times=op_times(spans, {**layers, **{at: op.kind for at, op in marked.items()}}, calls),
            copy_times=copy_times(spans, calls),
        )


def _wait_for(logs: Any) -> None:
    """Make sure that an accelerator has finished what was dispatched."""
    for value in logs.values() if isinstance(logs, dict) else [logs]:
        if hasattr(value, "numpy"):
            value.numpy()

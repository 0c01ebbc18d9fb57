"""The phase that looks at the model: its parts, what a batch needs of them, and what they cost."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from tfdiag.collect.causes import root_cause
from tfdiag.collect.layers import model_facts
from tfdiag.collect.loops import Parts, parts_of
from tfdiag.collect.metric_cost import measure_metric_cost
from tfdiag.collect.padding import Given, given_in, measure_lengths, padding_of, worth_timing
from tfdiag.collect.part_times import PartTime, Slowdown, part_times, times_of_ops, unseen_time
from tfdiag.collect.phases import input_dataset, reads_once
from tfdiag.collect.replay import resident
from tfdiag.collect.session import Session
from tfdiag.collect.turns import part_of_rest
from tfdiag.collect.walked import Names
from tfdiag.collect.without import Without
from tfdiag.collect.worker import Worker
from tfdiag.compat import keras, keras_parts, tensorflow
from tfdiag.compat import placement as door
from tfdiag.compat.op_spans import Spans, read_spans
from tfdiag.model.layers import EmbeddingTable, Loop, LoopCost, ModelFacts, Padding, TableCost
from tfdiag.model.measurements import Job, Live, Replay
from tfdiag.model.quantity import Missing, Quantity, value_of

__all__ = ["Look", "look_at_model"]

T = TypeVar("T")

_SHARE = 0.4
_SHARE_BESIDE_INPUT = 0.12
"""Where the step waits for its input: to find out why takes longer, and is worth more."""
_AT_MOST_S = 8.0
_MUCH = 0.25
_CALLS_LEAST = 2
_CALLS_MOST = 8
_TRACE_S = 0.4
"""Loops of many small ops make large traces; two or three calls tell enough of them."""
_TRACE_LEAST_S = 0.6
"""What starting, stopping and reading a trace take, whatever is in it."""
_TABLE_LEAST = 2**18
"""Bytes of a table from which on going over all of it may be noticed."""
_FORWARD = 5.0
"""An eager run forwards may take so many calls of the train function."""
_BATCHES = 6
_MATTERS = 0.1
"""Of the job's step: what is less of it is no problem, whatever it consists of."""
_HARDLY = 0.03
"""Of a call: what the trace shows to take less is not timed by turns."""
_SOURCE = "trace of replayed calls"
_FAILURES = (
    ValueError, TypeError, RuntimeError, AttributeError, NotImplementedError, LookupError, OSError,
    StopIteration, ArithmeticError, AssertionError,
)  # fmt: skip
"""What the caller's own layers may raise; a part that fails is a gap, and the others stay."""


def look_at_model(
    session: Session, worker: Worker, job: Job, batch: Any, live: Live | Missing, replayed: Replay | Missing
) -> ModelFacts | Missing:
    """Say what the model consists of, and what it costs where that may matter."""
    if not keras.flavour(session.request.model):
        return Missing("there is no Keras model in this loop")
    session.say("looking at the model")
    with session.phase("the model"):
        part = _SHARE_BESIDE_INPUT if _waits(live) else _SHARE
        until = session.deadline.share(part, _AT_MOST_S)
        look = Look(session, job, batch, live, replayed, until)
        found: ModelFacts | Missing = session.guarded(worker, look.facts, "looking at the model")
        return found


class Look:
    """Looks at one model, on one batch of its job."""

    def __init__(
        self,
        session: Session,
        job: Job,
        batch: Any,
        live: Live | Missing,
        replayed: Replay | Missing,
        until: float,
    ) -> None:
        self.session = session
        self.request = session.request
        self.clock = session.request.clock
        self.job = job
        self.batch = batch
        self.until = until
        self.first_call_s = 0.0 if isinstance(live, Missing) else max(live.duration_s[:1], default=0.0)
        self.replayed = replayed
        self.call_s = 0.0 if isinstance(replayed, Missing) else min(replayed.call_s, default=0.0)
        self.several = bool(door.accelerators())
        self.typical_s = self.call_s
        if isinstance(replayed, Replay) and replayed.call_s:
            self.typical_s = float(np.median(replayed.call_s))
            if isinstance(live, Live) and live.duration_s and not self.several:
                # A device works on after the live call has returned, so only the replay tells there.
                # Either may have met a slow moment of the machine, and the job does nothing less.
                self.typical_s = min(self.typical_s, float(np.median(live.duration_s)))
        starts = () if isinstance(live, Missing) else live.start_s
        period = float(np.median(np.diff(starts))) if len(starts) > 2 else 0.0
        self.matters = self.call_s >= _MATTERS * period
        self.beside_loops_s: dict[str, float] = {}
        """Of a call, in the other ops of a layer that loops, as far as the trace shows them."""

    def facts(self) -> ModelFacts | Missing:
        """Go from what costs nothing to what takes time; whatever fails leaves the rest as it is."""
        found = model_facts(self.request.model)
        if self.batch is None or isinstance(self.replayed, Missing):
            why = self.replayed.reason if isinstance(self.replayed, Missing) else "there is no batch"
            return replace(
                found,
                batch_missing=why,
                graph_missing=why,
                metric_cost=Missing(why),
                table_cost=Missing(why),
                times_missing=why,
            )
        found, parts = self._with_graph(found)
        found, given = self._with_batch(found)
        if not self.matters:
            why = "next to what else the step takes, its ops hardly count"
            return replace(found, times_missing=why, metric_cost=Missing(why), table_cost=Missing(why))
        found = self._with_times(found, parts)
        found = replace(found, table_cost=self._table_cost(found))
        found = replace(found, loop_costs=self._loop_costs(found))
        found = self._with_padding(found, given)
        return replace(found, metric_cost=self._metric_cost(found))

    def _tried(self, what: str, work: Callable[[], T]) -> T | Missing:
        if self.session.stopped_hard or self.clock() >= self.until:
            return Missing("the budget left no time for it")
        try:
            return work()
        except (tensorflow.tensorflow().errors.OpError, *_FAILURES) as error:
            return Missing(f"{what} failed: {root_cause(error)}")

    # The graph -----------------------------------------------------------------------------------------

    @functools.cached_property
    def step(self) -> Any:
        """Give the train function, or the caller's own step."""
        own = self.request.train_step
        return keras.make_train_function(self.request.model) if own is None else own

    def _dataset(self) -> Any:
        return resident(self.request.model, self.batch, self.session.element_spec)

    @functools.cached_property
    def call(self) -> Callable[[], Any]:
        """Give one call of it on the batch that was kept."""
        step = self.step
        if self.request.train_step is not None:
            return lambda: step(self.batch)
        iterator = iter(self._dataset())
        return lambda: step(iterator)

    def _with_graph(self, found: ModelFacts) -> tuple[ModelFacts, Parts]:
        if self.job.run_eagerly:
            return replace(found, graph_missing="an eager step has no graph"), Parts()

        def work() -> Parts | Missing:
            concrete = door.step_function(self.step)
            if concrete is None:
                return Missing("the step has no traced graph")
            large = [table for table in found.embeddings if table.trainable and table.bytes >= _TABLE_LEAST]
            model = self.request.model
            names = Names(frozenset(door.layer_names(model)), door.optimizer_name(model))
            return parts_of(
                door.nodes_of(concrete, shapes=bool(large)),
                names,
                recurrent=[each.layer for each in found.recurrent],
                tables=large,
            )

        parts = self._tried("looking at the graph of the step", work)
        if isinstance(parts, Missing):
            return replace(found, graph_missing=parts.reason), Parts()
        return (
            replace(
                found,
                loops=parts.loops,
                embeddings=tuple(
                    replace(each, whole_ops=len(parts.tables.get(each.layer, ())))
                    for each in found.embeddings
                ),
                recurrent=tuple(replace(each, fused=each.layer in parts.fused) for each in found.recurrent),
            ),
            parts,
        )

    # What a batch holds --------------------------------------------------------------------------------

    def _with_batch(self, found: ModelFacts) -> tuple[ModelFacts, list[Given]]:
        masking = any(each.cls == "Masking" for each in found.layers)
        if not found.embeddings and not masking:
            return found, []
        if self.job.replicas > 1:
            return replace(found, batch_missing="the batch is spread over several replicas"), []
        if self.clock() + _FORWARD * self.call_s > self.until:
            return replace(found, batch_missing="a run forwards would not fit into the budget"), []
        given = self._tried("a run forwards", lambda: given_in(self.request.model, self.batch))
        if isinstance(given, Missing):
            return replace(found, batch_missing=given.reason), []
        missing = "" if given else "the model gives its embeddings nothing that can be looked at"
        return (
            replace(
                found,
                embeddings=tuple(_used(each, given) for each in found.embeddings),
                batch_missing=missing,
            ),
            given,
        )

    def _with_padding(self, found: ModelFacts, given: list[Given]) -> ModelFacts:
        seen: dict[tuple[Any, ...], Padding] = {}
        for each in given:
            padding = self._tried("counting padding", functools.partial(self._padding_of, each))
            # Several tables that look up the same ids have the same padding.
            if isinstance(padding, Padding):
                seen.setdefault((padding.side, padding.value, padding.length, padding.row_length), padding)
        if not seen:
            return found
        most = max(seen.values(), key=lambda padding: padding.length - padding.row_length)
        rest = [padding for padding in seen.values() if padding is not most]
        return replace(found, padding=(self._at_lengths(most), *rest))

    def _padding_of(self, given: Given) -> Padding | None:
        return padding_of(given, self.batch, self._others())

    def _others(self) -> Iterator[Any]:
        """Read some more batches of the input, where it can be read again."""
        if self.request.source.one_shot or reads_once(self.session):
            return
        dataset, close = input_dataset(self.session)
        try:
            if dataset is not None:
                # The first one is the batch that was kept.
                for batch in itertools.islice(dataset, 1, _BATCHES):
                    yield batch
                    if self.session.stopped_hard or self.clock() >= self.until:
                        return
        finally:
            close()

    def _at_lengths(self, padding: Padding) -> Padding:
        if not worth_timing(padding):
            return replace(padding, calls_missing="there is little padding")
        if self.job.run_eagerly or self.request.train_step is not None:
            return replace(padding, calls_missing="only a step that Keras compiles is timed at other lengths")
        timed = self._tried(
            "timing the step at other lengths",
            lambda: measure_lengths(
                self.request.model,
                self.batch,
                self.session.element_spec,
                padding,
                first_call_s=self.first_call_s,
                call_s=self.call_s,
                until=self.until,
                turns_until=self._part_of_rest(2),
                clock=self.clock,
                should_stop=lambda: self.session.stopped_hard,
            ),
        )
        calls, missing = ((), timed.reason) if isinstance(timed, Missing) else timed
        return replace(padding, calls=calls, calls_missing=missing)

    # What parts cost -----------------------------------------------------------------------------------

    def _with_times(self, found: ModelFacts, parts: Parts) -> ModelFacts:
        # On a CPU there is no other way to go over time, and nothing to say of what it takes.
        loops = [each for each in parts.loops if self.several or each.kind != "recurrent"]
        slow = {each.layer for each in found.recurrent if self.several and each.off and not each.fused}
        if not loops and not slow and not parts.tables:
            return found
        need = _TRACE_LEAST_S + (_CALLS_LEAST + 1) * self.call_s
        if self.clock() + need > self.until:
            return replace(found, times_missing="the budget left no time to trace the step")
        traced = self._tried("tracing the step", self._trace)
        if isinstance(traced, Missing):
            return replace(found, times_missing=traced.reason)
        spans, calls, slowed = traced
        undone = Slowdown(slowed, self.typical_s, evenly=bool(spans.kernels))

        def small(seconds: float) -> Quantity:
            value, low, high = undone.off_small(seconds)
            return Quantity(value, "s", low, high, source=_SOURCE, count=calls)

        def of_loop(name: str) -> str | None:
            return _loop_of(name, parts.loops)

        def with_others(time: PartTime) -> Quantity:
            ends = (time.alone_s + time.beside_s, time.alone_s, time.alone_s + time.beside_most_s)
            value, low, high = (undone.off_large(end) for end in ends)
            return Quantity(value, "s", low, high, source=_SOURCE, count=calls)

        of_loops = part_times(spans, of_loop, calls, loops=True)
        of_tables = {layer: part_times(spans, _among(names), calls) for layer, names in parts.tables.items()}

        def of_layer(name: str) -> str | None:
            # A layer's cell is a layer too, with a name of its own.
            return next((layer for layer in parts.names.layers_around(name) if layer in slow), None)

        looping = {each.layer for each in loops if each.layer}

        def of_rest(name: str) -> str | None:
            if of_loop(name) is not None:
                return None
            return next((layer for layer in parts.names.layers_around(name) if layer in looping), None)

        rest = times_of_ops(spans, of_rest, calls)
        self.beside_loops_s = {layer: undone.off_large(seconds) for layer, seconds in rest.items()}
        of_layers = part_times(spans, of_layer, calls)
        hidden = {each.name for each in parts.loops if each.name not in of_loops}
        unseen = unseen_time(spans, of_loop, len(hidden), calls) if hidden and not spans.kernels else None
        each_unseen = None if unseen is None else small(unseen / len(hidden))
        missing = any(each.name in hidden for each in loops) and unseen is None
        return replace(
            found,
            times_missing="the trace does not show the ops of some loops: XLA compiles them"
            if missing
            else "",
            loops=tuple(
                _timed(each, time, small(time.alone_s), calls)
                if (time := of_loops.get(each.name))
                else each
                if each_unseen is None
                else replace(each, alone=each_unseen)
                for each in found.loops
            ),
            embeddings=tuple(
                replace(each, took=with_others(times["table"]))
                if (times := of_tables.get(each.layer))
                else each
                for each in found.embeddings
            ),
            recurrent=tuple(
                replace(each, alone=small(of_layers[each.layer].alone_s)) if each.layer in of_layers else each
                for each in found.recurrent
            ),
        )

    def _trace(self) -> tuple[Spans, int, float] | Missing:
        call, tracer = self.call, self.session.tracer
        _wait_for(call())
        if missing := tracer.start(device=self.several, all_ops=True):
            return missing
        took: list[float] = []
        end = min(self.until, self.clock() + _TRACE_S)
        spans: Spans | Missing = Missing("no call was traced")
        try:
            while len(took) < _CALLS_MOST and (len(took) < _CALLS_LEAST or self.clock() < end):
                begin = self.clock()
                _wait_for(call())
                took.append(self.clock() - begin)
        finally:
            spans = tracer.stop_with(read_spans)
        return spans if isinstance(spans, Missing) else (spans, len(took), float(np.median(took)))

    def _metric_cost(self, found: ModelFacts) -> Any:
        if not found.metrics:
            return Missing("the model has no metrics beside its loss")
        if self.job.run_eagerly or self.request.train_step is not None:
            return Missing("only a step that Keras compiles is timed without its metrics")
        return self._tried(
            "timing the step without its metrics",
            lambda: measure_metric_cost(self.request.model, self._without()),
        )

    def _table_cost(self, found: ModelFacts) -> TableCost | Missing:
        """Time the step with updates of single rows: what goes over a table also empties the caches."""
        tables = [each for each in found.embeddings if each.trainable and each.whole_ops]
        if not tables:
            return Missing("no table is updated as a whole")
        if self.job.run_eagerly or self.request.train_step is not None or self.several:
            return Missing("only a step that Keras compiles for the CPU is timed with other updates")
        took = [each.took.value for each in tables if isinstance(each.took, Quantity)]
        if len(took) == len(tables) and max(took) < _HARDLY * self.typical_s:
            return Missing("the tables take next to no time")
        shapes = frozenset((each.rows, each.dim) for each in tables)
        step = self._without()

        def work() -> TableCost | Missing:
            if not step.fits():
                return Missing("to trace the step once more would not fit into the budget")
            optimizers = keras_parts.optimizers_of(self.request.model)
            return TableCost(
                *step.timed(keras_parts.updating_used_rows(optimizers, shapes), self._part_of_rest(4))
            )

        return self._tried("timing the step with updates of single rows", work)

    def _loop_costs(self, found: ModelFacts) -> tuple[LoopCost, ...]:
        """Time the step with ready results in the place of layers that loop.

        The trace slows small ops down by nobody knows how much, and leaves most of them out.
        """
        if self.job.run_eagerly or self.request.train_step is not None or self.several or found.times_missing:
            return ()  # without a trace nobody knows what else the layers do
        took: dict[str, float] = {}
        for loop in found.loops:
            took[loop.layer] = took.get(loop.layer, 0.0) + value_of(loop.alone, self.typical_s)
        # Slow for another reason, or no finding here: a stand-in would leave those out as well.
        others = {loop.layer for loop in found.loops if loop.kind == "recurrent" or loop.calls_python} | {""}
        worth = [each for each, s in took.items() if each not in others and s >= _HARDLY * self.typical_s]
        layers = keras_parts.layers_named(self.request.model, worth)
        costs = []
        for at, (name, layer) in enumerate(layers.items()):
            # Padding and metrics come after.
            end = self._part_of_rest(2 + len(layers) - at)
            work = functools.partial(self._without_loop, layer, end)
            timed = self._tried("timing the step without a loop", work)
            if not isinstance(timed, Missing):
                costs.append(LoopCost(name, *timed, rest_s=self.beside_loops_s.get(name, 0.0)))
        return tuple(costs)

    def _without_loop(self, layer: Any, end: float) -> tuple[tuple[float, ...], tuple[float, ...]] | Missing:
        step = self._without()
        if not step.fits():
            return Missing("to trace the step once more would not fit into the budget")
        return step.timed(keras_parts.with_ready_results(layer), end)

    def _part_of_rest(self, parts: int) -> float:
        return part_of_rest(parts, self.until, self.clock)

    def _without(self) -> Without:
        return Without(
            self.request.model,
            self._dataset,
            first_call_s=self.first_call_s,
            call_s=self.call_s,
            until=self.until,
            clock=self.clock,
            should_stop=lambda: self.session.stopped_hard,
        )


def _waits(live: Live | Missing) -> bool:
    """Say whether the job spends a good part of its time on waiting for input, as far as that is known."""
    if isinstance(live, Missing) or len(live.start_s) < 3:
        return False
    waited = float(np.nansum(live.wait_s[1:-1]))
    return waited > _MUCH * (live.start_s[-1] - live.start_s[1])


def _used(table: EmbeddingTable, given: list[Given]) -> EmbeddingTable:
    mine = [each.values.reshape(-1) for each in given if each.layer == table.layer]
    if not mine:
        return table
    ids = np.concatenate(mine)
    return replace(
        table,
        ids=Quantity(float(len(ids)), "ids", source="one batch"),
        rows_used=Quantity(float(len(np.unique(ids))), "rows", source="one batch"),
    )


def _loop_of(name: str, loops: tuple[Loop, ...]) -> str | None:
    for loop in loops:
        if name == loop.name or name.startswith(loop.name + "/"):
            return loop.name
    return None


def _among(names: frozenset[str]) -> Callable[[str], str | None]:
    return lambda name: "table" if name in names else None


def _timed(loop: Loop, time: PartTime, alone: Quantity, calls: int) -> Loop:
    rounds = Quantity(time.repeats, "iterations", source=_SOURCE, count=calls)
    return replace(
        loop,
        alone=alone,
        iterations=rounds if time.repeats else loop.iterations,
        op_s=Quantity(time.op_s, "s", source=_SOURCE, count=calls),
    )


def _wait_for(logs: Any) -> None:
    """Make sure that an accelerator has finished what was dispatched."""
    for value in logs.values() if isinstance(logs, dict) else [logs]:
        if hasattr(value, "numpy"):
            value.numpy()

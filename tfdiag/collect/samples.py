"""What each stage of a tf.data pipeline costs by itself: prefixes of it, run alone on one thread.

The runtime's model tells what a stage took beside everything else that ran. Here a copy of the pipeline has
nothing that works ahead, is cut behind a stage, and is run alone: the difference between a stage and its
inputs is what the stage costs, in wall and in processor time. This works as well where tf.data keeps no
model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tfdiag.compat import host, stderr, tensorflow
from tfdiag.compat.tfdata import same_content, same_values
from tfdiag.compat.tfgraph import CannotEdit, DatasetGraph
from tfdiag.model.pipeline import Node, Sample, streams
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["Samples", "call_overhead", "sample_stages"]

_PARTS = 12
"""Windows that a sample is made of at best: enough to see how it spreads."""
_PARTS_LEAST = 3
_SAMPLE_S = 0.4
_SAMPLE_LEAST_S = 0.08
_SHARE = 0.5
"""Of the time for a stage: the rest goes into building it and into its first elements."""
_CLOSER_S = 1.0
_CLOSER_STAGES = 3
_WINDOW_S = 0.02
_TOO_LONG = 3.0
_SETTLE_S = 0.02
_SETTLE_LOOKS = 40
_WINDOW_MOST = 4096
_HELD_BYTES = 16 << 20
"""Of the caller's data, at most, in one window."""
_CACHED_BYTES = 32 << 20
"""In all caches of a pipeline together; or two elements, if these are more."""
_TOGETHER_BYTES = 64 << 20
"""Of the caller's data, at most, that several threads make at once."""
_CACHED_LEAST = 4
_CACHED_MOST = 1024
_FILL_S = 0.3
_WORTH = 0.15
"""Of the whole: a function that takes less is not looked at any closer."""
_NO_TIME = "the budget left no time for every stage"


@dataclass(slots=True)
class Samples:
    """What was sampled, and why no more."""

    samples: list[Sample] = field(default_factory=list)
    missing: str = ""
    overhead: Maybe = Missing("not measured")


def sample_stages(
    graph: DatasetGraph,
    *,
    cores: int,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
    longest_s: float = 0.0,
) -> Samples:
    """Sample the stages of a pipeline, as many as time allows: the whole first, then from the source on.

    `longest_s` is what an element of it is known to take: none is begun that would not come in time.
    """
    found = Samples()
    run = _Runner(clock, until, should_stop, longest_s)
    try:
        serial = graph.serial()
    except CannotEdit as error:
        return Samples(missing=str(error))
    run.settle()
    working = [node for node in graph.nodes if not node.idle]
    # The whole tells most, then what lies below it.
    last = working[-1:] if working else []
    for left, node in enumerate([*last, *working[:-1]]):
        if run.over():
            found.missing = found.missing or _NO_TIME
            break
        run.spread(len(working) - left)
        _add(found, "prefix", serial, node, run)
    found.overhead = call_overhead(run)
    run.spread(1)
    for node in _costly(working, found.samples):
        if run.over():
            break
        if node.function is not None and cores > 1 and _fits(found.samples, node, cores):
            _add_parallel(found, serial, node, cores, run)
        batch = _batched_by(graph, node)
        if batch is not None and not run.over():
            _add_batched(found, serial, node, batch, run)
    _add_interleaved(found, serial, working, cores, run)
    _look_closer(found, serial, working, cores, run)
    return found


def _add_parallel(found: Samples, serial: DatasetGraph, node: Node, cores: int, run: _Runner) -> None:
    """Sample a function on all cores."""
    try:
        if "FlatMap" in node.op or "Interleave" in node.op:
            spread = serial.interleave(node.id, cycle=cores, calls=cores, deterministic=False)
        else:
            spread = serial.parallel(node.id, calls=cores, deterministic=False)
    except CannotEdit:
        return
    _add(found, "parallel", spread, node, run, threads=cores)


def _add_interleaved(
    found: Samples, serial: DatasetGraph, working: Sequence[Node], cores: int, run: _Runner
) -> None:
    """Read several files at a time where that costs most: whether storage stands it is seen only so."""
    for top in _ranked(working, found.samples):
        alone = next(s for s in found.samples if s.node == top.id)
        waiting = max(0.0, 1 - alone.cpu_s / max(1e-9, sum(alone.wall_s)))
        count = streams(_files(serial, top), waiting, cores)
        if run.over() or count < 2 or not _fits(found.samples, top, count):
            return
        try:
            several = serial.interleave(top.id, cycle=count, calls=count).with_options(threads=count)
        except CannotEdit:
            continue  # it makes no datasets
        _add(found, "interleaved", several, top, run, threads=count)
        return


def _files(graph: DatasetGraph, node: Node) -> int | None:
    """Give how many files or datasets a node reads in a pass, None where that is not known."""
    if node.files is not None:
        return node.files[0]
    below = next((other for other in graph.nodes if node.inputs == (other.id,)), None)
    return below.cardinality if below is not None and (below.cardinality or 0) > 0 else None


def _look_closer(
    found: Samples, serial: DatasetGraph, working: Sequence[Node], cores: int, run: _Runner
) -> None:
    """Spend what time is left on the stages that cost most, for their costs decide what is said.

    A machine has slow seconds: of two looks at a stage that computes, the quicker one is the truer.
    """
    costly = _ranked(working, found.samples)[:_CLOSER_STAGES]
    several = {sample.node for sample in found.samples if sample.kind == "parallel"}
    looks = [(node, kind) for node in costly for kind in ("prefix", "parallel")]
    looks = [(node, kind) for node, kind in looks if kind == "prefix" or node.id in several]
    for left, (node, kind) in zip(range(len(looks), 0, -1), looks, strict=True):
        remaining = run.until - run.clock()
        if run.over() or remaining < left * _SAMPLE_LEAST_S:
            return
        run.sample_s = min(_CLOSER_S / len(looks), _SHARE * remaining / left)
        again = Samples()
        if kind == "prefix":
            _add(again, "prefix", serial, node, run)
        else:
            _add_parallel(again, serial, node, cores, run)
        for sample in again.samples:
            first = (old for old in found.samples if old.node == node.id and old.kind == kind)
            at = found.samples.index(next(first))
            if _truer(sample, found.samples[at]):
                found.samples[at] = sample


def _truer(sample: Sample, than: Sample) -> bool:
    if sample.cpu_s < 0.5 * sum(sample.wall_s):  # it waits, now and then: the longer look says more
        return sample.elements > than.elements
    return _per_element(sample) < _per_element(than)


def _per_element(sample: Sample) -> float:
    return float(np.median(sample.wall_s)) * len(sample.wall_s) / sample.elements


def _add(
    found: Samples, kind: Any, graph: DatasetGraph, node: Node, run: _Runner, *, threads: int = 1
) -> None:
    try:
        sample = run.sample(kind, graph.cut(node.id), node)
    except CannotEdit as error:
        found.missing = found.missing or str(error)
        return
    except tensorflow.tensorflow().errors.OpError as error:
        found.missing = found.missing or f"{node.label} can't be run alone: {str(error).splitlines()[0]}"
        return
    if sample is not None:
        found.samples.append(replace(sample, threads=threads))
    elif run.over():
        found.missing = found.missing or _NO_TIME


def _add_batched(found: Samples, serial: DatasetGraph, node: Node, batch: Node, run: _Runner) -> None:
    """Sample a function on whole batches, where it takes them and gives the same."""
    size = batch.size or 1
    try:
        swapped, ordered = serial.swap(batch.id), serial.in_order()
        expected = run.first(ordered.cut(batch.id))
        found_instead = run.first(ordered.swap(batch.id).cut(node.id))
        exact = same_values(expected, found_instead)
        if not exact and not same_content(expected, found_instead):
            return
        sample = run.sample("batched", swapped.cut(node.id), node, per_element=size)
    except (CannotEdit, tensorflow.tensorflow().errors.OpError, ValueError, TypeError):
        return  # the function does not take batches, which is an answer
    if sample is not None:
        found.samples.append(replace(sample, exact=exact))


def _fits(samples: Sequence[Sample], node: Node, cores: int) -> bool:
    """Say whether an element for each core, and the one that was handed out, may be held at once."""
    size = next((s.bytes for s in samples if s.node == node.id), None)
    return not isinstance(size, Quantity) or (cores + 1) * size.value <= _TOGETHER_BYTES


def _costly(working: Sequence[Node], samples: list[Sample]) -> list[Node]:
    """Give the nodes with functions that take a good part of the pipeline's time, the costliest first."""
    return [node for node in _ranked(working, samples) if node.function is not None]


def _ranked(working: Sequence[Node], samples: list[Sample]) -> list[Node]:
    """Give the nodes that take a good part of the pipeline's time by themselves, the costliest first."""
    alone = [sample for sample in samples if sample.kind == "prefix"]
    per_element = {s.node: _per_element(s) for s in alone}
    own = {}
    for node in working:
        if node.id not in per_element:
            continue
        below = sum(per_element.get(i, 0.0) for i in node.inputs)
        size = node.size if node.op.endswith("BatchDataset") and node.size else 1
        own[node.id] = max(0.0, per_element[node.id] - below * size)
        # Work below a batch is done for each of its elements.
        for other in own:
            if other != node.id and size > 1:
                own[other] *= size
    whole = sum(own.values())
    return sorted((n for n in working if own.get(n.id, 0.0) > _WORTH * whole), key=lambda n: -own[n.id])


def _batched_by(graph: DatasetGraph, node: Node) -> Node | None:
    """Give the batch right behind a map of single elements."""
    function = node.function
    if function is None or function.python or function.random or "Map" not in node.op:
        return None
    for other in graph.nodes:
        if other.op in ("BatchDataset", "ParallelBatchDataset") and other.inputs == (node.id,):
            return other if (other.size or 0) > 1 else None
    return None


def call_overhead(run: _Runner) -> Maybe:
    """Time what it costs to call a function for one element, whatever it does."""
    if run.over():
        return Missing("the budget left no time for it")
    tf = tensorflow.tensorflow()
    numbers = tf.data.Dataset.range(1 << 40)
    called = numbers.map(tf.autograph.experimental.do_not_convert(lambda value: value + 1))
    costs = []
    for dataset in (numbers, called):
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        iterator = iter(dataset.window(512).with_options(options))
        next(iterator)
        times = []
        for _ in range(12):
            begin = run.clock()
            next(iterator)
            times.append(run.clock() - begin)
        costs.append(float(np.median(times)) / 512)
    return Quantity(max(0.0, costs[1] - costs[0]), "s", source="a map of one addition, alone", count=12 * 512)


class _Runner:
    """Runs parts of a pipeline for a while."""

    def __init__(
        self,
        clock: Callable[[], float],
        until: float,
        should_stop: Callable[[], bool],
        longest_s: float = 0.0,
    ) -> None:
        self.clock = clock
        self.until = until
        self.should_stop = should_stop
        self.longest_s = longest_s
        """What the slowest element took: nothing can end it once it is asked for."""
        self.sample_s = _SAMPLE_S
        self.cached: dict[int, int] = {}
        """Bytes of an element, by cache."""

    def over(self) -> bool:
        return self.should_stop() or self.clock() + self.longest_s >= self.until

    def next(self, iterator: Any) -> Any:
        """Take an element, and remember how long that can take."""
        begin = self.clock()
        element = next(iterator)
        self.longest_s = max(self.longest_s, self.clock() - begin)
        return element

    def settle(self) -> None:
        """Wait until what ran before is at rest: iterators that were let go of may still finish work."""
        for _ in range(_SETTLE_LOOKS):
            before = time.process_time()
            time.sleep(_SETTLE_S)
            if time.process_time() - before < 0.2 * _SETTLE_S or self.over():
                return

    def spread(self, stages: int) -> None:
        """Let the time that is left be enough for so many stages: a stage is known once all below it are."""
        share = _SHARE * (self.until - self.clock()) / stages
        self.sample_s = min(_SAMPLE_S, max(_SAMPLE_LEAST_S, share))

    def room(self, graph: DatasetGraph) -> int:
        """Give how many elements each cache may hold, which can be larger than what comes out at the end."""
        size = 0
        for node in graph.nodes:
            if "Cache" not in node.op:
                continue
            if node.id not in self.cached:
                try:
                    element = self.first(graph.cut(node.id).full_caches(1))
                    self.cached[node.id] = tensorflow.nested_bytes(element)
                except tensorflow.end_of_data():
                    self.cached[node.id] = 0
            size += self.cached[node.id]
        return max(2, _CACHED_BYTES // max(1, size))

    def first(self, graph: DatasetGraph) -> Any:
        """Give the first element, flat."""
        with stderr.without(stderr.PROBING):
            return self.next(iter(_quiet(graph).build(shapeless=True)))

    def sample(self, kind: Any, graph: DatasetGraph, node: Node, *, per_element: int = 1) -> Sample | None:
        """Time equal parts of what comes out of a pipeline, in windows so that Python's share is small."""
        with stderr.without(stderr.PROBING):
            return self._sample(kind, graph, node, per_element)

    def _sample(self, kind: Any, graph: DatasetGraph, node: Node, per_element: int) -> Sample | None:
        room = self.room(graph)
        least = min(_CACHED_LEAST, room)
        begin = self.clock()
        probe = iter(_quiet(graph.full_caches(least)).build())
        try:
            element = self.next(probe)
        except tensorflow.end_of_data():
            return None
        first_s = self.clock() - begin
        size = max(1, tensorflow.nested_bytes(element))
        del element  # or it is held while the next ones are made
        begin = self.clock()
        extra = 0
        while extra < 8 and self.clock() - begin < _WINDOW_S / 2 and not self.over():
            try:
                self.next(probe)
            except tensorflow.end_of_data():
                break
            extra += 1
        each = (self.clock() - begin) / extra if extra else first_s
        del probe
        most = max(1, min(_HELD_BYTES // size, _WINDOW_MOST))
        window = int(max(1, min(most, _WINDOW_S / max(each, 1e-7))))
        # As many as fill a cache in no time, and no more than may be held.
        quick = _FILL_S / max(each, first_s / least, 1e-7)
        cached = int(max(least, min(_CACHED_MOST, room, quick)))
        endless = _quiet(graph.full_caches(cached).forever())
        fill = cached if any("Cache" in each.op for each in graph.nodes) else 1
        window, iterator = self._warmed(endless, window, most, fill)
        walls: list[float] = []
        processor, busy, began = time.process_time(), host.busy_s(), self.clock()
        end = self.clock() + self.sample_s
        last = self.clock()
        while len(walls) < 400 and not self.over():
            self.next(iterator)
            now = self.clock()
            walls.append(now - last)
            last = now
            if now >= end and (len(walls) >= _PARTS_LEAST or now >= end + self.sample_s):
                break
        if not walls:
            return None
        cpu = time.process_time() - processor
        free = _free_cores(busy, host.busy_s(), cpu, self.clock() - began)
        kept = _in_equal_parts(walls)
        return Sample(
            kind=kind,
            node=node.id,
            elements=kept.size * window * per_element,
            wall_s=tuple(float(part) for part in kept.sum(axis=1)),
            cpu_s=cpu * float(kept.sum()) / max(1e-9, sum(walls)),
            first_s=first_s,
            bytes=Quantity(float(size) / per_element, "B", source="the first element"),
            free_cores=free,
        )

    def _warmed(self, graph: DatasetGraph, window: int, most: int, fill: int) -> tuple[int, Any]:
        """Begin to iterate in windows of a good length.

        Smaller ones where the first elements were quicker than the others, larger ones where what is quick
        took long one by one, because each way through Python takes longer than an element.
        """
        while True:
            iterator = iter(graph.windowed(window).build())
            begin = self.clock()
            for _ in range(fill // window + 1):
                if self.over():
                    return window, iterator
                self.next(iterator)
            took = (self.clock() - begin) / (fill // window + 1)
            if window > 1 and took > _TOO_LONG * _WINDOW_S:
                most = max(1, int(window * _WINDOW_S / took))
                window = most
            elif window < most and took < _WINDOW_S / _TOO_LONG:
                window = min(most, int(window * max(2.0, _WINDOW_S / max(took, 1e-7))))
            else:
                return window, iterator


def _in_equal_parts(walls: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Give the last windows in parts of as many, a row each: the median of unequal ones is not its time."""
    parts = min(_PARTS, len(walls))
    return np.array(walls[len(walls) % parts :]).reshape(parts, -1)


def _free_cores(before: float | None, after: float | None, own_s: float, wall_s: float) -> Maybe:
    """Give the cores that were left by other processes."""
    if before is None or after is None or wall_s <= 0:
        return Missing("the platform does not tell what its cores do")
    others = max(0.0, (after - before - own_s) / wall_s)
    left = max(0.0, host.cores() - others)
    return Quantity(left, "cores", source="time in which the cores worked for others")


def _quiet(graph: DatasetGraph) -> DatasetGraph:
    """Let nothing be tuned, fused or added: what is measured is what stands there."""
    return graph.with_options(autotune=False, default_optimizations=False, inject_prefetch=False)

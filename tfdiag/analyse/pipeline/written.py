"""The stages as they were written, with the costs of samples, and with how they run laid over them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tfdiag.analyse.pipeline.caches import behind_full_caches
from tfdiag.analyse.pipeline.counts import count_per_batch, elements_of
from tfdiag.analyse.pipeline.model import Several, StageTime
from tfdiag.analyse.pipeline.names import base_of, matched_stages
from tfdiag.analyse.pipeline.running import (
    SERIAL_FUNCTIONS,
    is_advancing,
    is_serial,
    is_tunable,
    last_stages,
    parallelism_of,
    processing,
    works_ahead,
)
from tfdiag.model.pipeline import Node, Pipeline, Sample, Stage
from tfdiag.model.quantity import Quantity

__all__ = ["from_graph"]


def from_graph(pipeline: Pipeline, order: list[Stage]) -> tuple[StageTime, ...]:
    """Lay the samples over the graph, and what runs over both."""
    before = {stage.id: stage for stage in pipeline.stages_before}
    matched = matched_stages(pipeline.graph, order)
    per_batch = count_per_batch(pipeline.graph, matched, before)
    prefix = _prefixes(pipeline)
    parallel = {s.node: s for s in pipeline.samples if s.kind == "parallel"}
    batched = {s.node: s for s in pipeline.samples if s.kind == "batched"}
    interleaved = {s.node: s for s in pipeline.samples if s.kind == "interleaved"}
    places: dict[int, int] = {}
    found: list[StageTime] = []
    spared = behind_full_caches(pipeline.graph, matched, order)
    for node in pipeline.graph:
        stage = matched.get(node.id)
        times = _own(node, prefix, per_batch)
        whole_s = times.value if times is not None else 0.0
        seconds = 0.0
        if times is None and stage is not None and node.id not in spared and not node.idle:
            # Not sampled, or not what it reads from: then the runtime's own clock is what there is.
            seconds = _by_the_runtime(node, stage, matched, before, per_batch)
        if node.id in spared and times is not None:
            times = _Cost(0.0, 0.0, 0.0, 0.0)
        count = per_batch[node.id]
        calls = _calls(node, per_batch)
        locked = together = None
        if node.id in parallel and node.id in prefix and times is not None:
            together = _together(parallel[node.id], prefix, node, times, per_batch)
        if together is not None and times is not None:
            locked = _locked(together, times)
        several = None
        if node.id in interleaved and node.id not in spared:
            cost = _each(interleaved[node.id])
            threads = float(interleaved[node.id].threads)
            several = Several(threads, cost.value * count, cost.cpu * count, threads)
        fast = None
        if node.id in batched:
            below = sum(prefix[i].value * per_batch[i] for i in node.inputs if i in prefix)
            fast = max(0.0, _each(batched[node.id]).value * count - below)
        places[node.id] = len(found)
        found.append(
            StageTime(
                name=stage.name if stage is not None else node.op.removesuffix("Dataset"),
                label=node.label,
                per_batch_s=times.value if times is not None else seconds,
                low_s=times.low if times is not None else seconds,
                high_s=times.high if times is not None else seconds,
                cpu_per_batch_s=_cpu(node, times) if times is not None else None,
                parallelism=_threads(node, stage, pipeline.sample_threads),
                serial=is_serial(stage) if stage is not None else _written_serial(node),
                id=node.id,
                inputs=tuple(places[i] for i in node.inputs if i in places),
                per_batch=count,
                ratio=sum(per_batch[i] for i in node.inputs) / count if node.inputs and count else 1.0,
                element_bytes=_sample_bytes(pipeline.samples, node),
                asynchronous=works_ahead(stage.name if stage is not None else node.op),
                tunable=is_tunable(stage) if stage is not None else node.parallelism == -1,
                node=node,
                sampled=times is not None,
                timed=times is not None or stage is not None or node.id in spared or node.idle,
                locked=locked,
                together=together,
                interleaved=several,
                batched_s=fast,
                batched_exact=node.id not in batched or batched[node.id].exact,
                calls_per_batch=calls,
                first_s=next((s.first_s for s in pipeline.samples if s.node == node.id), 0.0),
                advancing=is_advancing(stage, before) if stage is not None else None,
                spared_s=whole_s if node.id in spared else 0.0,
            )
        )
    return _with_injected(found, order, matched)


def _by_the_runtime(
    node: Node,
    stage: Stage,
    matched: dict[int, Stage],
    before: dict[int, Stage],
    per_batch: dict[int, float],
) -> float:
    """Give the time that the runtime counted for a batch of a node.

    It may run a map and its batch as one stage, which gives batches: its time is the map's, for that does
    the work.
    """
    fused = [identity for identity, other in matched.items() if other.id == stage.id]
    if len(fused) > 1 and node.function is None:
        return 0.0
    given = min(per_batch[identity] for identity in fused)
    return processing(stage, before) / elements_of(stage, before) * given


_COMPUTES = 0.5
_CORES_FULL = 0.9
"""From this part of the cores on that a function keeps busy on one thread, more threads tell nothing."""


@dataclass(frozen=True, slots=True)
class _Cost:
    """Seconds, for an element or a batch."""

    value: float
    low: float
    high: float
    cpu: float


def _each(sample: Sample) -> _Cost:
    """Give what one element cost; the median of the parts, because a machine has slow moments."""
    parts = sorted(sample.wall_s)
    each = sample.elements / max(1, len(parts))
    middle, total = statistics.median(parts), sum(parts)
    # What waits does so now and then, for the next block of a file: a median would leave that out.
    by_median = sample.cpu_s > 0.5 * total
    value = (middle if by_median else total / len(parts)) / each
    spread = (parts[-1 - len(parts) // 4] - parts[len(parts) // 4]) / each
    cpu = sample.cpu_s * value / total if total > 0 else 0.0  # of the middle part, as the rest of it
    return _Cost(value, max(0.0, value - spread), value + spread, cpu)


def _cpu(node: Node, own: _Cost) -> float:
    """Give the processor time of a stage; one without a function works on one thread, the others spin."""
    return own.cpu if node.function is not None else min(own.cpu, own.value)


def _prefixes(pipeline: Pipeline) -> dict[int, _Cost]:
    """Give the cost of an element of each node with all that lies below it; idle nodes cost nothing."""
    known = {s.node: _each(s) for s in pipeline.samples if s.kind == "prefix"}
    for node in pipeline.graph:
        if node.id not in known and len(node.inputs) == 1 and node.inputs[0] in known and node.idle:
            known[node.id] = known[node.inputs[0]]
    return known


def _own(node: Node, prefix: dict[int, _Cost], per_batch: dict[int, float]) -> _Cost | None:
    """Give what a node costs for a batch, less what lies below it."""
    if node.id not in prefix:
        return None
    if any(i not in prefix for i in node.inputs):
        return None
    count = per_batch[node.id]
    whole = prefix[node.id]
    # A full cache keeps what lies below it from being done again.
    below = [] if base_of(node.op) == "Cache" else [(prefix[i], per_batch[i]) for i in node.inputs]
    value = whole.value * count - sum(cost.value * number for cost, number in below)
    slack = (whole.high - whole.low) / 2 * count + sum((c.high - c.low) / 2 * n for c, n in below)
    cpu = whole.cpu * count - sum(cost.cpu * number for cost, number in below)
    value = max(0.0, value)
    return _Cost(value, max(0.0, value - slack), value + slack, max(0.0, cpu))


def _together(
    sample: Sample, prefix: dict[int, _Cost], node: Node, own: _Cost, per_batch: dict[int, float]
) -> Several | None:
    """Give what a function costs for a batch on all cores; None where what lies below it is the limit."""
    below = [(prefix[i], per_batch[i]) for i in node.inputs if i in prefix]
    if own.value <= 0 or own.value < 0.5 * sum(cost.value * number for cost, number in below):
        return None
    each = _each(sample)
    cpu = each.cpu * per_batch[node.id] - sum(cost.cpu * number for cost, number in below)
    threads = float(max(2, sample.threads))
    free = sample.free_cores.value if isinstance(sample.free_cores, Quantity) else threads
    return Several(threads, each.value * per_batch[node.id], max(0.0, cpu), min(threads, free))


def _locked(together: Several, own: _Cost) -> float | None:
    """Give the part of a function that more threads don't make faster, from a run on all cores."""
    share = min(1.0, max(0.0, together.seconds / own.value))
    # A function that keeps several cores busy by itself can't be spread over as many threads as there are.
    computing = own.cpu / own.value
    cores = together.cores if computing > _COMPUTES else together.threads  # what waits needs no core
    best = min(1.0, max(1.0, computing) / max(1.0, cores))
    if best > _CORES_FULL:
        return None  # the cores are the limit, so a lock would not show
    return min(1.0, max(0.0, (share - best) / (1 - best)))


def _calls(node: Node, per_batch: dict[int, float]) -> float:
    if node.function is None:
        return 0.0
    return per_batch[node.inputs[0]] if node.inputs else per_batch[node.id]


def _sample_bytes(samples: tuple[Sample, ...], node: Node) -> float | None:
    for sample in samples:
        if sample.node == node.id and sample.kind == "prefix" and isinstance(sample.bytes, Quantity):
            return sample.bytes.value
    return float(node.element_bytes) if node.element_bytes else None


def _with_injected(
    found: list[StageTime], order: list[Stage], matched: dict[int, Stage]
) -> tuple[StageTime, ...]:
    """Add the prefetch that the runtime put at the end."""
    known = {stage.id for stage in matched.values()}
    nodes = {stage.id: stage for stage in order}
    for stage in reversed(last_stages(nodes, order[-1].id) if order else []):
        if stage.id not in known and base_of(stage.name) == "Prefetch":
            found.append(
                StageTime(
                    name=stage.name,
                    label="prefetch (added by tf.data)",
                    per_batch_s=0.0,
                    cpu_per_batch_s=0.0,
                    parallelism=1.0,
                    serial=False,
                    inputs=(len(found) - 1,),
                    asynchronous=True,
                    tunable=True,
                )
            )
    return tuple(found)


def _threads(node: Node, stage: Stage | None, cores: int) -> float:
    """Give on how many threads a stage works.

    One that tf.data tunes may have all cores: it counts them, and its model tells where it began, not where
    it has got to.
    """
    if stage is None:
        return _written_parallelism(node)
    running = parallelism_of(stage)
    return max(running, float(cores)) if is_tunable(stage) and works_ahead(stage.name) else running


def _written_parallelism(node: Node) -> float:
    return float(node.parallelism) if node.parallelism and node.parallelism > 0 else 1.0


def _written_serial(node: Node) -> bool:
    return base_of(node.op) in SERIAL_FUNCTIONS

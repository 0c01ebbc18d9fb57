"""The input pipeline as one tree of stages, each with what a batch costs in it.

What was written (the graph), what runs (the runtime's model) and what parts of it cost alone (samples) are
laid over each other: a stage has the name that the caller knows, the parallelism that the runtime gave it,
and the cost of a sample, or of the runtime's model where nothing was sampled.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from tfdiag.model.pipeline import Function, Node, Pipeline, Sample, Stage
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["PipelineModel", "StageTime", "base_of", "filling", "label_of", "pipeline_model"]

_SERIAL_FUNCTIONS = ("Map", "Filter", "FlatMap", "Interleave")
_SOURCES = ("TFRecord", "TextLine", "FixedLengthRecord", "Generator")


@dataclass(frozen=True, slots=True)
class StageTime:
    """One stage, and what a batch costs in it."""

    name: str
    """The runtime's name, or the operation's where the runtime does not tell."""
    label: str
    """As the caller wrote it, where that is known."""
    per_batch_s: float
    """Time that the stage needs for a batch, on one thread; of the runtime's model, on all of its threads."""
    parallelism: float
    serial: bool
    """A stage with a function that works on one element after the other."""
    id: int = -1
    """Of the node in the graph; -1 for a stage that only the runtime knows."""
    inputs: tuple[int, ...] = ()
    """Positions, in `PipelineModel.stages`, of the stages that it reads from."""
    cpu_per_batch_s: float | None = None
    """Processor time in it for a batch; None where nothing was sampled."""
    low_s: float = 0.0
    high_s: float = 0.0
    """Within these the time for a batch lies."""
    per_batch: float = 1.0
    """Elements that leave it for each batch."""
    ratio: float = 1.0
    """Elements that go in for each that comes out."""
    element_bytes: float | None = None
    asynchronous: bool = False
    """It works ahead of whoever reads from it."""
    tunable: bool = False
    buffered: float = 0.0
    node: Node | None = None
    sampled: bool = False
    locked: float | None = None
    """The part of its function that only one thread at a time can do (the interpreter's lock, or one of its
    own), from a sample on all cores; None where that was not sampled."""
    batched_s: float | None = None
    """Time for a batch of its function on whole batches, where it takes them."""
    spared_s: float = 0.0
    """What a batch would cost in it, were it not for a full cache behind it."""
    calls_per_batch: float = 0.0
    """How often its function is called for a batch."""
    first_s: float = 0.0
    """Time to its first element."""
    advancing: bool | None = None
    """It gave elements between the two readings of what runs; None where there was one, or none."""

    @property
    def base(self) -> str:
        """Give what kind of stage it is, without version: `Map`, `Batch`, `Generator`."""
        return base_of(self.name)

    @property
    def function(self) -> Function | None:
        """Give the caller's function in it."""
        return self.node.function if self.node is not None else None

    @property
    def waiting(self) -> float | None:
        """Give the part of its time in which no processor works for it."""
        if self.cpu_per_batch_s is None or self.per_batch_s <= 0:
            return None
        return max(0.0, 1.0 - self.cpu_per_batch_s / self.per_batch_s)


@dataclass(frozen=True, slots=True)
class PipelineModel:
    """The pipeline that runs."""

    stages: tuple[StageTime, ...]
    """Source first."""
    prefetches: bool
    """Its last stage works ahead of the consumer."""
    written: tuple[str, ...]
    python_functions: tuple[str, ...]
    from_model: bool
    """The stages are the runtime's own; otherwise only what the caller wrote is known."""
    sampled: bool = False
    """Stages have costs of their own, measured alone."""
    autotune: bool = True
    overhead_s: float | None = None
    """Of one call of a function, whatever it does."""

    @property
    def slowest(self) -> StageTime | None:
        """Give the stage that limits the rate."""
        return max(self.stages, key=lambda stage: stage.per_batch_s / stage.parallelism, default=None)

    @property
    def known(self) -> bool:
        """Say whether the stages have times."""
        return self.from_model or self.sampled

    @property
    def chain(self) -> str:
        """Give the pipeline in one line, as the caller wrote it."""
        return " → ".join(self.written)

    def position(self, stage: StageTime) -> int:
        """Give the place of a stage."""
        return next(index for index, other in enumerate(self.stages) if other is stage)

    def upstream(self, stage: StageTime) -> list[StageTime]:
        """Give everything that a stage reads from, directly or not."""
        found: list[StageTime] = []
        waiting = list(stage.inputs)
        while waiting:
            other = self.stages[waiting.pop()]
            if other not in found:
                found.append(other)
                waiting.extend(other.inputs)
        return found

    def downstream(self, stage: StageTime) -> list[StageTime]:
        """Give what reads from a stage, up to the batch that comes out."""
        found: list[StageTime] = []
        position = self.position(stage)
        for index in range(position + 1, len(self.stages)):
            if any(i == position or self.stages[i] in found for i in self.stages[index].inputs):
                found.append(self.stages[index])
        return found

    def changed(self, stage: StageTime, **changes: object) -> PipelineModel:
        """Give the pipeline with one stage changed."""
        position = self.position(stage)
        stages = list(self.stages)
        stages[position] = replace(stage, **changes)  # type: ignore[arg-type]  # names are checked by replace
        return replace(self, stages=tuple(stages))


def pipeline_model(pipeline: Pipeline | Missing) -> PipelineModel | Missing:
    """Give the stages with their times."""
    if isinstance(pipeline, Missing):
        return pipeline
    running = bool(pipeline.stages) and pipeline.output is not None
    ends_ahead = bool(pipeline.written) and pipeline.written[-1].startswith("prefetch")
    prefetches = ends_ahead or pipeline.prefetch_injected
    order: list[Stage] = []
    if running:
        assert pipeline.output is not None
        nodes = {stage.id: stage for stage in pipeline.stages}
        order = _source_first(nodes, pipeline.output)
        prefetches = any(_works_ahead(stage.name) for stage in _last_stages(nodes, pipeline.output))
    sampled = any(sample.kind == "prefix" for sample in pipeline.samples)
    stages = _from_graph(pipeline, order) if sampled else _from_runtime(pipeline, order)
    return PipelineModel(
        stages=stages,
        prefetches=prefetches,
        written=pipeline.written,
        python_functions=pipeline.python_functions,
        from_model=running,
        sampled=sampled,
        autotune=pipeline.autotune,
        overhead_s=pipeline.call_overhead_s.value if isinstance(pipeline.call_overhead_s, Quantity) else None,
    )


# --- from the runtime's model alone ------------------------------------------------------------------


def _from_runtime(pipeline: Pipeline, order: list[Stage]) -> tuple[StageTime, ...]:
    if not order:
        return ()
    before = {stage.id: stage for stage in pipeline.stages_before}
    per_batch = _per_batch_running(order, before)
    labels = _labels(order, pipeline.written)
    matched = _matched(pipeline.graph, order)
    by_stage = {stage.id: node for node, stage in matched.items()}
    nodes = {node.id: node for node in pipeline.graph}
    places = {stage.id: index for index, stage in enumerate(order)}
    found = []
    for stage in order:
        node = nodes.get(by_stage.get(stage.id, -1))
        seconds = _processing(stage, before) / _elements(stage, before) * per_batch[stage.id]
        found.append(
            StageTime(
                name=stage.name,
                label=node.label if node is not None else labels[stage.id],
                per_batch_s=seconds,
                low_s=seconds,
                high_s=seconds,
                parallelism=_parallelism(stage),
                serial=_serial(stage),
                id=node.id if node is not None else -1,
                inputs=tuple(places[i] for i in stage.inputs if i in places),
                per_batch=per_batch[stage.id],
                ratio=_ratio(stage, order, before),
                element_bytes=_element_bytes(stage),
                asynchronous=_works_ahead(stage.name),
                tunable=_tunable(stage),
                buffered=stage.buffered,
                node=node,
                advancing=_advancing(stage, before),
            )
        )
    return tuple(found)


def _per_batch_running(order: list[Stage], before: dict[int, Stage]) -> dict[int, float]:
    """Give how many elements of each running stage go into a batch.

    By ratios from stage to stage: below a repeat each pass has stages of its own, which know that pass only.
    """
    nodes = {stage.id: stage for stage in order}
    found = {order[-1].id: 1.0}
    for stage in reversed(order):
        count = found.setdefault(stage.id, 0.0)
        for each in stage.inputs:
            if each not in nodes:
                continue
            passing = base_of(stage.name) in ("ForeverRepeat", "FiniteRepeat")
            taken = 1.0 if passing else _elements(nodes[each], before) / _elements(stage, before)
            found[each] = found.get(each, 0.0) + count * taken
    return found


def _advancing(stage: Stage, before: dict[int, Stage]) -> bool | None:
    """Say whether a stage gave elements in the steady state."""
    earlier = before.get(stage.id)
    return None if earlier is None else stage.elements > earlier.elements


def _elements(stage: Stage, before: dict[int, Stage]) -> int:
    """Give the elements that a stage gave in its steady state."""
    earlier = before.get(stage.id)
    if earlier is not None and stage.elements - earlier.elements > 0:
        return stage.elements - earlier.elements
    return max(1, stage.elements)


def _processing(stage: Stage, before: dict[int, Stage]) -> float:
    earlier = before.get(stage.id)
    if earlier is not None and stage.elements - earlier.elements > 0:
        return max(0.0, stage.processing_s - earlier.processing_s)
    return stage.processing_s


def _ratio(stage: Stage, order: list[Stage], before: dict[int, Stage]) -> float:
    nodes = {other.id: other for other in order}
    if len(stage.inputs) != 1 or stage.inputs[0] not in nodes:
        return 1.0
    return _elements(nodes[stage.inputs[0]], before) / _elements(stage, before)


def _element_bytes(stage: Stage) -> float | None:
    return stage.bytes_produced / stage.elements if stage.elements and stage.bytes_produced else None


# --- from the graph with samples ---------------------------------------------------------------------


def _from_graph(pipeline: Pipeline, order: list[Stage]) -> tuple[StageTime, ...]:
    """Lay the samples over the graph, and what runs over both."""
    before = {stage.id: stage for stage in pipeline.stages_before}
    matched = _matched(pipeline.graph, order)
    per_batch = _per_batch(pipeline.graph, matched, before)
    prefix = _prefixes(pipeline)
    parallel = {s.node: s for s in pipeline.samples if s.kind == "parallel"}
    batched = {s.node: s for s in pipeline.samples if s.kind == "batched"}
    places: dict[int, int] = {}
    found: list[StageTime] = []
    spared = _behind_full_caches(pipeline.graph, matched, order)
    for node in pipeline.graph:
        stage = matched.get(node.id)
        times = _own(node, prefix, per_batch)
        whole_s = times.value if times is not None else 0.0
        seconds = 0.0
        if times is None and stage is not None and node.id not in spared and not _idle(node):
            # Not sampled, or not what it reads from: then the runtime's own clock is what there is.
            seconds = _processing(stage, before) / _elements(stage, before) * per_batch[node.id]
        if node.id in spared and times is not None:
            times = _Cost(0.0, 0.0, 0.0, 0.0)
        count = per_batch[node.id]
        calls = _calls(node, per_batch)
        locked = None
        if node.id in parallel and node.id in prefix and times is not None:
            locked = _locked(parallel[node.id], prefix, node, times, count, per_batch, pipeline)
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
                cpu_per_batch_s=times.cpu if times is not None else None,
                parallelism=_parallelism(stage) if stage is not None else _written_parallelism(node),
                serial=_serial(stage) if stage is not None else _written_serial(node),
                id=node.id,
                inputs=tuple(places[i] for i in node.inputs if i in places),
                per_batch=count,
                ratio=sum(per_batch[i] for i in node.inputs) / count if node.inputs and count else 1.0,
                element_bytes=_sample_bytes(pipeline.samples, node),
                asynchronous=_works_ahead(stage.name if stage is not None else node.op),
                tunable=_tunable(stage) if stage is not None else node.parallelism == -1,
                buffered=stage.buffered if stage is not None else 0.0,
                node=node,
                sampled=times is not None,
                locked=locked,
                batched_s=fast,
                calls_per_batch=calls,
                first_s=next((s.first_s for s in pipeline.samples if s.node == node.id), 0.0),
                advancing=_advancing(stage, before) if stage is not None else None,
                spared_s=whole_s if node.id in spared else 0.0,
            )
        )
    return _with_injected(found, order, matched)


def _behind_full_caches(
    graph: tuple[Node, ...], matched: dict[int, Stage], order: list[Stage]
) -> frozenset[int]:
    """Give the nodes whose work a full cache spares; one that the runtime tells nothing of counts as full."""
    nodes = {node.id: node for node in graph}
    found: set[int] = set()
    for node in graph:
        if base_of(node.op) != "Cache" or _fills(matched.get(node.id), order) is True:
            continue
        below = _below_node(node, nodes)
        if not any(_endless(nodes[each]) for each in below):  # which never fills one
            found |= below
    return frozenset(found)


def _below_node(node: Node, nodes: dict[int, Node]) -> set[int]:
    found: set[int] = set()
    waiting = list(node.inputs)
    while waiting:
        found.add(waiting[-1])
        waiting.extend(nodes[waiting.pop()].inputs)
    return found


def _endless(node: Node) -> bool:
    return node.cardinality == -1 or (base_of(node.op) == "Repeat" and node.size == -1)


def _fills(cache: Stage | None, order: list[Stage]) -> bool | None:
    """Say whether a running cache is being filled: one that is read from has no source any more."""
    stages = {stage.id: stage for stage in order}
    while cache is not None:
        inside = [stages[i] for i in cache.inputs if i in stages]
        if not inside:
            return False
        if _kind(inside[0].name) != "Cache":
            return True
        cache = inside[0]
    return None


def filling(pipeline: Pipeline | Missing, batches: int) -> str:
    """Name the cache that was being filled in its first pass all the time that was watched; empty if none.

    `batches` is how many were taken meanwhile.
    """
    if isinstance(pipeline, Missing) or not pipeline.stages or pipeline.output is None:
        return ""
    order = _source_first({stage.id: stage for stage in pipeline.stages}, pipeline.output)
    caches = [stage for stage in order if _kind(stage.name) == "Cache"]
    if not any(_fills(cache, order) for cache in caches) or _passes(order) > 1:
        return ""
    if pipeline.graph and not _may_be_first(pipeline, order, batches):
        return ""
    return label_of(caches[-1], pipeline)


def _may_be_first(pipeline: Pipeline, order: list[Stage], batches: int) -> bool:
    """Say whether a cache can be filled at all, and has not been gone through once already."""
    nodes = {node.id: node for node in pipeline.graph}
    before = {stage.id: stage for stage in pipeline.stages_before}
    per_batch = _per_batch(pipeline.graph, _matched(pipeline.graph, order), before)
    for node in pipeline.graph:
        if base_of(node.op) != "Cache":
            continue
        if any(_endless(nodes[each]) for each in _below_node(node, nodes)):
            return False
        count = node.cardinality
        if count is None or count <= 0:
            continue
        if batches * per_batch[node.id] > count or _cut_short(node, nodes, per_batch):
            return False
    return True


def _cut_short(cache: Node, nodes: dict[int, Node], per_batch: dict[int, float]) -> bool:
    """Say whether a take behind a cache, before any repeat, never lets it come to its end."""
    above = cache
    while behind := next((node for node in nodes.values() if above.id in node.inputs), None):
        if base_of(behind.op) == "Repeat":
            return False
        if base_of(behind.op) == "Take" and behind.size is not None and behind.size > 0:
            each = per_batch[cache.id] / max(1e-9, per_batch[behind.id])
            if cache.cardinality is not None and behind.size * each < cache.cardinality:
                return True
        above = behind
    return False


def _passes(order: list[Stage]) -> float:
    """Give how many passes over the data a repeat has made, as far as its counts tell."""
    stages = {stage.id: stage for stage in order}
    for stage in order:
        if base_of(stage.name) in ("ForeverRepeat", "FiniteRepeat") and stage.inputs:
            inside = stages.get(stage.inputs[0])
            if inside is not None and inside.elements < stage.elements:
                return 2.0
    return 1.0


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
    # Parts may differ in length by one window; where they are few, the sum says more.
    value = (middle if len(parts) >= 6 else total / len(parts)) / each
    spread = (parts[-1 - len(parts) // 4] - parts[len(parts) // 4]) / each
    cpu = sample.cpu_s * value / total if total > 0 else 0.0  # of the middle part, as the rest of it
    return _Cost(value, max(0.0, value - spread), value + spread, cpu)


def _prefixes(pipeline: Pipeline) -> dict[int, _Cost]:
    """Give the cost of an element of each node with all that lies below it; idle nodes cost nothing."""
    known = {s.node: _each(s) for s in pipeline.samples if s.kind == "prefix"}
    for node in pipeline.graph:
        if node.id not in known and len(node.inputs) == 1 and node.inputs[0] in known and _idle(node):
            known[node.id] = known[node.inputs[0]]
    return known


def _idle(node: Node) -> bool:
    return base_of(node.op) in ("Prefetch", "Repeat", "Take", "Options", "AssertCardinality")


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


def _locked(
    spread: Sample,
    prefix: dict[int, _Cost],
    node: Node,
    own: _Cost,
    count: float,
    per_batch: dict[int, float],
    pipeline: Pipeline,
) -> float | None:
    """Give the part of a function that more threads don't make faster, from a run on all cores."""
    below = sum(prefix[i].value * per_batch[i] for i in node.inputs if i in prefix)
    together = _each(spread).value * count
    if own.value <= 0 or own.value < 0.5 * below:
        return None  # what lies below limits the run on all cores
    threads = float(max(2, pipeline.sample_threads))
    share = min(1.0, max(0.0, together / own.value))
    return min(1.0, max(0.0, (share - 1 / threads) / (1 - 1 / threads)))


def _calls(node: Node, per_batch: dict[int, float]) -> float:
    if node.function is None:
        return 0.0
    return per_batch[node.inputs[0]] if node.inputs else per_batch[node.id]


def _per_batch(
    graph: tuple[Node, ...], matched: dict[int, Stage], before: dict[int, Stage]
) -> dict[int, float]:
    """Give how many elements of each node go into a batch."""
    found: dict[int, float] = {graph[-1].id: 1.0}
    nodes = {node.id: node for node in graph}
    for node in reversed(graph):
        count = found.setdefault(node.id, 0.0)
        several = len(node.inputs) > 1 and base_of(node.op) in (
            "Concatenate",
            "DirectedInterleave",
            "ParallelZip",
        )
        for each in node.inputs:
            taken = _taken(node, nodes[each], matched, before)
            share = 1.0 / len(node.inputs) if several else 1.0
            found[each] = found.get(each, 0.0) + count * taken * share
    return found


def _taken(node: Node, source: Node, matched: dict[int, Stage], before: dict[int, Stage]) -> float:
    """Give how many elements of its input a node takes for one of its own."""
    base = base_of(node.op)
    if base in ("Batch", "ParallelBatch", "PaddedBatch", "Window") and node.size and node.size > 0:
        return float(node.size)
    if base == "Shard" and node.size:
        return float(node.size)
    if base in ("Map", "ParallelMap", "Shuffle", "Prefetch", "Repeat", "Cache", "Take", "Zip", "Options"):
        return 1.0
    one, other = matched.get(node.id), matched.get(source.id)
    if one is not None and other is not None:
        return _elements(other, before) / _elements(one, before)
    if node.cardinality and source.cardinality and node.cardinality > 0 and source.cardinality > 0:
        return source.cardinality / node.cardinality
    return 1.0


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
    for stage in reversed(_last_stages(nodes, order[-1].id) if order else []):
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
                    buffered=stage.buffered,
                )
            )
    return tuple(found)


def _matched(graph: tuple[Node, ...], order: list[Stage]) -> dict[int, Stage]:
    """Say which stage of the runtime a node of the graph became; both are walked from the batch down."""
    if not graph or not order:
        return {}
    nodes = {node.id: node for node in graph}
    stages = {stage.id: stage for stage in order}
    found: dict[int, Stage] = {}

    def walk(node: Node | None, stage: Stage | None) -> None:
        while node is not None and stage is not None:
            kind, runs = _kind(node.op), _kind(stage.name)
            if kind == runs or (kind, runs) in _RUNS_AS:
                # TensorFlow makes from_generator of a flat_map over it; the inner one does the work.
                inner = [
                    stages[i] for i in stage.inputs if i in stages and _kind(stages[i].name) == "Generator"
                ]
                found[node.id] = inner[0] if kind == "Generator" and inner else stage
                if base_of(stage.name) == "MapAndBatch" and len(node.inputs) == 1:
                    below = nodes[node.inputs[0]]
                    if _kind(below.op) == "Map":
                        found[below.id] = stage
                        node = below
                if len(node.inputs) > 1:
                    for one, other in zip(node.inputs, stage.inputs, strict=False):
                        walk(nodes[one], stages.get(other))
                    return
                node = nodes[node.inputs[0]] if node.inputs else None
                stage = stages.get(stage.inputs[0]) if stage.inputs else None
            elif runs in _ADDED or (len(stage.inputs) == 1 and _below(stage, stages, kind)):
                stage = stages.get(stage.inputs[0]) if stage.inputs else None
            else:
                node = nodes[node.inputs[0]] if len(node.inputs) == 1 else None

    walk(graph[-1], order[-1])
    return found


_RUNS_AS = {("Batch", "MapAndBatch"), ("FlatMap", "Generator"), ("Generator", "FlatMap")}
_ADDED = ("Root", "Model", "Options", "MaxIntraOpParallelism", "PrivateThreadPool")


def _kind(name: str) -> str:
    base = base_of(name)
    return {"MemoryCache": "Cache", "FileCache": "Cache", "MemoryCacheImpl": "Cache",
            "FileCacheImpl": "Cache", "FiniteTake": "Take",
            "FiniteSkip": "Skip", "FiniteRepeat": "Repeat", "ForeverRepeat": "Repeat",
            "ParallelMap": "Map", "ParallelBatch": "Batch", "ParallelInterleave": "Interleave",
            "MapAndBatch": "MapAndBatch"}.get(base, base)  # fmt: skip


def _below(stage: Stage, stages: dict[int, Stage], kind: str) -> bool:
    """Say whether a stage of this kind still comes further down."""
    while len(stage.inputs) == 1:
        stage = stages[stage.inputs[0]]
        if _kind(stage.name) == kind or (kind, _kind(stage.name)) in _RUNS_AS:
            return True
    return False


def _written_parallelism(node: Node) -> float:
    return float(node.parallelism) if node.parallelism and node.parallelism > 0 else 1.0


def _written_serial(node: Node) -> bool:
    return base_of(node.op) in _SERIAL_FUNCTIONS


def _tunable(stage: Stage) -> bool:
    return any(knob.name == "parallelism" and knob.tunable for knob in stage.parameters)


def base_of(name: str) -> str:
    """Strip the version and the decorations that the runtime puts on names."""
    return (
        name.split("::", maxsplit=1)[0]
        .split("[", maxsplit=1)[0]
        .rstrip("V0123456789")
        .removesuffix("Dataset")
    )


def _parallelism(stage: Stage) -> float:
    if isinstance(stage.parallelism, Quantity):
        return max(1.0, stage.parallelism.value)
    return 1.0


def _serial(stage: Stage) -> bool:
    if base_of(stage.name) == "MapAndBatch":
        # The runtime fuses a map with the batch after it; a serial map stays serial inside.
        return _parallelism(stage) == 1.0 and not _tunable(stage)
    return base_of(stage.name) in _SERIAL_FUNCTIONS


def _source_first(nodes: dict[int, Stage], output: int) -> list[Stage]:
    order: list[Stage] = []
    seen: set[int] = set()
    waiting = [output]
    while waiting:
        identity = waiting.pop()
        if identity in seen or identity not in nodes:
            continue
        seen.add(identity)
        order.append(nodes[identity])
        waiting.extend(nodes[identity].inputs)
    return list(reversed(order))


def _last_stages(nodes: dict[int, Stage], output: int) -> list[Stage]:
    """Give the stages at the end of the pipeline that hand batches on without working on them."""
    found: list[Stage] = []
    identity = output
    while identity in nodes and nodes[identity] not in found:
        stage = nodes[identity]
        found.append(stage)
        if base_of(stage.name) not in _PASSING or len(stage.inputs) != 1:
            break
        identity = stage.inputs[0]
    return found


_PASSING = ("Root", "Options", "FiniteTake", "Take", "ForeverRepeat", "Repeat", "MaxIntraOpParallelism",
            "PrivateThreadPool", "Model", "AssertCardinality", "MemoryCache")  # fmt: skip


def _works_ahead(name: str) -> bool:
    return base_of(name).startswith(("Prefetch", "Parallel", "MapAndBatch", "DataService"))


_WRITTEN_AS = {
    "Map": "map", "ParallelMap": "map", "MapAndBatch": "map", "Batch": "batch", "ParallelBatch": "batch",
    "PaddedBatch": "padded_batch", "Prefetch": "prefetch", "Shuffle": "shuffle",
    "TensorSlice": "from_tensor_slices", "Tensor": "from_tensors", "Generator": "from_generator",
    "FlatMap": "flat_map", "Filter": "filter", "Interleave": "interleave",
    "ParallelInterleave": "interleave", "FiniteRepeat": "repeat", "ForeverRepeat": "repeat",
    "FiniteTake": "take", "FiniteSkip": "skip", "MemoryCache": "cache", "Range": "range",
    "TFRecord": "TFRecordDataset", "TextLine": "TextLineDataset",
}  # fmt: skip


def _labels(order: list[Stage], written: tuple[str, ...]) -> dict[int, str]:
    """Match stages with what the caller wrote, both from the source on; fused ones keep their name."""
    remaining = list(written)
    labels: dict[int, str] = {}
    for stage in order:
        word = _WRITTEN_AS.get(base_of(stage.name), "")
        label = word or stage.name
        for index, text in enumerate(remaining):
            if word and text.split("(")[0] == word:
                label = text
                del remaining[: index + 1]
                break
        labels[stage.id] = label
    return labels


def label_of(stage: Stage, pipeline: Pipeline) -> str:
    """Name a stage of the runtime as the caller would."""
    if pipeline.output is None:
        return stage.name
    order = _source_first({each.id: each for each in pipeline.stages}, pipeline.output)
    for identity, each in _matched(pipeline.graph, order).items():
        if each.id == stage.id:
            return next(node.label for node in pipeline.graph if node.id == identity)
    return _labels(order, pipeline.written).get(stage.id, stage.name)

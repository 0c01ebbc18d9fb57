"""The input pipeline as data: what the caller wrote, what runs, and what samples of it cost.

Three views of the same thing, brought together by `analyse/`: the *graph* of the dataset (every stage that
was written, with its function, sizes and files), the *stages* of the runtime's own model (what really runs,
fused and injected stages included), and *samples* (prefixes of the pipeline, run alone on one thread).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfdiag.model.quantity import Maybe, Missing

__all__ = [
    "MOST_STREAMS", "Edit", "Function", "Node", "Options", "Pipeline", "PyInput", "Sample", "Stage",
    "StageParameter", "streams",
]  # fmt: skip

MOST_STREAMS = 16
"""More files than this are not read at a time."""
_WAITS = 0.3
"""Reading that waits less than this part of its time computes, and gains by cores only."""


def streams(files: int | None, waiting: float | None, cores: float) -> int:
    """Give how many of so many files to read at a time; None stands for what is not known."""
    most = MOST_STREAMS if waiting is None or waiting >= _WAITS else max(2, round(cores))
    return most if files is None else max(1, min(files, most))


@dataclass(frozen=True, slots=True)
class StageParameter:
    """A knob of a stage, as the runtime has it now."""

    name: str
    value: float
    tunable: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the input pipeline that really runs."""

    id: int
    name: str
    """The runtime's name of the node: `ParallelMapV2`, `Prefetch` …"""
    label: str = ""
    """A name that the user recognises: `map(decode)`."""
    inputs: tuple[int, ...] = ()
    elements: int = 0
    processing_s: float = 0.0
    """Time spent in this stage alone, all elements and threads together."""
    buffered: float = 0.0
    bytes_produced: float = 0.0
    asynchronous: bool = False
    parallelism: Maybe = Missing("this stage has no parallelism")
    parameters: tuple[StageParameter, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the caller's inside a stage."""

    name: str
    """As the caller named it: `decode`, `<lambda>`."""
    where: str = ""
    """File and line, where Python still knows them."""
    python: bool = False
    """It calls back into Python: `py_function`, `numpy_function`."""
    random: bool = False
    """It draws random numbers, so two runs give different elements."""
    stateful: bool = False
    """It has an op with state (random and Python functions too); the runtime leaves its map serial."""
    reads_files: bool = False
    datasets: tuple[str, ...] = ()
    """Operations in it that make datasets: `TFRecordDatasetV2` …"""
    ops: int = 0
    """How many operations it has."""


_IDLE = frozenset({"AssertCardinality", "AssertNext", "Model", "Options", "Prefetch", "Repeat", "Take"})


@dataclass(frozen=True, slots=True)
class Node:
    """A stage that the caller wrote, from the dataset's graph."""

    id: int
    op: str
    """The operation without its version: `ParallelMapDataset`, `BatchDataset`, `TFRecordDataset` …"""
    label: str
    """As the caller would write it: `map(decode)`, `batch(32)`."""
    inputs: tuple[int, ...] = ()
    """The datasets that it reads from."""
    function: Function | None = None
    size: int | None = None
    """Batch size, buffer size, or count (-1: all, for ever, or AUTOTUNE); None where it is computed."""
    parallelism: int | None = None
    """As written: -1 for AUTOTUNE, None for none."""
    cycle: int | None = None
    """How many inner datasets an interleave reads at a time (-1: AUTOTUNE)."""
    deterministic: str = ""
    """`true`, `false`, or `default`; empty for stages that have no say in it."""
    drop_remainder: bool = False
    files: tuple[int, int] | None = None
    """Number and bytes of the files that it reads, where their names are constants."""
    compression: str = ""
    """`GZIP`, `ZLIB` or empty."""
    cache_file: str = ""
    random: bool = False
    """It changes the order or choice of elements from run to run: a shuffle, a sampler."""
    cardinality: int | None = None
    """Elements in one pass; -1 for infinite, None for unknown."""
    element_bytes: int | None = None
    """Bytes of one element where its shapes are fully known."""
    opaque: str = ""
    """Why what happens in it can't be seen, empty where it can."""

    @property
    def idle(self) -> bool:
        """Say whether it hands elements on without work of its own."""
        return self.op.removesuffix("Dataset") in _IDLE


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a dataset that decide how it runs."""

    autotune: bool = True
    default_optimizations: bool = True
    inject_prefetch: bool = True
    deterministic: bool = True
    threads: int = 0
    """A private pool's threads; 0 for the shared one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A part of the pipeline run alone, without the model.

    `prefix`: everything up to and with a node, on one thread with nothing working ahead; caches are full.
    `parallel`: the same with that node's function on all cores.
    `batched`: the node's function applied to whole batches, where it takes them and gives the same values.
    `interleaved`: several of the files or datasets that the node reads, at a time.
    """

    kind: Literal["prefix", "parallel", "batched", "interleaved"]
    node: int
    """The node of the graph at whose output it was measured."""
    elements: int
    """Elements of that node (for `batched` too: elements before batching) that were taken."""
    wall_s: tuple[float, ...]
    """Time of each of several equal parts of them."""
    cpu_s: float
    """Processor time of the process meanwhile."""
    first_s: float = 0.0
    """Time to the first element."""
    bytes: Maybe = Missing("not measured")
    """Bytes of one element."""
    threads: int = 1
    """How many worked on it."""
    free_cores: Maybe = Missing("not measured")
    """Cores that other processes left to it meanwhile."""
    exact: bool = True
    """`batched` gave the same; False where it gave the same values in another layout."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a dataset's graph, as data, so that whoever may touch a dataset can make it in a copy."""

    action: Literal[
        "parallel", "interleave", "prefetch", "cache_after", "swap", "set_size", "tune", "remove",
        "threads", "workers",
    ]  # fmt: skip
    """A method of the graph's door; `autotune` and `threads` (a private pool) set options, `workers` those of
    a PyDataset."""
    node: int = -1
    value: int | None = None
    """The size, or the number of calls, streams, threads or workers."""
    deterministic: bool | None = None
    """False where the order of elements may change."""
    processes: bool = False
    """Workers are processes, not threads."""


@dataclass(frozen=True, slots=True)
class PyInput:
    """A PyDataset, asked for some batches directly: `__getitem__` without Keras around it."""

    workers: int
    use_multiprocessing: bool
    max_queue_size: int
    item_s: tuple[float, ...]
    """Time of single calls, one after the other."""
    cpu_s: float
    threads_item_s: tuple[float, ...] = ()
    """Time for each batch when as many threads as there are cores ask at once."""
    length: int | None = None
    picklable: str = ""
    """Why it can't go to another process, empty where it can."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The input pipeline as it runs (from the runtime's model) and as it was written (from its graph)."""

    stages: tuple[Stage, ...] = ()
    output: int | None = None
    written: tuple[str, ...] = ()
    """The transformations that the caller wrote, source first, as they would write them."""
    python_functions: tuple[str, ...] = ()
    """Stages whose function calls back into Python."""
    autotune: bool = True
    prefetch_injected: bool = True
    """The runtime adds a prefetch at the end by itself."""
    missing: str = ""
    """Why the runtime's model is not known, empty where it is."""
    graph: tuple[Node, ...] = ()
    """Source first; the last one is the output."""
    graph_missing: str = ""
    """Why the graph is not known, empty where it is."""
    options: Options = Options()
    samples: tuple[Sample, ...] = ()
    sample_threads: int = 1
    """Threads of the samples on all cores."""
    samples_missing: str = "not sampled"
    """Why nothing was sampled, empty where it was."""
    call_overhead_s: Maybe = Missing("not measured")
    """What calling a function for one element costs on this machine, whatever it does."""
    hung: bool = False
    """The budget ended while a step waited for a batch of this pipeline."""
    py_input: PyInput | Missing = Missing("the input is no PyDataset")
    stages_before: tuple[Stage, ...] = ()
    """An earlier reading of the same stages: what lies between the two is the steady state."""

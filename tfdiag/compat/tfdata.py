"""The door to tf.data: the runtime's model of a pipeline, copies of datasets, names of stages.

Private names and where they were seen, with what happens when they are gone:

- Those of `tfgraph`: a dataset can't be copied, and is iterated as it is.
- `dataset._inputs()`, `_map_func._func`, `_map_func.function` (2.16 to 2.21): stages have the runtime's
  names only, and state inside a function is not seen. These and `._batch_size` (2.16 to 2.21): one pass over
  data that repeats has no known length.
- `DistributedIterator._iterators`, `._iterator`, `._device_iterators` (2.16 to 2.21): no waits of
  distributed jobs, they are estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tfdiag.compat.tensorflow import tensorflow
from tfdiag.compat.tfgraph import CannotEdit, DatasetGraph, GraphUnavailable, parts
from tfdiag.model.pipeline import Stage, StageParameter
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = [
    "GAPS_KEPT",
    "Copied",
    "ModelReader",
    "RunningStages",
    "autotune_enabled",
    "cardinality",
    "copied_ahead",
    "copy_dataset",
    "is_dataset",
    "is_distributed",
    "is_iterator",
    "one_pass",
    "prefetch_injected",
    "rows_of",
    "same_content",
    "same_multiset",
    "same_structure",
    "same_values",
    "written_chain",
    "written_functions",
]

GAPS_KEPT = 100
"""The runtime remembers this many gaps between calls, and forgets those over ten seconds."""
_PAIRED_MOST = 256
"""Elements that are held against each other one by one; of more the sorted values are."""
_PART = 1 << 16
"""Values that are compared at once."""


def same_structure(one: Any, other: Any) -> bool:
    """Say whether two elements have the same parts, types and ranks."""
    tf = tensorflow()
    try:
        tf.nest.assert_same_structure(one, other, expand_composites=True)
    except (TypeError, ValueError):
        return False
    parts = [tf.nest.flatten(each, expand_composites=True) for each in (one, other)]
    return all(
        a.dtype == b.dtype and a.shape.rank == b.shape.rank
        for a, b in zip(*parts, strict=True)
        if hasattr(a, "dtype") and hasattr(a, "shape")
    )


def same_values(one: Any, other: Any) -> bool:
    """Say whether two elements are equal, to rounding."""
    tf = tensorflow()
    if not same_structure(one, other):
        return False
    parts = [tf.nest.flatten(each, expand_composites=True) for each in (one, other)]
    return all(_equal(a, b) for a, b in zip(*parts, strict=True))


def same_content(one: Any, other: Any) -> bool:
    """Say whether two elements hold the same numbers, part by part, in whatever layout."""
    tf = tensorflow()
    parts = [tf.nest.flatten(each, expand_composites=True) for each in (one, other)]
    if len(parts[0]) != len(parts[1]):
        return False
    for a, b in zip(*parts, strict=True):
        if getattr(a, "dtype", None) == tf.variant or getattr(a, "dtype", None) != getattr(b, "dtype", None):
            return False
        left, right = np.sort(np.asarray(a), axis=None), np.sort(np.asarray(b), axis=None)
        if not _equal(left, right):
            return False
    return True


def _equal(one: Any, other: Any) -> bool:
    if getattr(one, "dtype", None) == tensorflow().variant:
        return True  # a dataset inside the element: only its structure can be compared
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape:
        return False
    a, b = a.reshape(-1), b.reshape(-1)
    # A part at a time: what a comparison makes on the way is several times as large as what it compares.
    return all(_equal_part(a[at : at + _PART], b[at : at + _PART]) for at in range(0, a.size, _PART))


def _equal_part(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.dtype.kind in "fc":
        return bool(np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True))
    return bool(np.array_equal(a, b))


def rows_of(element: Any) -> list[Any]:
    """Give the rows of a batch; what is no batch is one row."""
    tf = tensorflow()
    parts = tf.nest.flatten(element)
    if not all(isinstance(part, tf.Tensor) and len(part.shape) for part in parts):
        return [element]
    arrays = [part.numpy() for part in parts]
    if len({len(array) for array in arrays}) != 1:
        return [element]
    return [[array[row] for array in arrays] for row in range(len(arrays[0]))]


def _exactly(element: Any) -> tuple[Any, ...]:
    """Give something that is equal for elements that are the same to the last bit."""
    tf = tensorflow()
    parts = tf.nest.flatten(element, expand_composites=True)
    # Of a dataset inside the element only the structure can be compared.
    arrays = [np.asarray(part) for part in parts if getattr(part, "dtype", None) != tf.variant]
    return tuple(
        (str(array.dtype), array.shape, str(array.tolist()) if array.dtype.kind == "O" else array.tobytes())
        for array in arrays
    )


def _stacked(elements: list[Any]) -> list[Any]:
    parts = [tensorflow().nest.flatten(each, expand_composites=True) for each in elements]
    return [
        np.concatenate([np.asarray(part).reshape(-1) for part in column])
        for column in zip(*parts, strict=True)
    ]


def same_multiset(one: list[Any], other: list[Any]) -> bool:
    """Say whether two lists hold the same elements in any order."""
    if len(one) != len(other):
        return False
    if Counter(map(_exactly, one)) == Counter(map(_exactly, other)):
        return True
    if len(one) > _PAIRED_MOST:
        return same_content(_stacked(one), _stacked(other))  # to rounding, part by part
    rest = list(other)
    for element in one:
        for index, candidate in enumerate(rest):
            if same_values(element, candidate):
                del rest[index]
                break
        else:
            return False
    return not rest


def is_dataset(value: Any) -> bool:
    """Say whether `value` is a `tf.data.Dataset`."""
    return isinstance(value, tensorflow().data.Dataset)


def is_distributed(value: Any) -> bool:
    """Say whether `value` is a dataset that a strategy has distributed."""
    return isinstance(value, tensorflow().distribute.DistributedDataset)


def is_iterator(value: Any) -> bool:
    """Say whether a train function pulls batches from `value` by itself."""
    tf = tensorflow()
    return isinstance(value, (tf.data.Iterator, tf.distribute.DistributedIterator))


def cardinality(dataset: Any) -> int | None:
    """Give the number of elements; None when unknown, -1 when infinite."""
    tf = tensorflow()
    if is_distributed(dataset):
        count = int(getattr(dataset, "cardinality", tf.data.UNKNOWN_CARDINALITY))
    else:
        count = int(tf.data.experimental.cardinality(dataset))
    if count == tf.data.INFINITE_CARDINALITY:
        return -1
    return None if count < 0 else count


def one_pass(dataset: Any) -> int | None:
    """Give the elements of one pass, also where the dataset repeats its data for ever; None when unknown."""
    whole = cardinality(dataset)
    if whole != -1:
        return whole
    rows, current = 1, dataset
    for _ in range(_STAGES_AT_MOST):
        name = type(current).__name__
        inputs: Any = getattr(current, "_inputs", list)()
        if len(inputs) != 1:
            break
        if "Repeat" in name:
            count = cardinality(inputs[0])
            return None if count is None or count < 0 else -(-count // rows)
        if "Batch" in name:
            size = getattr(current, "_batch_size", None)
            known = None if size is None else tensorflow().get_static_value(size)
            if known is None or int(known) <= 0:
                return None
            rows *= int(known)
        current = inputs[0]
    return None


_STAGES_AT_MOST = 100


@dataclass(frozen=True)
class RunningStages:
    """The runtime's model of a pipeline at a moment of its run."""

    output: int
    """The id of the last stage."""
    given: int
    """The batches that it has given so far."""
    read: Callable[[], tuple[Stage, ...]]
    """Writes the stages out, which takes longer than to read the model: only the last reading is asked."""

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Give the stages, in no order."""
        return self.read()


class ModelReader:
    """Reads the runtime's model of a running iterator; says why when it has none."""

    def __init__(self) -> None:
        self.missing = ""
        self.gone = False
        self._read = tensorflow().data.experimental.get_model_proto

    def gaps(self, iterator: Any) -> tuple[int, list[float]] | None:
        """Give how many elements were taken and the last gaps between takings, in seconds."""
        proto = self._proto(iterator)
        if proto is None:
            return None
        elements = int(proto.nodes[proto.output].num_elements)
        gaps = [gap * 1e-6 for gap in proto.gap_times]
        # A gap of over ten seconds is dropped by the runtime; then nobody knows which one is gone.
        if len(gaps) < min(elements - 1, GAPS_KEPT):
            return elements, []
        return elements, gaps

    def stages(self, iterator: Any) -> RunningStages | None:
        """Give the stages that run."""
        proto = self._proto(iterator)
        if proto is None:
            return None
        output = int(proto.output)
        given = int(proto.nodes[output].num_elements) if output in proto.nodes else 0
        return RunningStages(output, given, lambda: tuple(_stage(node) for node in proto.nodes.values()))

    def _proto(self, iterator: Any) -> Any:
        if self.gone:
            return None
        for candidate in _leaves(iterator):
            try:
                return self._read(candidate)
            except (TypeError, ValueError, AttributeError) as error:
                self.missing = f"this iterator has no model: {error}"
            except tensorflow().errors.OpError as error:
                text = str(error.message).splitlines()[0] if error.message else type(error).__name__
                why = "its autotuning is off" if "analytical model" in text else text
                self.missing = f"tf.data keeps no model of this pipeline: {why}"
                # It will not come later, and each question writes a warning to the caller's stderr.
                self.gone = True
        return None


def _leaves(iterator: Any) -> list[Any]:
    """Give the plain iterators behind a distributed one: the first device is as good as any."""
    inner = getattr(iterator, "_iterators", None)
    if not inner:
        return [iterator]
    owner = getattr(inner[0], "_iterator", inner[0])
    devices = getattr(owner, "_device_iterators", None)
    return [devices[0]] if devices else [owner]


def _stage(node: Any) -> Stage:
    parameters = tuple(StageParameter(str(p.name), float(p.value), bool(p.tunable)) for p in node.parameters)
    parallelism: Maybe = Missing("this stage has no parallelism")
    for parameter in parameters:
        if parameter.name == "parallelism":
            parallelism = Quantity(parameter.value, "threads", source="tf.data model")
    return Stage(
        id=int(node.id),
        name=str(node.name),
        inputs=tuple(int(i) for i in node.inputs),
        elements=int(node.num_elements),
        processing_s=float(node.processing_time) * 1e-9,
        buffered=float(node.buffered_elements),
        bytes_produced=float(node.bytes_produced),
        asynchronous=bool(node.parameters) or str(node.name).startswith(("Prefetch", "Parallel")),
        parallelism=parallelism,
        parameters=parameters,
    )


@dataclass(frozen=True, slots=True)
class Copied:
    """A dataset that shares no state with the caller's, or the caller's own with the reason."""

    dataset: Any
    why_not: str = ""


def copy_dataset(dataset: Any, cache_folder: str) -> Copied:
    """Rebuild a dataset from its graph, with its own shuffle seeds and caches.

    Iterating a dataset moves the seed generators of its shuffles and fills its caches; the copy has
    fresh ones, so that the caller's next epoch has the order that it would have had.
    """
    if not _keeps_state(dataset):
        return Copied(dataset)
    try:
        return Copied(DatasetGraph.of(dataset, cache_folder).build())
    except (GraphUnavailable, CannotEdit) as error:
        return Copied(dataset, f"the dataset can't be copied ({error}), so its own state moved on")


_STATEFUL = ("Shuffle", "Cache", "Random", "Snapshot", "Save", "Directed")


def _keeps_state(dataset: Any) -> bool:
    """Say whether iterating the dataset could change what it yields next time."""
    chain = parts(dataset)
    if chain is None:
        return True
    return any(
        word in name for part in chain for name in (type(part).__name__, *_inside(part)) for word in _STATEFUL
    ) or any(type(part).__name__ == "_VariantDataset" for part in chain)


def _inside(part: Any) -> list[str]:
    """List the operations that make datasets in the function of a transformation."""
    function = getattr(getattr(part, "_map_func", None), "function", None)
    graph = getattr(function, "graph", None)
    if graph is None:
        return []
    if any(tensor.dtype == tensorflow().variant for tensor in getattr(function, "captured_inputs", ())):
        return ["Cache"]  # a dataset from outside the function, which could be any
    definition = graph.as_graph_def(add_shapes=False)
    scopes = [definition.node, *(function.node_def for function in definition.library.function)]
    return [node.op for scope in scopes for node in scope if "Dataset" in node.op]


def autotune_enabled(dataset: Any) -> bool:
    """Say whether tf.data tunes this pipeline by itself."""
    if not is_dataset(dataset):
        return True
    return dataset.options().autotune.enabled is not False


def copied_ahead(dataset: Any, device: str) -> Any:
    """Give a dataset whose next batch goes to a device while the step computes."""
    ahead = tensorflow().data.experimental.prefetch_to_device(device)
    return dataset.apply(ahead)


def prefetch_injected(dataset: Any) -> bool:
    """Say whether the runtime adds a prefetch at the end of this pipeline by itself."""
    if not is_dataset(dataset):
        return True
    options = dataset.options()
    optimization = options.experimental_optimization
    return (
        options.autotune.enabled is not False
        and optimization.inject_prefetch is not False
        and optimization.apply_default_optimizations is not False
    )


_WORDS = {
    "Map": "map",
    "ParallelMap": "map",
    "Batch": "batch",
    "ParallelBatch": "batch",
    "PaddedBatch": "padded_batch",
    "Prefetch": "prefetch",
    "Shuffle": "shuffle",
    "Repeat": "repeat",
    "Take": "take",
    "Skip": "skip",
    "Cache": "cache",
    "Filter": "filter",
    "FlatMap": "flat_map",
    "Interleave": "interleave",
    "ParallelInterleave": "interleave",
    "TensorSlice": "from_tensor_slices",
    "Tensor": "from_tensors",
    "Range": "range",
    "Generator": "from_generator",
    "Zip": "zip",
    "Concatenate": "concatenate",
    "Unbatch": "unbatch",
    "Shard": "shard",
    "Options": "with_options",
    "TFRecord": "TFRecordDataset",
    "TextLine": "TextLineDataset",
}


_SOURCES = ("from_generator", "TFRecordDataset", "TextLineDataset")


def written_chain(dataset: Any) -> list[str]:
    """Say what the caller wrote, source first, as they would write it: `map(decode)`, `batch(32)`."""
    words: list[str] = []
    part = dataset
    while part is not None:
        word = _word(part)
        if word and not word.startswith("with_options"):
            words.append(word)
        inputs: list[Any] = getattr(part, "_inputs", list)()
        if word.startswith(_SOURCES):
            break  # what lies below is how they are made
        part = inputs[0] if len(inputs) == 1 else None
        if len(inputs) > 1:
            words.append(f"{len(inputs)} sources")
    return list(reversed(words))


def written_functions(dataset: Any) -> list[tuple[str, bool]]:
    """List the functions of the caller's maps, last first, each with whether it calls Python."""
    found = []
    for part in parts(dataset) or []:
        wrapper = getattr(part, "_map_func", None)
        if wrapper is not None:
            found.append((_function_name(part), _calls_python(wrapper)))
    return found


def _calls_python(wrapper: Any) -> bool:
    graph = getattr(getattr(wrapper, "function", None), "graph", None)
    if graph is None:
        return False
    python_ops = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}
    names = {node.op for node in graph.as_graph_def(add_shapes=False).node}
    nested = getattr(graph, "_functions", {})
    return bool(names & python_ops) or any(
        node.op in python_ops
        for function in getattr(nested, "values", list)()
        for node in getattr(function, "definition", _NO_NODES).node_def
    )


class _NoNodes:
    node_def: tuple[Any, ...] = ()


_NO_NODES = _NoNodes()


def _word(part: Any) -> str:
    kind = type(part).__name__.lstrip("_").split("Dataset")[0]
    word = _WORDS.get(kind, kind[:1].lower() + kind[1:] if kind else "")
    if kind == "FlatMap" and _function_module(part).endswith("from_generator_op"):
        return "from_generator"
    if kind in ("Map", "ParallelMap", "FlatMap", "Interleave", "ParallelInterleave", "Filter"):
        arguments = [_function_name(part)]
        if kind.startswith("Parallel"):
            arguments.append("num_parallel_calls=…")
        return f"{word}({', '.join(arguments)})"
    if kind in ("Batch", "ParallelBatch", "Prefetch", "Shuffle", "Repeat", "Take", "Skip"):
        for attribute in ("_batch_size", "_buffer_size", "_count"):
            number = _constant(getattr(part, attribute, None))
            if number is not None:
                unsaid = {"repeat": "", "prefetch": "tf.data.AUTOTUNE"}
                return f"{word}({unsaid.get(word, number) if number == -1 else number})"
    if kind in ("Tensor", "TensorSlice", "Range", "TFRecord", "TextLine"):
        return f"{word}(…)"
    return word if kind == "Generator" else f"{word}()"


def _constant(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, AttributeError):
        return None


def _function_name(part: Any) -> str:
    wrapper = getattr(part, "_map_func", None) or getattr(part, "_predicate", None)
    function = getattr(wrapper, "_func", None)
    function = getattr(function, "__wrapped__", function)
    name = str(getattr(function, "__name__", "") or "…")
    return name.rsplit(".", maxsplit=1)[-1]


def _function_module(part: Any) -> str:
    return str(getattr(getattr(getattr(part, "_map_func", None), "_func", None), "__module__", ""))

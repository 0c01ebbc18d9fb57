"""A suggestion's change, made in a copy of the dataset, whose elements are held against the original's."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tfdiag.compat import keras, tensorflow, tfdata
from tfdiag.compat.tfgraph import CannotEdit, DatasetGraph, GraphUnavailable
from tfdiag.model.pipeline import Edit, Node

__all__ = ["Applied", "Sameness", "apply", "copied", "edited", "why_different"]

_HELD_BYTES = 16 << 20
_ELEMENTS = 64
_SECONDS = 5.0
_OTHERS = "the changed pipeline gives other elements"

_SHUFFLES_ALIKE = ("parallel", "prefetch", "tune", "threads")
"""Changes after which a shuffle still sees the same elements in the same order."""

Sameness = Literal["same sequence", "same elements", "same structure", "different", "not checked"]


@dataclass(frozen=True, slots=True)
class Applied:
    """A changed copy, or why there is none."""

    dataset: Any = None
    sameness: Sameness = "not checked"
    """What was found when the first elements of copy and original were compared."""
    compared: int = 0
    why_not: str = ""


def apply(
    dataset: Any,
    edits: Sequence[Edit],
    *,
    cache_folder: str = "",
    clock: Callable[[], float] = time.perf_counter,
) -> Applied:
    """Make the changes in a copy; the caller's dataset is neither changed nor moved on."""
    if not edits:
        return Applied(why_not="only the caller can make this change")
    if keras.is_py_dataset(dataset):
        return _workers(dataset, edits)
    if not tfdata.is_dataset(dataset):
        return Applied(why_not=f"a {type(dataset).__name__} can't be rewritten: it is no tf.data.Dataset")
    try:
        graph = DatasetGraph.of(dataset, cache_folder)
        changed = edited(graph, edits)
        built = changed.build()
        sameness, compared = _compare(graph, changed, edits, clock, _SECONDS)
    except (GraphUnavailable, CannotEdit) as error:
        return Applied(why_not=str(error))
    except (ValueError, TypeError, tensorflow.op_error()) as error:
        return Applied(why_not=_does_not_run(error))
    if sameness == "different":
        return Applied(None, sameness, compared, _OTHERS)
    return Applied(built, sameness, compared)


def edited(graph: DatasetGraph, edits: Sequence[Edit]) -> DatasetGraph:
    """Give the graph with all changes made."""
    for edit in edits:
        graph = _edited(graph, edit)
    return graph


def why_different(
    before: DatasetGraph,
    after: DatasetGraph,
    edits: Sequence[Edit],
    clock: Callable[[], float],
    seconds: float,
) -> str:
    """Say why the changed pipeline is not to be used: it does not run, or gives other elements."""
    try:
        sameness, _ = _compare(before, after, edits, clock, seconds)
    except (ValueError, TypeError, tensorflow.op_error()) as error:
        return _does_not_run(error)
    return _OTHERS if sameness == "different" else ""


def _does_not_run(error: Exception) -> str:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"the changed pipeline does not run: {first}"


def _edited(graph: DatasetGraph, edit: Edit) -> DatasetGraph:
    match edit.action:
        case "parallel":
            calls = -1 if edit.value is None else edit.value
            return graph.parallel(edit.node, calls=calls, deterministic=edit.deterministic)
        case "interleave":
            count = -1 if edit.value is None else edit.value
            return graph.interleave(edit.node, cycle=count, calls=count, deterministic=edit.deterministic)
        case "prefetch":
            return graph.prefetch(-1 if edit.value is None else edit.value)
        case "cache_after":
            return graph.cache_after(edit.node)
        case "swap":
            return graph.swap(edit.node)
        case "set_size":
            if edit.value is None:
                raise CannotEdit("the new size is not given")
            return graph.set_size(edit.node, edit.value)
        case "tune":
            return graph.tune(edit.node)
        case "remove":
            return graph.remove(edit.node)
        case "threads":
            return graph.with_options(threads=0 if edit.value is None else edit.value)
        case "workers":
            raise CannotEdit("workers are of a PyDataset, and this is a tf.data.Dataset")


def _workers(dataset: Any, edits: Sequence[Edit]) -> Applied:
    try:
        return Applied(copied(dataset, edits))
    except CannotEdit as error:
        return Applied(why_not=str(error))


def copied(dataset: Any, edits: Sequence[Edit]) -> Any:
    """Give a PyDataset that asks the same object for its batches with other workers."""
    changed = copy.copy(dataset)
    for edit in edits:
        if edit.action != "workers" or edit.value is None:
            raise CannotEdit("a PyDataset has no graph that could be rewritten")
        keras.set_workers(changed, edit.value, processes=edit.processes)
    return changed


def _compare(
    before: DatasetGraph,
    after: DatasetGraph,
    edits: Sequence[Edit],
    clock: Callable[[], float],
    seconds: float,
) -> tuple[Sameness, int]:
    """Hold the first elements of both against each other, as far as their order is fixed.

    Shuffles shuffle nothing meanwhile: what they draw is not compared, what comes out of them is.
    """
    free = any(map(_reorders, edits)) or _order_is_free(before.nodes)
    shuffled = any("Shuffle" in node.op for node in before.nodes)
    batched = any("BatchDataset" in node.op for node in before.nodes)
    moved = shuffled and any(edit.action not in _SHUFFLES_ALIKE for edit in edits)
    try:
        before, after = before.in_order(), after.in_order()
        random = _is_random([node for node in before.nodes if "Shuffle" not in node.op])
    except CannotEdit:
        random = _is_random(before.nodes)
    one, other = iter(before.build()), iter(after.build())
    end = clock() + seconds
    held = 0
    count = 0
    left: list[Any] = []
    right: list[Any] = []
    finished = False
    while count < _ELEMENTS and held < _HELD_BYTES and (count < 2 or clock() < end):
        first, second = next(one, None), next(other, None)
        if first is None or second is None:
            if (first is None) != (second is None):
                return "different", count
            finished = True
            break
        if not tfdata.same_structure(first, second):
            return "different", count
        count += 1
        if random:
            continue
        if not free:
            if not tfdata.same_values(first, second):
                return "different", count
            continue
        held += 2 * tensorflow.nested_bytes(first)
        # Below a batch another order makes other batches, of the same rows.
        left += tfdata.rows_of(first) if batched else [first]
        right += tfdata.rows_of(second) if batched else [second]
    if random:
        return "same structure", count
    if not free:
        return ("same elements" if moved else "same sequence"), count
    if not finished:
        return "same structure", count  # the first of a free order need not be the same ones
    return ("same elements" if tfdata.same_multiset(left, right) else "different"), count


def _reorders(edit: Edit) -> bool:
    return edit.deterministic is False or edit.action == "interleave"


def _order_is_free(nodes: Sequence[Node]) -> bool:
    return any(node.deterministic == "false" for node in nodes)


def _is_random(nodes: Sequence[Node]) -> bool:
    return any(node.random or (node.function is not None and node.function.random) for node in nodes)

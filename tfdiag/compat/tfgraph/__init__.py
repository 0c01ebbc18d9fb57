"""The door to a dataset's graph: what the caller wrote, read, changed, and made a dataset again.

Private names and where they were seen, with what happens when they are gone:

- `dataset._variant_tensor`, `dataset_ops._VariantDataset`, `op_def_registry.get`, and the names of
  operations and their arguments in a graph (2.16 to 2.21): there is no graph, or an edit can't be done,
  and the reason is told.
- `Options._set_mutable` (2.16 to 2.21): options can't be changed.
- `dataset._inputs()`, `_map_func._func`, `_map_func._function.name`, the closure of `from_generator` with
  its `_generator` (2.16 to 2.21): functions have the names that the graph gives them, and no lines.
- `__inference_Dataset_map_<name>_<number>` (2.16 to 2.21): a function has its whole name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tfdiag.compat import stderr
from tfdiag.compat.tfgraph import edit
from tfdiag.compat.tfgraph.build import (
    GraphUnavailable,
    changed_options,
    dataset_of,
    options_of,
    packs,
    read_graph,
    shapeless_spec,
    structure_of,
)
from tfdiag.compat.tfgraph.functions import is_generator
from tfdiag.compat.tfgraph.python import callables, generator_is_one_shot, parts
from tfdiag.compat.tfgraph.read import hidden_inputs, read_nodes, stages
from tfdiag.compat.tfgraph.serial import serial
from tfdiag.compat.tfgraph.wires import CannotEdit, Wires
from tfdiag.model.pipeline import Node, Options

__all__ = ["CannotEdit", "DatasetGraph", "GraphUnavailable", "generator_is_one_shot", "parts"]


@dataclass(frozen=True)
class DatasetGraph:
    """A dataset's graph. Edits give other graphs, in which untouched stages keep their ids."""

    options: Options
    _wires: Wires = field(repr=False)
    _ids: dict[str, int] = field(repr=False)
    _dataset: Any = field(repr=False)
    """The caller's: its Python functions live as long as it does."""
    _cache_files: dict[str, str] = field(repr=False)
    """Where the caller's caches are, which the graph's are not."""
    _structure: Any = field(repr=False)
    """Types and shapes of the caller's elements, as the graph has them."""
    _other: bool = False
    """Elements are others than the caller's, also where types and shapes look the same."""

    @classmethod
    def of(cls, dataset: Any, cache_folder: str = "") -> DatasetGraph:
        """Read the graph of a dataset, with shuffle seeds and caches of its own.

        File caches that are not complete go to `cache_folder`, or to memory without one.
        """
        wires, files = read_graph(dataset, cache_folder)
        try:
            ids = {name: at for at, name in enumerate(stages(wires))}
        except (KeyError, IndexError) as error:
            raise GraphUnavailable(f"its graph has an unknown form ({error})") from error
        return cls(options_of(dataset.options()), wires, ids, dataset, files, structure_of(wires))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Describe the stages, source first; the last one is the output."""
        with stderr.without(stderr.PROBING):  # parts of it are built to see what comes out of them
            return read_nodes(self._wires, self._ids, callables(self._dataset), self._cache_files)

    def build(self, *, shapeless: bool = False) -> Any:
        """Make a dataset; its elements have the structure of the original's where that still is theirs.

        `shapeless` ones are flat and of any shape: an edit may have changed what the graph says about shapes.
        """
        options = changed_options(self._dataset.options(), self.options)
        if shapeless:
            made = dataset_of(self._wires, shapeless_spec(self._wires), options)
            made._tfdiag_source = self._dataset
            return made
        same = not self._other and structure_of(self._wires) == self._structure
        made = dataset_of(self._wires, self._dataset.element_spec if same else None, options)
        made._tfdiag_source = self._dataset  # which keeps the caller's Python functions alive
        return made

    def parallel(self, node: int, calls: int = -1, deterministic: bool | None = None) -> DatasetGraph:
        """Call a stage's function for several elements at a time."""
        return self._with(edit.parallel(self._wires, self._stage(node), calls, deterministic))

    def interleave(
        self, node: int, cycle: int = -1, calls: int = -1, deterministic: bool | None = None
    ) -> DatasetGraph:
        """Read several of the datasets that a stage's function makes at a time."""
        return self._with(edit.interleave(self._wires, self._stage(node), cycle, calls, deterministic))

    def serial(self) -> DatasetGraph:
        """Let every stage work on one element at a time and none ahead, with small shuffle buffers."""
        return self._with(serial(self._wires))

    def prefetch(self, size: int = -1) -> DatasetGraph:
        """Prefetch at the end."""
        return self._appended("PrefetchDataset", buffer_size=size)

    def cache_after(self, node: int) -> DatasetGraph:
        """Keep what a stage makes in memory."""
        return self._with(edit.cache_after(self._wires, self._name(node)))

    def swap(self, node: int) -> DatasetGraph:
        """Move a stage below its input."""
        name = self._stage(node)
        for below in self._wires.datasets(name):
            self._whole(below)
        return self._with(edit.swap(self._wires, name))

    def set_size(self, node: int, size: int) -> DatasetGraph:
        """Give a stage another batch size, buffer size or count."""
        return self._with(edit.set_size(self._wires, self._name(node), size))

    def in_order(self) -> DatasetGraph:
        """Let no stage shuffle, so that what two passes give can be compared."""
        graph = self
        for node in self.nodes:
            if "Shuffle" in node.op:
                graph = graph.set_size(node.id, 1)
        return graph

    def tune(self, node: int) -> DatasetGraph:
        """Let the runtime choose how many calls a stage makes at a time."""
        return self._with(edit.tune(self._wires, self._name(node)))

    def remove(self, node: int) -> DatasetGraph:
        """Take a stage out that does not change the structure of elements."""
        name = self._name(node)
        self._whole(name)
        return self._with(edit.remove(self._wires, name))

    def cut(self, node: int) -> DatasetGraph:
        """Let a stage be the output."""
        name = self._name(node)
        made = self._with(replace(self._wires, output=name))
        return replace(made, _other=name != self._wires.output and packs(made._wires))

    def windowed(self, size: int) -> DatasetGraph:
        """Hand out windows, each of so many elements that were made and not copied."""
        made = self._appended("WindowDataset", size=size, shift=size, stride=1, drop_remainder=False)
        return replace(made, _other=True)

    def forever(self) -> DatasetGraph:
        """Start again at the end, for ever."""
        return self._appended("RepeatDataset", count=-1)

    def full_caches(self, elements: int, *, but: Collection[int] = ()) -> DatasetGraph:
        """Let caches, `but` these, hold so many elements and give them for ever: full ones are measured."""
        left = {self._name(node) for node in but}
        return self._with(edit.full_caches(self._wires, elements, left))

    def with_options(self, **changes: Any) -> DatasetGraph:
        """Change options."""
        return replace(self, options=replace(self.options, **changes))

    def _appended(self, op: str, **numbers: int | bool) -> DatasetGraph:
        return self._with(edit.append(self._wires, self._wires.output, op, **numbers)[0])

    def _with(self, wires: Wires) -> DatasetGraph:
        ids = dict(self._ids)
        for name in stages(wires):
            ids.setdefault(name, max(ids.values(), default=-1) + 1)
        return replace(self, _wires=wires, _ids=ids)

    def _name(self, node: int) -> str:
        reached = stages(self._wires)
        for name, number in self._ids.items():
            if number == node and name in reached:
                return name
        raise CannotEdit(f"there is no stage {node}")

    def _stage(self, node: int) -> str:
        """Name a stage whose function is the caller's."""
        name = self._name(node)
        if self._generates(name):
            raise CannotEdit("from_generator makes one element after the other")
        return name

    def _whole(self, name: str) -> None:
        """Refuse to take a stage apart that the caller wrote as one."""
        if self._wires.datasets(name) and not hidden_inputs(self._wires, name)[0]:
            what = "from_generator" if self._generates(name) else "a dataset of files"
            raise CannotEdit(f"{what} is a source: nothing goes below it")

    def _generates(self, name: str) -> bool:
        return is_generator(self._wires, self._wires.nodes[name])

"""The door to sessions of TensorFlow 1: the same graph with the same values, on another device.

A graph says where its ops run, so a `tf.device` around `Session.run` changes nothing. A copy of the graph
whose ops have another device does, and it stands in for the session while a function of the caller's runs.

Private names and where they were seen, with what happens when they are gone:

- `Session._config` (2.16 to 2.21): the copy has the default numbers of threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tfdiag.compat.tensorflow import tensorflow

__all__ = ["CannotMove", "MovedSession"]

_HELD = ("Iterator", "IteratorV2", "FIFOQueue", "FIFOQueueV2", "RandomShuffleQueue", "RandomShuffleQueueV2",
         "PaddingFIFOQueue", "PaddingFIFOQueueV2", "PriorityQueue", "PriorityQueueV2")  # fmt: skip
"""Ops with a state that nobody can read without moving it on."""
_CARRY = ("NoOp", "Const", "Placeholder", "_Send", "_Recv", "_HostSend", "_HostRecv", "_Arg", "_Retval",
          "VarHandleOp", "Identity")  # fmt: skip
"""Ops that say nothing of where a graph computes."""


class CannotMove(Exception):
    """A session can't be copied; the message says why."""


class MovedSession:
    """A copy of a session, all of whose ops are asked to run on one device."""

    def __init__(self, session: Any, device: str) -> None:
        """Copy graph and values; the caller's session is only read."""
        tf = tensorflow().compat.v1
        self._of = session
        self._places: tuple[str, ...] | None = None
        definition = session.graph.as_graph_def()
        held = sorted({node.op for node in definition.node if node.op in _HELD})
        if held:
            raise CannotMove(f"its graph reads from {', '.join(held)}, whose state can't be copied")
        for node in definition.node:
            node.device = f"/device:{device.lstrip('/')}"
        config = tf.ConfigProto()
        if (own := getattr(session, "_config", None)) is not None:
            config.CopyFrom(own)
        config.allow_soft_placement = True  # what has no kernel there runs where it can, as in a script
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.import_graph_def(definition, name="")
        self._session = tf.Session(graph=self._graph, config=config)
        try:
            self._take_values()
        except (tf.errors.OpError, AttributeError, ValueError, TypeError, KeyError) as error:
            self.close()
            raise CannotMove(f"its values can't be copied: {str(error).splitlines()[0]}") from error

    @property
    def places(self) -> tuple[str, ...]:
        """Name the devices on which its ops ran, those with most of them first."""
        return self._places or ()

    @contextlib.contextmanager
    def standing_in(self) -> Iterator[None]:
        """Let the caller's session run this one's graph, for a block."""
        attributes = vars(self._of)
        before = {name: attributes[name] for name in ("run",) if name in attributes}
        attributes["run"] = self.run
        try:
            yield
        finally:
            del attributes["run"]
            attributes.update(before)

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Do what `Session.run` does with the same arguments."""
        tf = tensorflow()
        fetched = tf.nest.map_structure(self._mine, fetches)
        fed = {self._mine(key): value for key, value in (feed_dict or {}).items()}
        if self._places is None:
            # Once: it takes longer, and the first call stands apart anyway.
            options = options or tf.compat.v1.RunOptions(output_partition_graphs=True)
            run_metadata = run_metadata or tf.compat.v1.RunMetadata()
            result = self._session.run(fetched, fed, options, run_metadata)
            self._places = _places(run_metadata)
            return result
        return self._session.run(fetched, fed, options, run_metadata)

    def close(self) -> None:
        """Give back what it holds."""
        self._session.close()

    def _mine(self, thing: Any) -> Any:
        """Give what has the same name here."""
        element = self._of.graph.as_graph_element(thing)
        return self._graph.as_graph_element(element.name)

    def _take_values(self) -> None:
        """Give variables the values that they have in the caller's session, and fill tables anew."""
        keys = tensorflow().compat.v1.GraphKeys
        variables = {
            id(each): each
            for collection in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)
            for each in self._of.graph.get_collection(collection)
        }
        for variable in variables.values():
            try:
                value = self._of.run(variable)
            except tensorflow().errors.FailedPreconditionError:
                continue  # it has none yet
            _, start = variable.initializer.inputs  # of an assignment: to what, and what
            self._session.run(self._mine(variable.initializer), {self._mine(start): value})
        for initializer in self._of.graph.get_collection(keys.TABLE_INITIALIZERS):
            self._session.run(self._mine(initializer))


def _places(metadata: Any) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for partition in metadata.partition_graphs:
        for node in partition.node:
            if node.op not in _CARRY and "device:" in node.device.lower():
                name = "/" + node.device.rpartition("device:")[2].upper()
                counts[name] = counts.get(name, 0) + 1
    return tuple(sorted(counts, key=lambda name: -counts[name]))

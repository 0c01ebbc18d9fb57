"""Where the ops of a train step run, and what crosses devices because of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfdiag.model.quantity import Maybe, Missing

__all__ = ["Copy", "CopyTime", "DeviceOps", "OpTime", "PlacedOp", "Placement", "Reason", "Variables"]

Kind: TypeAlias = Literal["python", "text", "host"]
Direction: TypeAlias = Literal["host to device", "device to host", "device to device"]

Reason: TypeAlias = Literal[
    "python", "text", "pinned", "no kernel", "no kernel for this type", "variable there", "not known"
]
"""Why an op runs on the CPU: it calls Python; strings live there; the caller pinned it with `tf.device`; the
accelerator has no kernel for it, or none for this type; a variable or resource that it uses is there."""


@dataclass(frozen=True, slots=True)
class DeviceOps:
    """The ops of a step on one device."""

    device: str
    """`/GPU:0`, short for TensorFlow's full name."""
    ops: int
    """Without what only carries values: arguments, constants, identities, control flow, copies."""
    types: dict[str, int]
    """The most frequent types of them, most frequent first."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of a step on one device."""

    device: str
    count: int
    bytes: int
    largest: str = ""
    """The largest of them by name."""


@dataclass(frozen=True, slots=True)
class PlacedOp:
    """An op of the step that runs on the CPU and is worth to be named."""

    name: str
    """Without what inlining puts in front of it."""
    op: str
    kind: Kind
    """It calls back into Python, handles text or a table, or merely sits on the CPU in a step of a GPU."""
    device: str
    layer: str = ""
    """Empty outside of layers."""
    part: Literal["forward", "backward", "optimizer", "loss", "metrics", ""] = ""
    dtype: str = ""
    reason: Reason = "not known"
    function: str = ""
    """The Python function that it calls."""
    where: str = ""
    """File and line of this function."""
    in_loop: bool = False
    per_call_s: Maybe = Missing("it was not timed")
    """The time in which it runs, in a call of the train function."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A tensor that crosses devices in each step."""

    tensor: str
    op: str
    """The op that makes it."""
    reader: str
    """An op that reads it on the other side."""
    source: str
    target: str
    direction: Direction
    dtype: str
    shape: str
    """`(32, 10)`, with `?` for what the graph does not know; empty where it knows nothing."""
    bytes: Maybe
    purpose: Literal["input", "output", "variable", "inside", "peer"]
    """The batch goes in; results come out; a variable sits on the other device; the step itself goes from one
    device to the other and back; or accelerators that share the work exchange something."""
    layer: str = ""
    in_loop: bool = False


@dataclass(frozen=True, slots=True)
class OpTime:
    """How long the ops of one kind hold up a call of the train function, from a trace.

    With text ops goes what else their layers do.
    """

    kind: Kind
    busy_s: float
    """Time in which at least one of them ran."""
    alone_s: float
    """Time in which nothing else of the step ran, their dispatch included; on a GPU: in which the GPU stood
    idle around them, copies to and fro included."""


@dataclass(frozen=True, slots=True)
class CopyTime:
    """How long the copies of one direction take in a call of the train function, from a trace."""

    direction: Direction
    count: float
    alone_s: float
    """Time in which such a copy ran and no kernel."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Which op of a step runs where."""

    devices: tuple[DeviceOps, ...]
    variables: tuple[Variables, ...] = ()
    """Those with numbers that an accelerator computes with: integers and booleans live on the host."""
    ops: tuple[PlacedOp, ...] = ()
    """Those that call Python, handle text, or sit on the CPU in a step that runs on a GPU otherwise."""
    copies: tuple[Copy, ...] = ()
    copies_missing: str = ""
    """Why copies are not known, empty where they are."""
    times: tuple[OpTime, ...] = ()
    copy_times: tuple[CopyTime, ...] = ()
    times_missing: str = ""
    """Why nothing was timed, empty where it was or where there was nothing to time."""
    clusters: int = 0
    """Functions that XLA compiles as a whole: their ops can't be told apart."""

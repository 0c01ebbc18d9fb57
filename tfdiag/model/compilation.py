"""When functions were traced and compiled in a run, and what was different from the time before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfdiag.model.quantity import Maybe, Missing

__all__ = ["CAUSES", "BatchShape", "Compilation", "Trace"]

CAUSES = ("first", "shape", "type", "value", "object", "structure", "made anew", "unknown")


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace of a `tf.function`; traces inside of it are part of it."""

    function: str
    where: str
    """File and line of the Python function."""
    call: int
    """The call of the train function in which it happened; before it, where it happened between two."""
    seconds: float
    """Until the graph was built; what TensorFlow does with it at its first run comes on top."""
    during: Literal["step", "validation", "callback", "elsewhere"]
    cause: Literal["first", "shape", "type", "value", "object", "structure", "made anew", "unknown"]
    argument: str = ""
    """The argument that was different, as far into it as it could be followed."""
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """A shape that batches of the input have."""

    shape: str
    count: int
    """Among the batches that were looked at."""
    last: bool = False
    """Only the last batch of an epoch had it."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """What was traced and compiled while the job ran as it is."""

    traces: tuple[Trace, ...] = ()
    """In the order in which they happened; the first ones, where there were very many."""
    count: int = 0
    """Traces of the step, all of them."""
    missing: str = ""
    """Why traces could not be watched; empty where they were."""
    shapes: tuple[BatchShape, ...] = ()
    """Shapes of batches, where XLA compiles the step and they may differ: the most frequent ones."""
    different: int = 0
    """How many shapes there were in all."""
    looked: int = 0
    """Among how many batches."""
    xla_compile: Maybe = Missing("XLA does not compile the step")
    """What a batch of a shape takes longer that the step has not seen, at its first time."""

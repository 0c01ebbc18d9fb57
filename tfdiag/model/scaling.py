"""The step at several batch sizes: one batch, cut or repeated, through the same train function."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.model.quantity import Maybe, Missing

__all__ = ["Scaling", "SizeTimes"]


@dataclass(frozen=True, slots=True)
class SizeTimes:
    """Calls of the train function with batches of one size."""

    rows: int
    round_s: tuple[float, ...]
    """A typical call of each round. Sizes take turns in a round, so entries of all sizes belong together."""
    calls: int
    """How many calls stand behind them."""
    first_s: float = 0.0
    """The first call of this size, which may trace or compile; it is in no round."""
    memory: Maybe = Missing("it needed no more memory than had been in use before")
    """The most memory in use on the device, or of the process on the CPU, once this size had run."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """What the step takes with smaller and larger batches, without its input."""

    rows: int
    """Of the job's own batch."""
    sizes: tuple[SizeTimes, ...]
    """Smallest first; the job's own size is among them."""
    steps_per_call: int = 1
    retraced: bool = False
    """The step was traced anew for batches of any size: the job's own trace is for one size."""
    left_out: str = ""
    """Why larger batches were not tried, empty where they were."""
    memory_limit: Maybe = Missing("not known")
    """What there is of the memory that the sizes were held against."""

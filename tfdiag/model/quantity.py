"""A number with its unit, spread and origin, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Maybe", "Missing", "Origin", "Quantity", "value_of"]

Origin: TypeAlias = Literal["measured", "estimated", "given"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that was measured, estimated from measurements, or given by the caller."""

    value: float
    unit: str
    low: float | None = None
    """Lower end of the 95 % interval, where one is known."""
    high: float | None = None
    origin: Origin = "measured"
    source: str = ""
    """Where the number came from, in a few words."""
    count: int | None = None
    """How many samples stand behind it."""

    def scaled(self, factor: float, unit: str | None = None) -> Quantity:
        """Give the same quantity in another unit, or spread over something."""
        ends = [None if end is None else end * factor for end in (self.low, self.high)]
        if factor < 0:
            ends.reverse()
        return Quantity(
            self.value * factor,
            self.unit if unit is None else unit,
            ends[0],
            ends[1],
            self.origin,
            self.source,
            self.count,
        )


@dataclass(frozen=True, slots=True)
class Missing:
    """A quantity that was not measured: never zero, never healthy."""

    reason: str


Maybe: TypeAlias = Quantity | Missing


def value_of(quantity: Maybe, default: float = 0.0) -> float:
    """Give the number, or `default` where it is missing: for sums, not for judgements."""
    return quantity.value if isinstance(quantity, Quantity) else default

"""The budget as a clock that phases draw from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Deadline"]


@dataclass(slots=True)
class Deadline:
    """When the diagnosis must be over, and what each phase took of it."""

    clock: Callable[[], float]
    budget_s: float
    begin: float
    phases_s: dict[str, float] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """Give the moment at which the budget is gone."""
        return self.begin + self.budget_s

    def left(self) -> float:
        """Give the seconds that are left; negative when it is over."""
        return self.end - self.clock()

    def spent(self) -> float:
        """Give the seconds since the beginning."""
        return self.clock() - self.begin

    def share(self, fraction: float, at_most: float) -> float:
        """Give the end of a phase that may take this fraction of what is left."""
        return self.clock() + max(0.0, min(at_most, fraction * self.left()))

    def note(self, phase: str, begin: float) -> None:
        """Write down what a phase took."""
        self.phases_s[phase] = self.phases_s.get(phase, 0.0) + self.clock() - begin

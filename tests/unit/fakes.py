"""What unit tests of the collecting side put in the place of the world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class FakeClock:
    """A clock that moves when it is told to."""

    def __init__(self, at: float = 100.0) -> None:
        """Start somewhere that is not zero."""
        self.at = at

    def __call__(self) -> float:
        """Tell the time."""
        return self.at

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.at += seconds

    def taking(self, seconds: float) -> Callable[..., Any]:
        """Give a function that takes so long."""
        return lambda *_, **__: self.advance(seconds)


class TickingClock(FakeClock):
    """A clock that moves by a tick whenever somebody looks at it."""

    def __init__(self, tick: float) -> None:
        """Start at the usual time."""
        super().__init__()
        self.tick = tick

    def __call__(self) -> float:
        """Tell the time, and let a tick pass."""
        self.at += self.tick
        return self.at

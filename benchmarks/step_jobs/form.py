"""What a job of these benchmarks is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepJob:
    """A job, not built yet."""

    name: str
    make: Callable[[], tuple[Any, Any, dict[str, Any]]]
    """Gives the model, its dataset, and what else `diagnose` takes."""
    expected: str
    """The check that must be on top; empty for a healthy job."""
    cost_s: float | None = None
    """What the planted cause takes of a step, where that is known."""
    budget_s: float = 20.0

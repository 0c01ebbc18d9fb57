"""What a job with a known cause consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Machine:
    """A simulated GPU, as tests/simgpu makes it."""

    preset: str = "default"
    knobs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepJob:
    """A job, and what is wrong with it."""

    name: str
    make: Callable[[], tuple[Any, Any, dict[str, Any]]]
    """Gives model, dataset and the keyword arguments for `diagnose`."""
    expected: str
    """The check that must find it; empty for a healthy one."""
    cost_s: float | None = None
    """What the cause costs in a step, where that is known."""
    budget_s: float = 20.0
    beside: tuple[str, ...] = ()
    """What else is true of it, and may stand above what is expected."""
    planted: Callable[[], bool] = lambda: True
    """Whether the cause is one on this machine."""
    twin: Callable[[], tuple[Any, Any, dict[str, Any]]] | None = None
    """The same job without its cause: the difference of their steps is what the cause costs."""
    machine: Machine | None = None
    """What GPU the job has a process with; without one it is the machine as it is."""

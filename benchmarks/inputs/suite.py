"""The register of the jobs: what is planted in each, and what it is known to cost."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

TOPICS = (
    "maps",
    "python_code",
    "sources",
    "storage",
    "elements",
    "discarded",
    "reuse",
    "machine",
    "combined",
    "healthy",
)
"""The files with the jobs, in the order in which they are run."""

CHECKS = frozenset(
    {
        "sequential-map",
        "python-generator",
        "python-function-in-map",
        "python-dataset-workers",
        "per-element-work",
        "sequential-source",
        "slow-storage",
        "compressed-source",
        "uncached-work",
        "ineffective-cache",
        "discarded-work",
        "shuffle-buffer",
        "missing-prefetch",
        "autotune-off",
        "input-cpu-contention",
        "unknown-input",
    }
)
"""The rows of the catalogue's section `input`."""

Cost = Callable[[], float]


@dataclass
class Work:
    """What is handed to `fit` or `diagnose`, and what the bottleneck costs."""

    model: Any
    dataset: Any
    fit_kwargs: dict[str, Any] = field(default_factory=dict)
    cost: Cost | None = None
    """Seconds of the bottleneck stage for each batch, asked before and after; None where not known."""

    @property
    def kwargs(self) -> dict[str, Any]:
        """Give the arguments of `fit`."""
        return {"verbose": 0, "shuffle": False, **self.fit_kwargs}


@dataclass(frozen=True)
class Case:
    """A job, not built yet."""

    name: str
    plant: str | None
    """The id that must be found on top; None for a job that must have no input finding."""
    build: Callable[[], Work]
    where: tuple[str, ...] = ()
    """Substrings, one of which is in the label of the stage that is the bottleneck."""
    accept: frozenset[str] = frozenset()
    """Rows of the catalogue that describe the same plant as truly."""
    needs_pauses: bool = False
    """It reads from storage that is made slow (see `storage.py`)."""


_CASES: list[Case] = []

Builder = Callable[[], Work]


def planted(
    plant: str,
    name: str,
    *where: str,
    accept: Iterable[str] = (),
    needs_pauses: bool = False,
) -> Callable[[Builder], Builder]:
    """Register a job with a planted problem."""
    if plant not in CHECKS or not CHECKS.issuperset(accept):
        raise ValueError(f"{name}: no such rows in the catalogue: {plant}, {accept}")

    def register(build: Builder) -> Builder:
        _CASES.append(Case(name, plant, build, where, frozenset(accept), needs_pauses))
        return build

    return register


def healthy(name: str, *, needs_pauses: bool = False) -> Callable[[Builder], Builder]:
    """Register a job that keeps up."""

    def register(build: Builder) -> Builder:
        _CASES.append(Case(name, None, build, needs_pauses=needs_pauses))
        return build

    return register


def cases() -> list[Case]:
    """Give all jobs."""
    for topic in TOPICS:
        importlib.import_module(f"benchmarks.inputs.{topic}")
    names = [case.name for case in _CASES]
    if len(set(names)) < len(names):
        raise ValueError("two jobs have the same name")
    return list(_CASES)

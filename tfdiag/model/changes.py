"""A change of a job beside its input, as data, so that whoever may copy a job can make it in the copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Change", "ChangeKind"]

ChangeKind: TypeAlias = Literal[
    "steps_per_execution", "batch_size", "jit_compile", "policy", "run_eagerly", "without_metrics",
    "without_callback", "optimizer", "copy_ahead",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is different in the changed job."""

    kind: ChangeKind
    value: bool | int | str | None = None
    """What it is in the changed job: steps in a call, rows in a batch, a policy's or an optimizer's name."""
    target: str = ""
    """What is changed, where there may be several: a metric, a callback."""

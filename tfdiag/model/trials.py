"""What trials found: each suggestion made in a copy of the job, and run by turns with the job as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfdiag.model.quantity import Maybe, Missing

__all__ = ["Trial", "Trials"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One suggestion that was tried, or why it was not."""

    suggestion: str
    """Its id."""
    status: Literal["confirmed", "refuted", "untried"]
    measured: Maybe
    """Speed-up of the step, with the interval in which another run would show it."""
    reason: str = ""
    before_s: tuple[float, ...] = ()
    """Mean step of each turn of the job as it is; turns of both come in pairs."""
    after_s: tuple[float, ...] = ()
    """The same with the change."""
    took_s: float = 0.0
    on_top: Maybe = Missing("it is a single change")
    """What the last of several changes adds to those before it."""


@dataclass(frozen=True, slots=True)
class Trials:
    """All that was tried."""

    trials: tuple[Trial, ...] = ()
    noise: Maybe = Missing("nothing was tried")
    """What the job against itself showed: no gain is claimed within it."""
    missing: str = ""
    """Why nothing was tried, empty where something was."""
    notes: tuple[str, ...] = ()

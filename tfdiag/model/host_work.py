"""What Python does around the steps, beside the times of callbacks: how they are set, what is watched."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CallbackFacts", "HostWork"]


@dataclass(frozen=True, slots=True)
class CallbackFacts:
    """A callback, and those of its settings that decide what it costs."""

    name: str
    """As in the times: the class, numbered where there are several."""
    classes: tuple[str, ...] = ()
    """The class and those that it derives from, without the base of all callbacks."""
    settings: tuple[tuple[str, str], ...] = ()
    """Name and value, as in the caller's code: `save_freq`, `histogram_freq` …"""
    batch_hook: bool = False
    """It has a hook at the end of batches, and wants to be called before the next step."""
    plain: bool = False
    """An object with the methods of a callback, which derives from none."""
    inside: str = ""
    """The list of callbacks that it stands in, where that is not the one of `fit`."""


@dataclass(frozen=True, slots=True)
class HostWork:
    """What is known of Python's part of the run beside times."""

    callbacks: tuple[CallbackFacts, ...] = ()
    watched: tuple[str, ...] = ()
    """What was told apart in callbacks and in a loop of the caller's own: `sync`, `save`, `summary`."""
    unwatched: str = ""
    """Why the others were not."""
    background: bool = False
    """Hooks at the ends of batches run on another thread, beside the steps."""

"""The words and the shape of a report: frozen dataclasses, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfdiag.model.changes import Change
from tfdiag.model.measurements import Measurements
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = [
    "SCHEMA_VERSION",
    "SEGMENTS",
    "VERDICTS",
    "Bounds",
    "Evidence",
    "Finding",
    "HostItem",
    "ReportData",
    "Severity",
    "Step",
    "Suggestion",
    "Verdict",
]

SCHEMA_VERSION = 1

SEGMENTS = (
    "input_wait",
    "host_to_device",
    "device_compute",
    "collective",
    "launch",
    "device_to_host",
    "host",
    "compile",
    "unexplained",
)

VERDICTS = (
    "input-bound",
    "transfer-bound",
    "launch-bound",
    "compute-bound",
    "host-bound",
    "compile-bound",
    "communication-bound",
    "inconclusive",
)

Severity: TypeAlias = Literal["info", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in one code and one sentence."""

    code: str
    """One of `VERDICTS`."""
    headline: str
    share: float
    """Share of the step's time that the verdict names, 0 to 1."""
    confidence: float
    """0 to 1: how often the same data, drawn again, give the same code."""
    missing: tuple[str, ...] = ()
    """What would be needed to say more."""


@dataclass(frozen=True, slots=True)
class HostItem:
    """A part of the `host` segment."""

    name: str
    """`callback ModelCheckpoint.on_train_batch_end`, `validation`, `loop` …"""
    per_step: Quantity
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """Where the time of a steady step goes."""

    mean_s: float
    """Wall time per training step, in its steady state."""
    mean: Quantity
    median: Quantity
    """Of the steps alone, without what happens between epochs."""
    segments: dict[str, Maybe]
    """All of `SEGMENTS`, seconds per step; those that are not missing add up to `mean_s`."""
    host_items: tuple[HostItem, ...] = ()
    warmup_steps: int = 0
    steady_steps: int = 0
    outliers: int = 0
    """Steady steps beyond three times the interquartile range; they are in the mean."""
    first_step: Maybe = Missing("not measured")
    """The first call, with tracing and compilation."""
    compile_once: Maybe = Missing("not measured")
    """Tracing and compiling, once, before the steady state."""
    first_batch: Maybe = Missing("not measured")
    epoch_restart: Maybe = Missing("no epoch was followed by another while the job was watched")
    """What the first batch of an epoch takes longer than others; its share is in the wait for input."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What any fix can gain at most, in seconds per step."""

    replay: Maybe
    """The step without input: one batch kept on the device."""
    input_alone: Maybe
    """A batch from the input without the model."""
    ideal_overlap: Maybe
    """Input and step perfectly overlapped on this machine's cores."""
    best_speedup: Maybe
    """The step as it is, over the step without input and without the host's share."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number that a finding rests on, with the threshold it was held against."""

    name: str
    quantity: Maybe
    threshold: Quantity | None = None
    relation: Literal["above", "below", ""] = ""
    """On which side of the threshold the number speaks for the finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that costs time, with the numbers that show it."""

    check: str
    title: str
    severity: Severity
    cost: Quantity
    """Share of the step, 0 to 1."""
    evidence: tuple[Evidence, ...]
    where: str = ""
    """The stage, callback, layer or argument, in the caller's words."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change in the caller's code, with the gain it promises and, once tried, the gain it gave."""

    id: str
    """`check/remedy`, unique in a report."""
    check: str
    text: str
    code: str
    """A diff in the words of the caller's own job."""
    predicted: Maybe
    """Speed-up of the step: 1.5 means that steps take two thirds of the time."""
    measured: Maybe = Missing("not tried")
    status: Literal["confirmed", "refuted", "untried"] = "untried"
    reason: str = ""
    """Why it was not tried, or what refuted it."""
    risk: str = ""
    edits: tuple[Edit, ...] = ()
    """The same change, to be made in a copy of the dataset; empty where only the caller can make it."""
    changes: tuple[Change, ...] = ()
    """The same for what is changed in a copy of the model or of the arguments of `fit`."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """What a report consists of; `tfdiag.Report` adds the ways to show and keep it."""

    verdict: Verdict
    step: Step | Missing
    bounds: Bounds
    findings: tuple[Finding, ...]
    suggestions: tuple[Suggestion, ...]
    rejected: tuple[Suggestion, ...]
    measurements: Measurements
    ignored: tuple[str, ...] = ()
    """Checks that the caller silenced."""
    not_run: tuple[tuple[str, str], ...] = ()
    """Checks that could not be decided, each with what was missing."""
    warnings: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

"""`tfdiag.tune`: what a diagnosis confirmed, done to the caller's dataset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tfdiag.diagnosis import diagnose
from tfdiag.errors import UsageError
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Suggestion
from tfdiag.render.report import Report
from tfdiag.trials.apply import Applied, Sameness, apply

__all__ = ["Tuned", "tune"]

_ALLOWED = {"order": "same elements", "unchecked": "same structure"}
"""What the caller may allow, and what is then enough."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """A dataset with the fixes in it, and how they were found."""

    dataset: Any
    """The caller's own where nothing was to be gained."""
    report: Report
    applied: tuple[Suggestion, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    """Confirmed suggestions that were not applied, each with the reason."""

    @property
    def code(self) -> str:
        """Give what does the same in the caller's own words."""
        return "\n".join(one.code for one in self.applied)

    def __str__(self) -> str:
        if not self.applied:
            head = "Nothing was changed: no change was confirmed that keeps the elements as they are."
        else:
            (one,) = self.applied
            assert isinstance(one.measured, Quantity)
            head = f"{one.text}\nmeasured {one.measured.value:.2f}x\n{one.code}"
        return "\n".join([head, *(f"not applied: {name}: {why}" for name, why in self.left)])


def tune(
    model: Any, dataset: Any, *, budget: float = 60.0, allow: Iterable[str] = (), **options: Any
) -> Tuned:
    """Diagnose a job, and give its dataset with the confirmed change that gains most.

    Only a change that keeps the elements and their order is made; `allow=("order",)` lets their order
    change, `allow=("unchecked",)` lets pass what can't be compared because elements are random. The
    caller's dataset stays as it is; `.code` is the same change in the caller's own words. Takes the other
    options of `diagnose`.
    """
    allowed = tuple(allow)
    unknown = [name for name in allowed if name not in _ALLOWED]
    if isinstance(allow, str) or unknown:
        raise UsageError(f"allow: takes several of {', '.join(map(repr, _ALLOWED))}, got {allow!r}")
    if options.pop("verify", True) is not True:
        raise UsageError("tune makes confirmed changes only, so verify can't be false")
    enough: set[Sameness] = {"same sequence", *(_ALLOWED[name] for name in allowed)}  # type: ignore[arg-type]  # literals
    report = diagnose(model, dataset, budget=budget, **options)
    left: list[tuple[str, str]] = []
    applied: Suggestion | None = None
    tuned = dataset
    confirmed = [one for one in report.suggestions if one.status == "confirmed"]
    for one in sorted(confirmed, key=lambda each: -_gain(each)):
        if one.changes or not one.edits:
            # Also where only a part of it is: what was measured is all of it.
            left.append((one.id, f"it changes more than the dataset, which is yours to do:\n{one.code}"))
        elif applied is not None:
            if not set(one.edits) <= set(applied.edits):
                left.append((one.id, f"what it adds to {applied.id} was not measured"))
        else:
            changed = apply(dataset, one.edits)
            why = _why_not(changed, enough)
            if why:
                left.append((one.id, why))
            else:
                applied, tuned = one, changed.dataset
    return Tuned(tuned, report, () if applied is None else (applied,), tuple(left))


def _gain(one: Suggestion) -> float:
    return one.measured.value if isinstance(one.measured, Quantity) else 1.0


def _why_not(changed: Applied, enough: set[Sameness]) -> str:
    if changed.dataset is None:
        return changed.why_not
    if changed.sameness in enough or (changed.sameness == "not checked" and changed.compared == 0):
        return ""
    needed = {sameness: name for name, sameness in _ALLOWED.items()}.get(changed.sameness, "unchecked")
    return f"the elements are the {changed.sameness} only; allow=({needed!r},) lets it pass"

"""What checks of callbacks share: what each costs, and what of it is saving, summaries and syncs.

A cause has one finding: what saving, summaries or syncs are found for is taken off the callback that does it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.steady import Did
from tfdiag.checks import facts
from tfdiag.model.host_work import CallbackFacts, HostWork
from tfdiag.model.measurements import LOOP
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, HostItem

__all__ = [
    "SYNCS_LEAST",
    "Syncs",
    "Work",
    "behind",
    "behind_evidence",
    "every",
    "fetched",
    "limit",
    "own_step",
    "per_step",
    "rest",
    "saves_of",
    "summaries_of",
    "syncs",
    "works",
    "worth_naming",
]  # fmt: skip

SAVERS = ("ModelCheckpoint", "BackupAndRestore")
WRITERS = ("TensorBoard",)
_NO_WAIT = 0.05
"""A step that waits for less than this of its time is not disturbed by its input."""
SYNCS_LEAST = 0.5
"""Per step: what is asked more rarely is no sync of each step."""


@dataclass(frozen=True, slots=True)
class Work:
    """A callback, or a step of the caller's own: seconds and numbers per training step."""

    name: str
    seconds: float
    save_s: float
    summary_s: float
    sync_s: float
    saves: float = 0.0
    summaries: float = 0.0
    syncs: float = 0.0
    written_bytes: float = 0.0
    methods: tuple[HostItem, ...] = ()
    facts: CallbackFacts | None = None

    @property
    def worst(self) -> str:
        """Give the method that takes most."""
        item = max(self.methods, key=lambda item: item.per_step.value, default=None)
        return "" if item is None else item.name.rsplit(".", 1)[1]


@dataclass(frozen=True, slots=True)
class Syncs:
    """Waits of Python for values of tensors, per training step."""

    seconds: float
    asked: float
    of: tuple[Work, ...]
    """Who asks, most costly first."""
    logs_s: float
    """Of it Keras' own fetching of the logs of each batch."""


def works(analysis: Analysis) -> tuple[Work, ...]:
    """Give what each callback costs and does, in the order of the report."""
    if isinstance(analysis.step, Missing):
        return ()
    items: dict[str, list[HostItem]] = {}
    for item in analysis.step.host_items:
        if item.name.startswith("callback "):
            items.setdefault(item.name.removeprefix("callback ").rsplit(".", 1)[0], []).append(item)
    return tuple(_work(analysis, name, tuple(of)) for name, of in items.items())


def _work(analysis: Analysis, name: str, items: tuple[HostItem, ...]) -> Work:
    known = _facts(analysis, name)
    classes = known.classes if known is not None else (name.split(" ", maxsplit=1)[0],)
    total = sum(item.per_step.value for item in items)
    did = {each.method: each for each in _did(analysis) if each.callback == name}
    parts = [0.0, 0.0, 0.0]
    for item in items:
        what = did.get(item.name.rsplit(".", 1)[1])
        if what is None or what.total_s <= 0:
            continue
        # An item may be less than what was timed: a device works on through a part of it.
        scale = item.per_step.value / what.total_s
        for index, seconds in enumerate((what.save_s, what.summary_s, what.sync_s)):
            parts[index] += scale * seconds
    if any(each in SAVERS for each in classes):
        parts = [total, 0.0, 0.0]
    elif any(each in WRITERS for each in classes):
        parts = [0.0, total, 0.0]
    once = per_step(analysis)
    save_s, summary_s, sync_s = parts
    return Work(
        name=name,
        seconds=total,
        save_s=save_s,
        summary_s=summary_s,
        sync_s=sync_s,
        saves=once * sum(each.saves for each in did.values()),
        summaries=once * sum(each.summaries for each in did.values()),
        syncs=once * sum(each.syncs for each in did.values()),
        written_bytes=once * sum(each.written_bytes for each in did.values()),
        methods=items,
        facts=known,
    )


def own_step(analysis: Analysis) -> Work | None:
    """Give what a step of the caller's own saves, writes and waits for, where it was watched."""
    found = next((each for each in _did(analysis) if each.callback == LOOP and each.method == "step"), None)
    if found is None:
        return None
    once = per_step(analysis)
    return Work(
        "the train step", once * found.total_s, once * found.save_s, once * found.summary_s,
        once * found.sync_s, once * found.saves, once * found.summaries, once * found.syncs,
        once * found.written_bytes,
    )  # fmt: skip


def fetched(analysis: Analysis) -> tuple[float, float]:
    """Give the seconds per step in which Keras fetches the logs of batches, and how many values."""
    asked = sum(each.syncs for each in _did(analysis) if each.callback == LOOP and each.method == "logs")
    return analysis.host_item("fetching logs"), asked * per_step(analysis)


def syncs(analysis: Analysis) -> Syncs:
    """Give the waits for values of all of Python together."""
    own = own_step(analysis)
    of = [work for work in works(analysis) if work.sync_s > 0]
    of += [own] if own is not None and own.sync_s > 0 else []
    logs_s, asked = fetched(analysis)
    return Syncs(
        seconds=logs_s + sum(work.sync_s for work in of),
        asked=asked + sum(work.syncs for work in of),
        of=tuple(sorted(of, key=lambda work: -work.sync_s)),
        logs_s=logs_s,
    )


def saves_of(analysis: Analysis, work: Work) -> float:
    """Give the seconds that a finding about saving would claim of it."""
    return work.save_s if worth_naming(analysis, work.save_s) else 0.0


def summaries_of(analysis: Analysis, work: Work) -> float:
    """Give the seconds that a finding about summaries would claim of it."""
    return work.summary_s if worth_naming(analysis, work.summary_s) else 0.0


def rest(analysis: Analysis, work: Work) -> float:
    """Give what of a callback no other finding claims."""
    all_syncs = syncs(analysis)
    claimed = saves_of(analysis, work) + summaries_of(analysis, work)
    if all_syncs.asked >= SYNCS_LEAST and worth_naming(analysis, all_syncs.seconds):
        claimed += work.sync_s
    return max(0.0, work.seconds - claimed)


def behind(analysis: Analysis, seconds: float) -> float:
    """Give what steps take longer because of so many seconds of work between steps, which leaves caches cold.

    The steps right behind it show that they do. The others may not have recovered either: where no input
    works beside the step, what it takes longer than its replay has no other cause that is known.
    """
    if isinstance(analysis.steady, Missing) or isinstance(analysis.step, Missing):
        return 0.0
    all_of_them = sum(item.per_step.value for item in analysis.step.host_items if item.name != "loop")
    longer = analysis.steady.aftermath_s * per_step(analysis)
    if all_of_them <= 0 or longer <= 0:
        return 0.0
    wait = analysis.step.segments["input_wait"]
    if isinstance(wait, Quantity) and analysis.share(wait.value) < _NO_WAIT:
        longer = max(longer, analysis.segment("unexplained"))
    return min(1.0, seconds / all_of_them) * longer


def behind_evidence(seconds: float) -> list[Evidence]:
    """Show what steps take longer behind a callback, where they do."""
    if seconds <= 0:
        return []
    source = "steps right behind it, against others and the replay"
    return [Evidence("steps behind it take longer, per step", Quantity(seconds, "s", source=source))]


def worth_naming(analysis: Analysis, seconds: float) -> bool:
    """Say whether so many seconds of a step are worth a finding."""
    return analysis.crosses(analysis.share(seconds), facts.COST_SHARE)


def every(count: float, runs: str = "step") -> str:
    """Say how often something happens that happens so many times in a step."""
    if count <= 0:
        return ""
    if count >= 1.5:
        return f"{count:.0f} times each {runs}"
    steps = round(1 / count)
    return f"each {runs}" if steps <= 1 else f"every {steps} {runs}s"


def per_step(analysis: Analysis) -> float:
    """Give the calls that a step is."""
    live = analysis.measurements.live
    return 1.0 if isinstance(live, Missing) else 1.0 / live.steps_per_call


def limit(analysis: Analysis) -> Quantity:
    """Give the seconds from which on something is worth a finding."""
    return Quantity(facts.COST_SHARE * facts.mean(analysis), "s", origin="given")


def _did(analysis: Analysis) -> tuple[Did, ...]:
    return () if isinstance(analysis.steady, Missing) else analysis.steady.did


def _facts(analysis: Analysis, name: str) -> CallbackFacts | None:
    known = analysis.measurements.host_work
    if not isinstance(known, HostWork):
        return None
    return next((each for each in known.callbacks if each.name == name), None)

"""What checks of placement share: where the ops of the step run, and what those of a kind cost it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Undecided
from tfdiag.model.placement import Copy, Kind, OpTime, PlacedOp, Placement
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence

__all__ = [
    "accelerators", "bytes_evidence", "copy_seconds", "limit", "main_device", "name", "named", "of_kind",
    "per_call", "placement", "time_evidence", "time_of", "total_bytes",
]  # fmt: skip

_NAMED = 3


def placement(analysis: Analysis) -> Placement:
    """Give where the ops of the step run, or say why it is not known."""
    found = analysis.measurements.placement
    if isinstance(found, Missing):
        raise Undecided(found.reason)
    return found


def accelerators(analysis: Analysis) -> tuple[str, ...]:
    """List the devices beside the CPU that TensorFlow uses in this job."""
    devices = analysis.measurements.environment.devices
    # A physical GPU that is no logical device was hidden by the caller.
    return tuple(d.name for d in devices if d.kind != "CPU" and not d.kind.startswith("physical"))


def main_device(found: Placement) -> str:
    """Give the device on which most of the step's ops run, or say why it is not known."""
    if not found.devices:
        raise Undecided(found.copies_missing or "no op of the step was placed")
    return max(found.devices, key=lambda each: each.ops).device


def of_kind(found: Placement, kind: Kind) -> tuple[PlacedOp, ...]:
    """List the ops of a kind, those that take longest first."""

    def seconds(op: PlacedOp) -> float:
        return op.per_call_s.value if isinstance(op.per_call_s, Quantity) else 0.0

    return tuple(sorted((op for op in found.ops if op.kind == kind), key=seconds, reverse=True))


def per_call(analysis: Analysis) -> int:
    """Give the steps that a call of the train function makes."""
    live = analysis.measurements.live
    return 1 if isinstance(live, Missing) else live.steps_per_call


def time_of(found: Placement, kind: Kind, what: str) -> OpTime:
    """Give how long the ops of a kind hold up a call, or say why it is not known."""
    times = [time for time in found.times if time.kind == kind]
    if not times:
        why = found.times_missing or "the trace of the step does not show them: too quick, or named otherwise"
        raise Undecided(f"{what}, and what they cost is not known: {why}")
    return times[0]


def name(op: PlacedOp) -> str:
    """Name an op as the caller would look for it."""
    called = f"{op.function} ({op.op})" if op.function else op.op
    place = f" in layer {op.layer}" if op.layer else f" in the {op.part}" if op.part else ""
    return called + place + (f" at {op.where}" if op.where else "")


def named(ops: Sequence[PlacedOp]) -> str:
    """Name the first few of several ops."""
    names = list(dict.fromkeys(map(name, ops)))
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def limit(analysis: Analysis) -> Quantity:
    """Give the seconds of a step from which on something is worth a finding."""
    assert not isinstance(analysis.step, Missing)
    return Quantity(facts.COST_SHARE * analysis.step.mean_s, "s", origin="given")


def time_evidence(analysis: Analysis, time: OpTime, alone: str, busy: str) -> tuple[Evidence, ...]:
    """Show what ops of a kind cost a step, held against the threshold."""
    steps = per_call(analysis)
    source = "trace of replayed calls"
    return (
        Evidence(alone, Quantity(time.alone_s / steps, "s", source=source), limit(analysis), "above"),
        Evidence(busy, Quantity(time.busy_s / steps, "s", source=source)),
    )


def copy_seconds(found: Placement, purposes: Iterable[str], what: str) -> float:
    """Give what copies for these purposes take in a call while no kernel runs, or say why it is not known.

    The trace tells the time of a direction, the graph what crosses in it: time goes by bytes.
    """
    wanted = tuple(purposes)
    mine = [copy for copy in found.copies if copy.purpose in wanted]
    if not mine:
        return 0.0
    if found.times_missing or not found.copy_times:
        why = found.times_missing or "the trace of the step shows no copies"
        raise Undecided(f"{what}, and what that costs is not known: {why}")
    total = 0.0
    for time in found.copy_times:
        there = [copy for copy in found.copies if copy.direction == time.direction]
        these = [copy for copy in there if copy.purpose in wanted]
        if len(these) == len(there):
            total += time.alone_s if there else 0.0
            continue
        whole = total_bytes(there)
        if whole is None:
            raise Undecided(
                f"{what}, and the part of the copies from {time.direction} "
                "that this makes is not known: the graph does not know all shapes"
            )
        part = total_bytes(these) or 0.0
        total += time.alone_s * (part / whole if whole > 0 else 0.0)
    return total


def total_bytes(copies: Iterable[Copy]) -> float | None:
    """Add up the bytes of copies, None where some are not known."""
    total = 0.0
    for copy in copies:
        if isinstance(copy.bytes, Missing):
            return None
        total += copy.bytes.value
    return total


def bytes_evidence(name: str, copies: Sequence[Copy]) -> tuple[Evidence, ...]:
    """Show how many bytes cross in a step, where the graph knows them."""
    size = total_bytes(copies)
    if size is None or not copies:
        return ()
    guessed = any(isinstance(copy.bytes, Quantity) and copy.bytes.origin == "estimated" for copy in copies)
    return (
        Evidence(
            name,
            Quantity(
                size, "B", origin="estimated" if guessed else "measured", source="shapes in the graph",
                count=len(copies),
            ),
        ),
    )  # fmt: skip

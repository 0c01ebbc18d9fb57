"""What kind of stage holds up the step, for the checks that tell maps apart, and what other checks say."""

from __future__ import annotations

from dataclasses import dataclass

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.checks import facts, registry
from tfdiag.checks.registry import Check, Undecided
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence

__all__ = [
    "LOCKED", "Others", "call_overhead", "calls", "fixed_parallelism", "input_checks", "is_generator",
    "is_map", "is_python", "left_serial_by_the_job", "locked_evidence", "others", "overhead_part",
    "surely_serial", "worth",
]  # fmt: skip

LOCKED = 0.5
"""From this part on that only one thread at a time can do, more threads hardly help."""


def is_map(stage: StageTime) -> bool:
    """Say whether the caller wrote it as a map; the runtime may have fused it with the batch after it."""
    if stage.node is not None:
        return stage.node.op.removesuffix("Dataset") in ("Map", "ParallelMap")
    return stage.base in ("Map", "ParallelMap", "MapAndBatch")


def is_generator(stage: StageTime) -> bool:
    """Say whether elements come out of Python here."""
    inner = stage.function.datasets if stage.function is not None else ()
    return "Generator" in stage.name or any(name.startswith("Generator") for name in inner) or (
        stage.node is not None and (
            stage.node.op.startswith("Generator") or stage.node.label.startswith("from_generator")
        )
    )  # fmt: skip


def is_python(model: PipelineModel, stage: StageTime) -> bool:
    """Say whether its function calls back into Python."""
    if stage.function is not None:
        return stage.function.python
    return stage.label.partition("(")[2].rstrip(")").split(",")[0] in model.python_functions


def fixed_parallelism(model: PipelineModel, stage: StageTime) -> int | None:
    """Give the number of calls at a time that the caller fixed, None where it is not fixed."""
    if stage.node is not None:
        written = stage.node.parallelism
        return written if written is not None and written >= 1 else None
    ahead = stage.base.startswith("Parallel") or (
        stage.base == "MapAndBatch" and (stage.parallelism > 1 or "num_parallel_calls=" in stage.label)
    )
    # With autotune off, AUTOTUNE becomes a number that can't be told from one that was written.
    return round(stage.parallelism) if ahead and not stage.tunable and model.autotune else None


def left_serial_by_the_job(model: PipelineModel, stage: StageTime) -> bool:
    """Say whether tf.data would run a map in parallel if the job let it."""
    function = stage.function
    if model.autotune or function is None or not is_map(stage) or not stage.serial:
        return False
    return fixed_parallelism(model, stage) is None and not (
        function.stateful or function.python or function.random
    )


def calls(stage: StageTime) -> float:
    """Give how often a stage calls its function for a batch."""
    if stage.calls_per_batch > 0 or stage.sampled:
        return stage.calls_per_batch
    return stage.per_batch * stage.ratio if is_map(stage) or stage.base == "Filter" else 0.0


def call_overhead(model: PipelineModel, stage: StageTime) -> float | None:
    """Give what merely calling its function costs for a batch."""
    return None if model.overhead_s is None else model.overhead_s * calls(stage)


def overhead_part(model: PipelineModel, stage: StageTime) -> float | None:
    """Give the part of a stage's time that merely calling its function takes."""
    cost = call_overhead(model, stage)
    return None if cost is None or stage.per_batch_s <= 0 else min(1.0, cost / stage.per_batch_s)


def surely_serial(model: PipelineModel, stage: StageTime) -> bool:
    """Say whether a map that was written serial runs so; tf.data makes one without state parallel."""
    function = stage.function
    if model.from_model or not model.autotune or function is None:
        return True
    return function.stateful or function.python or function.random


def locked_evidence(stage: StageTime, below: bool) -> tuple[Evidence, ...]:
    """Show how much of a function only one thread at a time can do, where that was sampled."""
    if stage.locked is None:
        return ()
    return (
        Evidence(
            f"part of {stage.label} that only one thread at a time can do",
            Quantity(stage.locked, "share", source="this stage on one thread and on all cores"),
            Quantity(LOCKED, "share", origin="given"),
            "below" if below else "above",
        ),
    )


@dataclass(frozen=True, slots=True)
class Others:
    """What other checks say about the same job."""

    found: tuple[str, ...]
    """Ids of those with a finding."""
    undecided: tuple[tuple[str, str], ...]
    """Ids of those that can't tell, with the reason."""


def others(analysis: Analysis, these: tuple[Check, ...]) -> Others:
    """Ask other checks."""
    found: list[str] = []
    undecided: list[tuple[str, str]] = []
    for check in these:
        try:
            if any(True for _ in check.run(analysis)):
                found.append(check.id)
        except Undecided as reason:
            undecided.append((check.id, str(reason)))
        except Exception as error:  # noqa: BLE001  # as the registry does: one that fails stops no other
            undecided.append((check.id, f"the check failed: {type(error).__name__}"))
    return Others(tuple(found), tuple(undecided))


def input_checks(but: str, rank: int | None = None) -> tuple[Check, ...]:
    """Give the other checks of the input, all or those of a rank."""
    return tuple(
        check
        for check in registry.all_checks()
        if check.topic == "input" and check.id != but and rank in (None, check.rank)
    )


def worth(analysis: Analysis, cost: float) -> bool:
    """Say whether a share of the step is worth a finding."""
    return analysis.crosses(cost, facts.COST_SHARE)

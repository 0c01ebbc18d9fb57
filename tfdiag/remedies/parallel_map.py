"""Run a map on several elements at once."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import with_parallel, with_prefetch
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Maybe
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import computing_share, gain_of, spanning
from tfdiag.remedies.pipeline_code import diff, written

__all__ = ["UNSEEN", "predict", "rewritten", "suggest", "suggest_explicit", "suggest_tune"]

UNSEEN = "not tried: the stage could not be found in the dataset's graph"


def predict(analysis: Analysis, model: PipelineModel, stage: StageTime, *, python: bool) -> Maybe:
    """Predict the step when this stage uses all cores and the other stages stay as they are."""
    cores = usable_cores(analysis.measurements)

    def gain(locked: float | None, source: str) -> Maybe:
        fast = with_parallel(model, stage, cores)
        changed = next(other for one, other in zip(model.stages, fast.stages, strict=True) if one is stage)
        return gain_of(analysis, fast.changed(changed, locked=locked), source)

    spread = f"the stage's time spread over {cores:g} cores"
    if not python or stage.locked is not None:
        held = f", but for the {stage.locked:.0%} that one thread at a time can do" if stage.locked else ""
        return gain(stage.locked, spread + held)
    # Threads help a Python function while it waits; while it computes it mostly holds the lock.
    locked = computing_share(analysis)
    source = f"{spread}, but for the {locked:.0%} in which its Python function computes and holds the lock"
    return spanning(gain(locked, source), gain(0.0, spread), gain(1.0, spread))


def suggest(
    analysis: Analysis, check: str, model: PipelineModel, stage: StageTime, *, python: bool
) -> Suggestion:
    """Suggest parallel calls for a map."""
    target = _target(analysis, stage)
    return Suggestion(
        id=f"{check}/parallel-map",
        check=check,
        text=f"Let {target} work on several elements at once: num_parallel_calls=tf.data.AUTOTUNE.",
        code=_code(analysis, target),
        predicted=predict(analysis, model, stage, python=python),
        risk=(
            "A function with side effects or random state is called in another order; the elements "
            "keep their order. Where that order does not matter, deterministic=False spares the wait for "
            "slow elements as well."
        ),
        reason="" if stage.id >= 0 else UNSEEN,
        edits=(Edit("parallel", stage.id),) if stage.id >= 0 else (),
    )


def suggest_tune(analysis: Analysis, check: str, model: PipelineModel, stage: StageTime) -> Suggestion:
    """Suggest to leave the number of calls to tf.data."""
    target = _target(analysis, stage)
    return Suggestion(
        id=f"{check}/tune",
        check=check,
        text=f"Let tf.data choose how many calls {target} makes at a time: tf.data.AUTOTUNE.",
        code=_code(analysis, target),
        predicted=predict(analysis, model, stage, python=False),
        risk="More threads take more memory, and cores that other work of the job may need.",
        reason="" if stage.id >= 0 else UNSEEN,
        edits=(Edit("tune", stage.id),) if stage.id >= 0 else (),
    )


def suggest_explicit(
    analysis: Analysis, check: str, model: PipelineModel, maps: list[StageTime], *, prefetch: bool
) -> Suggestion:
    """Suggest to write what tf.data would do by itself if it were let, which then does not depend on that.

    Its tuning may settle on fewer threads than there are cores, and on other ones each time; with autotune
    off, AUTOTUNE means all of them.
    """
    targets = [_target(analysis, stage) for stage in maps]
    adds = ", and end the pipeline with prefetch" if prefetch else ""
    fast = model
    for stage in maps:
        fast = with_parallel(fast, stage, usable_cores(analysis.measurements))
    chain = after = written(analysis)
    for target in targets:
        after = rewritten(after, target)
    if prefetch:
        fast, after = with_prefetch(fast), [*after, "prefetch(tf.data.AUTOTUNE)"]
    found = all(stage.id >= 0 for stage in maps)
    edits = (*(Edit("parallel", stage.id) for stage in maps), *([Edit("prefetch")] if prefetch else []))
    return Suggestion(
        id=f"{check}/explicit",
        check=check,
        text=f"Let {' and '.join(targets)} work on several elements at once: "
        f"num_parallel_calls=tf.data.AUTOTUNE takes all cores where autotune is off{adds}. With autotune on "
        "tf.data does this by itself, with as many threads as it sees fit.",
        code=diff(chain, after) if set(targets) <= set(chain) else _code(analysis, "map(…)"),
        predicted=gain_of(analysis, fast, "the maps' time spread over the cores"),
        risk="More threads take more memory, and cores that other work of the job may need.",
        reason="" if found else UNSEEN,
        edits=edits if found else (),
    )


def _target(analysis: Analysis, stage: StageTime) -> str:
    return stage.label if stage.label in written(analysis) else "map(…)"


def _code(analysis: Analysis, target: str) -> str:
    chain = written(analysis)
    if target not in chain:
        return "- dataset.map(fn)\n+ dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)"
    return diff(chain, rewritten(chain, target))


def rewritten(chain: list[str], target: str) -> list[str]:
    """Give the chain in which a map works on several elements at once."""
    function = target.partition(", num_parallel_calls=")[0].removesuffix(")")
    changed = f"{function}, num_parallel_calls=tf.data.AUTOTUNE)"
    return [changed if part == target else part for part in chain]

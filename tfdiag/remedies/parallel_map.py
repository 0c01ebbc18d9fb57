"""Run a map on several elements at once."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import computing_share, gain_with_input_at
from tfdiag.remedies.pipeline_code import diff, written

__all__ = ["predict", "suggest"]


def predict(analysis: Analysis, model: PipelineModel, stage: StageTime) -> Maybe:
    """Predict the step when this stage uses all cores and the other stages stay as they are."""
    if isinstance(analysis.step, Missing):
        return analysis.step
    cores = usable_cores(analysis.measurements)
    others = max((s.per_batch_s / s.parallelism for s in model.stages if s is not stage), default=0.0)
    parallel = max(stage.per_batch_s / cores, others)
    if not _calls_python(model, stage):
        return gain_with_input_at(analysis, parallel, 1.3, f"the stage's time spread over {cores:g} cores")
    # Threads help a Python function while it waits; while it computes it mostly holds the lock.
    locked = computing_share(analysis)
    expected = max(stage.per_batch_s * (locked + (1 - locked) / cores), others)
    return gain_with_input_at(
        analysis,
        expected,
        max(1.0, stage.per_batch_s / expected),
        f"the stage's time spread over {cores:g} cores, but for the {locked:.0%} in which its Python "
        "function computes and holds the interpreter's lock",
        best_s=parallel,
    )


def _calls_python(model: PipelineModel, stage: StageTime) -> bool:
    function = stage.label.partition("(")[2].rstrip(")").split(",")[0]
    return function in model.python_functions


def suggest(analysis: Analysis, check: str, model: PipelineModel, stage: StageTime) -> Suggestion:
    """Suggest parallel calls for a map."""
    chain = written(analysis)
    target = stage.label if stage.label in chain else "map(…)"
    function = target.removesuffix(")").removesuffix(", num_parallel_calls=…")
    changed = f"{function}, num_parallel_calls=tf.data.AUTOTUNE)"
    after = [changed if part == target else part for part in chain]
    return Suggestion(
        id=f"{check}/parallel-map",
        check=check,
        text=f"Let {target} work on several elements at once: num_parallel_calls=tf.data.AUTOTUNE.",
        code=diff(chain, after) if target in chain else (
            "- dataset.map(fn)\n+ dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)"
        ),
        predicted=predict(analysis, model, stage),
        risk=(
            "A function with side effects or random state is called in another order; the elements "
            "keep their order."
        ),
        reason="not tried yet: this version only predicts",
    )  # fmt: skip

"""Take a Python generator out of the way of the step."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import with_parallel
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import computing_share, gain_of, gain_with_input_at, spanning

__all__ = ["predict", "predict_batches", "suggest"]

_CODE = """\
- dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
+ def part(shard):                        # each part yields its own share of the data
+     return tf.data.Dataset.from_generator(generate, args=(shard,), output_signature=signature)
+ dataset = tf.data.Dataset.range({parts}).interleave(
+     part, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
+ ).prefetch(tf.data.AUTOTUNE)"""


_BATCHES = """\
  def generate():
-     for row in rows:
-         yield row
+     for start in range(0, len(rows), n):
+         yield np.stack(rows[start : start + n])   # and no .batch(n) behind it"""
_CROSSING = 4.0
"""Going to Python and back for an element takes this many times a function's call at most."""
_LEAST_LEFT = 0.1


def predict(analysis: Analysis, stage: StageTime | None) -> Maybe:
    """Predict the step when the generator's work is spread over the cores."""
    if isinstance(analysis.step, Missing):
        return analysis.step
    cores = usable_cores(analysis.measurements)
    # A generator that computes holds the interpreter's lock, one that waits does not.
    locked = computing_share(analysis)
    if stage is not None and stage.waiting is not None:
        locked = 1.0 - stage.waiting
    source = (
        f"the generator's time spread over {cores:g} sources, but for the {locked:.0%} in which it computes"
    )
    if stage is not None and isinstance(analysis.pipeline, PipelineModel):
        model = analysis.pipeline
        gains = [_spread(analysis, model, stage, part, source) for part in (locked, 0.0, 1.0)]
        return spanning(*gains)
    if isinstance(analysis.input_alone, Missing):
        return Missing("the generator's own time was not measured")
    per_batch = analysis.input_alone.batch.value
    expected = per_batch * (locked + (1 - locked) / cores)
    return gain_with_input_at(
        analysis, expected, max(1.0, per_batch / expected), source, best_s=per_batch / cores
    )


def _spread(analysis: Analysis, model: PipelineModel, stage: StageTime, locked: float, source: str) -> Maybe:
    cores = usable_cores(analysis.measurements)
    position = model.position(stage)
    held = model.changed(stage, locked=locked)
    return gain_of(analysis, with_parallel(held, held.stages[position], max(2.0, cores)), source)


def predict_batches(analysis: Analysis, stage: StageTime) -> Maybe:
    """Predict the step when the generator yields once for a batch."""
    model = analysis.pipeline
    if isinstance(model, Missing):
        return model
    if model.overhead_s is None:
        return Missing("what calling a function costs was not measured")
    spared = model.overhead_s * max(0.0, stage.per_batch - 1)

    def gain(times: float) -> Maybe:
        left = max(_LEAST_LEFT, 1 - times * spared / stage.per_batch_s)
        cpu = None if stage.cpu_per_batch_s is None else stage.cpu_per_batch_s * left
        changed = model.changed(stage, per_batch_s=stage.per_batch_s * left, cpu_per_batch_s=cpu)
        return gain_of(
            analysis, changed, "a function's call spared for each element; going to Python costs more"
        )

    return spanning(gain(1.0), gain(0.0), gain(_CROSSING))


def suggest(analysis: Analysis, check: str, stage: StageTime | None) -> tuple[Suggestion, ...]:
    """Suggest several sources, or none in Python; and whole batches, where it yields single elements."""
    parts = max(2, int(usable_cores(analysis.measurements)))
    several = Suggestion(
        id=f"{check}/parallel-sources",
        check=check,
        text=(
            "A generator yields from one thread. Keep the data in arrays or TFRecord files and prepare it "
            "with tf.data operations; where it must stay in Python, run several generators side by side."
        ),
        code=_CODE.format(parts=parts),
        predicted=predict(analysis, stage),
        risk="The order of elements changes; a generator that computes in Python still shares one lock.",
        reason="not tried: only the caller can split the generator",
    )
    if stage is None or stage.per_batch <= 1:
        return (several,)
    return several, Suggestion(
        id=f"{check}/whole-batches",
        check=check,
        text=(
            f"It yields {stage.per_batch:.0f} elements for a batch, and each goes from TensorFlow to Python "
            "and back: yield whole batches."
        ),
        code=_BATCHES,
        predicted=predict_batches(analysis, stage),
        risk="What stands behind the generator gets batches then: map, shuffle and filter too.",
        reason="not tried: only the caller can change the generator",
    )

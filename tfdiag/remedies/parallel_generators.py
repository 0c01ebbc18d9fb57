"""Take a Python generator out of the way of the step."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import computing_share, gain_with_input_at

__all__ = ["predict", "suggest"]

_CODE = """\
- dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
+ def part(shard):                        # each part yields its own share of the data
+     return tf.data.Dataset.from_generator(generate, args=(shard,), output_signature=signature)
+ dataset = tf.data.Dataset.range({parts}).interleave(
+     part, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
+ ).prefetch(tf.data.AUTOTUNE)"""


def predict(analysis: Analysis) -> Maybe:
    """Predict the step when the generator's work is spread over the cores."""
    if isinstance(analysis.step, Missing):
        return analysis.step
    cores = usable_cores(analysis.measurements)
    per_batch = _seconds_per_batch(analysis)
    if isinstance(per_batch, Missing):
        return per_batch
    # A generator that computes holds the interpreter's lock, one that waits does not.
    locked = computing_share(analysis)
    expected = per_batch * (locked + (1 - locked) / cores)
    return gain_with_input_at(
        analysis,
        expected,
        max(1.0, per_batch / expected),
        f"the generator's time spread over {cores:g} sources, but for the {locked:.0%} in which it computes",
        best_s=per_batch / cores,
    )


def _seconds_per_batch(analysis: Analysis) -> float | Missing:
    if not isinstance(analysis.input_alone, Missing):
        return analysis.input_alone.batch.value
    if not isinstance(analysis.pipeline, Missing) and analysis.pipeline.slowest is not None:
        return analysis.pipeline.slowest.per_batch_s
    return Missing("the generator's own time was not measured")


def suggest(analysis: Analysis, check: str) -> Suggestion:
    """Suggest several sources, or none in Python."""
    parts = max(2, int(usable_cores(analysis.measurements)))
    return Suggestion(
        id=f"{check}/parallel-sources",
        check=check,
        text=(
            "A generator yields from one thread. Keep the data in arrays or TFRecord files and prepare it "
            "with tf.data operations; where it must stay in Python, run several generators side by side."
        ),
        code=_CODE.format(parts=parts),
        predicted=predict(analysis),
        risk="The order of elements changes; a generator that computes in Python still shares one lock.",
        reason="not tried: only the caller can split the generator",
    )

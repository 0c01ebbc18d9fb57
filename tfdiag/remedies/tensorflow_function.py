"""Take a map's Python function out of the way of the step."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import with_cache, with_parallel
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Maybe
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_of, spanning
from tfdiag.remedies.pipeline_code import diff, written

__all__ = ["predict", "predict_cached", "suggest"]

_MORE, _LESS = 2.0, 0.25
"""Work of the rewritten function as a multiple of what it is in Python: nobody knows before it is written."""
_MEMORY = 0.5
"""The part of the machine's memory that a trial may fill."""


def predict(analysis: Analysis, model: PipelineModel, stage: StageTime) -> Maybe:
    """Predict the step when the function needs no lock, for the same work, twice, or a quarter of it."""
    cores = usable_cores(analysis.measurements)

    def gain(work: float) -> Maybe:
        cpu = None if stage.cpu_per_batch_s is None else stage.cpu_per_batch_s * work
        position = model.position(stage)
        free = model.changed(stage, per_batch_s=stage.per_batch_s * work, cpu_per_batch_s=cpu, locked=0.0)
        fast = with_parallel(free, free.stages[position], max(cores, stage.parallelism))
        return gain_of(
            analysis,
            fast,
            f"the same work without a lock, on {cores:g} cores; the interval is for twice the work to a "
            "quarter of it, because what TensorFlow operations take is not known before they are written",
        )

    return spanning(gain(1.0), gain(_MORE), gain(_LESS))


def predict_cached(analysis: Analysis, model: PipelineModel, stage: StageTime) -> Maybe:
    """Predict the step when the results are read instead of worked out."""
    return gain_of(analysis, with_cache(model, stage), "the results read from memory instead of worked out")


def suggest(analysis: Analysis, check: str, model: PipelineModel, stage: StageTime) -> tuple[Suggestion, ...]:
    """Suggest TensorFlow operations; and to work the results out beforehand, where they may repeat."""
    rewritten = Suggestion(
        id=f"{check}/tensorflow-ops",
        check=check,
        text=(
            f"Write the function of {stage.label} with TensorFlow operations (tf.io, tf.image, tf.strings, "
            "tf.math …): they need no lock, and the map then works on all cores."
        ),
        code=(
            "- dataset.map(lambda x: tf.numpy_function(fn, [x], tf.float32))\n"
            "+ def fn(x):  # the same with TensorFlow operations\n"
            "+     return tf.image.convert_image_dtype(tf.io.decode_jpeg(x), tf.float32)\n"
            "+ dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)"
        ),
        predicted=predict(analysis, model, stage),
        risk="The rewritten function must give the same: compare some elements of both.",
        reason="not tried: only the caller can rewrite the function",
    )
    function = stage.function
    if function is not None and function.random:
        return (rewritten,)
    chain = written(analysis)
    if stage.label in chain:
        place = chain.index(stage.label) + 1
        code = diff(chain, [*chain[:place], "cache()", *chain[place:]])
    else:
        code = "- dataset.map(fn)\n+ dataset.map(fn).cache()"
    tried = _may_be_tried(analysis, model, stage)
    beforehand = Suggestion(
        id=f"{check}/beforehand",
        check=check,
        text=(
            f"Work out what {stage.label} gives once: keep it in memory with cache, or write it to TFRecord "
            "files with a script that uses as many processes as there are cores."
        ),
        code=code,
        predicted=predict_cached(analysis, model, stage),
        risk=(
            "Right only where the function gives the same for the same element; whether it does can't be "
            "seen from outside. What is kept takes memory or disk, and the first epoch is as slow as before."
        ),
        reason="" if tried else
        "not tried: whether what it gives fits in memory, in an order that may repeat, is not known",
        edits=(Edit("cache_after", stage.id),) if tried else (),
    )  # fmt: skip
    return rewritten, beforehand


def _may_be_tried(analysis: Analysis, model: PipelineModel, stage: StageTime) -> bool:
    """Say whether everything that the stage gives surely fits, and nothing below it is random."""
    if stage.node is None or stage.id < 0 or not stage.node.cardinality or not stage.element_bytes:
        return False
    if any(below.node is not None and below.node.random for below in model.upstream(stage)):
        return False
    whole = stage.node.cardinality * stage.element_bytes
    return 0 < whole < _MEMORY * analysis.measurements.environment.memory_bytes

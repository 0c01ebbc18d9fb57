"""Read several files at a time."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.order import inner_datasets, kind
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import with_parallel
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Maybe, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.pipeline_code import diff, written
from tfdiag.remedies.sparing import gain_of_sparing

__all__ = ["MOST_STREAMS", "predict", "streams_of", "suggest_interleave", "suggest_parallel_reads"]

MOST_STREAMS = 16
"""More files than this are not read at a time."""
_READS_PER_CORE = 4
_PESSIMIST = 4
"""Storage that is near its limit lets only a part of the streams be read at a time."""

_POOL = """
+ options = tf.data.Options()
+ options.threading.private_threadpool_size = {count}
+ dataset = dataset.with_options(options)"""


def streams_of(model: PipelineModel, stage: StageTime) -> int:
    """Give how many files to read at a time.

    Both numbers of the interleave are written out. Left to itself it cycles over a third of the cores, and
    AUTOTUNE gives it no more threads than there are cores, waiting or not: on two cores, 16 files of waits
    were read 1.0 times as fast with neither number, 1.8 with the cycle, and 15.9 with both (TensorFlow 2.21).
    """
    files = inner_datasets(model, stage)
    return MOST_STREAMS if files is None else max(1, min(files, MOST_STREAMS))


def predict(analysis: Analysis, model: PipelineModel, stage: StageTime, streams: float, source: str) -> Maybe:
    """Predict the step when a stage reads several streams: its waits overlap, its computing needs cores.

    How much of it storage stands is not known, so the prediction reaches down to a part of the streams.
    """
    expected = gain_of_sparing(analysis, _read(analysis, model, stage, streams), source)
    fewer = max(1.0, stage.parallelism, streams / _PESSIMIST)
    worst = gain_of_sparing(analysis, _read(analysis, model, stage, fewer), source)
    if not isinstance(expected, Quantity) or not isinstance(worst, Quantity) or not stage.waiting:
        return expected
    assert expected.low is not None
    low = expected.low + (min(expected.low, worst.low or expected.low) - expected.low) * stage.waiting
    return Quantity(expected.value, "x", low, expected.high, "estimated", source)


def _read(analysis: Analysis, model: PipelineModel, stage: StageTime, streams: float) -> PipelineModel:
    waiting = stage.waiting or 0.0
    workers = min(streams, max(1.0, usable_cores(analysis.measurements)))
    shared = waiting / streams + (1 - waiting) / workers
    return with_parallel(model, stage, 1 / shared)


def suggest_interleave(
    analysis: Analysis, check: str, model: PipelineModel, stage: StageTime, *, streams: int | None = None
) -> Suggestion:
    """Suggest a parallel interleave of the files."""
    count = streams_of(model, stage) if streams is None else streams
    chain = written(analysis)
    arguments = f"cycle_length={count}, num_parallel_calls={count}"
    return Suggestion(
        id=f"{check}/interleave",
        check=check,
        text=f"Read {count} files at a time: interleave with both numbers written out, because AUTOTUNE "
        "counts cores, not waits.",
        code=_interleaved(chain, stage, arguments),
        predicted=predict(analysis, model, stage, count, f"{count} files read at a time"),
        risk="Elements come in another order, the same in every pass; more files are open at a time.",
        reason="not tried yet: this version only predicts",
        edits=(Edit("interleave", stage.id, count),) if stage.id >= 0 else (),
    )


def _interleaved(chain: list[str], stage: StageTime, arguments: str) -> str:
    if stage.label not in chain:
        return f"- tf.data.TFRecordDataset(files)\n+ {_fresh('TFRecordDataset', arguments)}"
    at = chain.index(stage.label)
    word, _, rest = stage.label.partition("(")
    if kind(stage) in ("FlatMap", "Interleave") and word in ("flat_map", "interleave"):
        function = rest.rstrip(")").split(", ")[0]
        return diff(chain, [*chain[:at], f"interleave({function}, {arguments})", *chain[at + 1 :]])
    new = ["Dataset.from_tensor_slices(files)", f"interleave(tf.data.{word}, {arguments})"]
    return diff(chain, [*chain[:at], *new, *chain[at + 1 :]])


def _fresh(reader: str, arguments: str) -> str:
    return f"tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.{reader}, {arguments})"


def suggest_parallel_reads(
    analysis: Analysis, check: str, model: PipelineModel, stage: StageTime
) -> Suggestion:
    """Suggest more calls at a time, above the cores, for a map that waits for its files."""
    cores = usable_cores(analysis.measurements)
    count = int(max(MOST_STREAMS, _READS_PER_CORE * cores, 2 * stage.parallelism))
    chain = written(analysis)
    function = stage.label.removesuffix(")").split(", num_parallel_calls")[0]
    changed = f"{function}, num_parallel_calls={count})"
    after = [changed if part == stage.label else part for part in chain]
    return Suggestion(
        id=f"{check}/parallel-reads",
        check=check,
        text=f"Read {count} files at a time, on a pool of as many threads: without one, functions share as "
        "many threads as there are cores, whatever num_parallel_calls says.",
        code=(
            diff(chain, after)
            if stage.label in chain
            else f"- dataset.map(fn)\n+ dataset.map(fn, num_parallel_calls={count})"
        )
        + _POOL.format(count=count),
        predicted=predict(analysis, model, stage, count, f"{count} reads at a time"),
        risk="Storage may not stand so many reads at a time; so many elements are held in memory.",
        reason="not tried yet: this version only predicts",
        edits=(Edit("parallel", stage.id, count), Edit("threads", value=count)) if stage.id >= 0 else (),
    )

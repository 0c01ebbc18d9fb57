"""Read several files at a time."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.analyse.order import inner_datasets, kind
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import with_interleave, with_parallel
from tfdiag.model import pipeline
from tfdiag.model.pipeline import MOST_STREAMS, Edit
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_of
from tfdiag.remedies.pipeline_code import diff, written
from tfdiag.remedies.sparing import gain_of_sparing

__all__ = [
    "helps", "interleaved", "predict", "streams_of", "suggest_fewer_files", "suggest_interleave",
    "suggest_parallel_reads",
]  # fmt: skip

_READS_PER_CORE = 4
_HELPS = 0.9
"""Above this part of its time a stage that reads several files at a time is no faster."""
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
    if stage.interleaved is not None:
        return int(stage.interleaved.threads)
    return pipeline.streams(inner_datasets(model, stage), stage.waiting, model.cores)


def predict(analysis: Analysis, model: PipelineModel, stage: StageTime, streams: float, source: str) -> Maybe:
    """Predict the step when a stage reads several streams: its waits overlap, its computing needs cores.

    How much of it storage stands is seen only where it was sampled; else the prediction reaches down to a
    part of the streams.
    """
    if stage.interleaved is not None and stage.interleaved.threads == streams:
        return gain_of(analysis, with_interleave(model, stage), f"{source}, sampled alone")
    expected = gain_of_sparing(analysis, _read(analysis, model, stage, streams), source)
    fewer = max(1.0, stage.parallelism, streams / _PESSIMIST)
    worst = gain_of_sparing(analysis, _read(analysis, model, stage, fewer), source)
    if not isinstance(expected, Quantity) or not isinstance(worst, Quantity) or not stage.waiting:
        return expected
    assert expected.low is not None
    low = expected.low + (min(expected.low, worst.low or expected.low) - expected.low) * stage.waiting
    return Quantity(expected.value, "x", low, expected.high, "estimated", source)


def _read(analysis: Analysis, model: PipelineModel, stage: StageTime, streams: float) -> PipelineModel:
    if stage.together is not None:
        return with_parallel(model, stage, streams)  # which knows what waits of what was sampled
    workers = min(streams, max(1.0, usable_cores(analysis.measurements)))
    shared = max(1 / streams, (1 - (stage.waiting or 0.0)) / workers)
    return with_parallel(model, stage, 1 / shared)


def suggest_fewer_files(check: str, model: PipelineModel, stage: StageTime) -> Suggestion:
    """Suggest larger files, where reading several at a time was tried and gives nothing."""
    assert stage.interleaved is not None
    files = inner_datasets(model, stage)
    many = "" if files is None else f"{files:,} "
    return Suggestion(
        id=f"{check}/fewer-files",
        check=check,
        text=f"Pack the records of these {many}files into fewer, larger ones. Reading "
        f"{stage.interleaved.threads:g} of them at a time was sampled and is no faster.",
        code="+ with tf.io.TFRecordWriter(path) as writer:  # once, ahead of training\n"
        "+     for record in tf.data.TFRecordDataset(files):\n"
        "+         writer.write(record.numpy())",
        predicted=Missing("how quick larger files are was not measured: there are none"),
        risk="Shuffling whole files mixes less when there are fewer of them.",
        reason="not tried: only the caller can write the files anew",
    )


def helps(stage: StageTime) -> bool:
    """Say whether reading several files at a time is faster, or was not sampled."""
    return stage.interleaved is None or stage.interleaved.seconds < _HELPS * stage.per_batch_s


def suggest_interleave(
    analysis: Analysis, check: str, model: PipelineModel, stage: StageTime, *, streams: int | None = None
) -> Suggestion:
    """Suggest a parallel interleave of the files."""
    count = streams_of(model, stage) if streams is None else streams
    chain = written(analysis)
    pool = (Edit("threads", value=count),) if count > model.cores and _calls_functions(stage) else ()
    return Suggestion(
        id=f"{check}/interleave",
        check=check,
        text=f"Read {count} files at a time: interleave with both numbers written out, because AUTOTUNE "
        "counts cores, not waits.",
        code=_code(chain, stage, count) + (_POOL.format(count=count) if pool else ""),
        predicted=predict(analysis, model, stage, count, f"{count} files read at a time"),
        risk="Elements come in another order, the same in every pass; more files are open at a time.",
        edits=(Edit("interleave", stage.id, count), *pool) if stage.id >= 0 else (),
    )


def _calls_functions(stage: StageTime) -> bool:
    """Say whether what it reads is made by functions, which share as many threads as there are cores."""
    inner = stage.function.datasets if stage.function is not None else ()
    return any("Map" in op and "FlatMap" not in op for op in inner)


def interleaved(chain: list[str], stage: StageTime, count: int) -> list[str]:
    """Give the chain in which a stage that stands in it reads so many files at a time."""
    arguments = _arguments(count)
    at = chain.index(stage.label)
    word, _, rest = stage.label.partition("(")
    if kind(stage) in ("FlatMap", "Interleave") and word in ("flat_map", "interleave"):
        function = rest.rstrip(")").split(", ")[0]
        return [*chain[:at], f"interleave({function}, {arguments})", *chain[at + 1 :]]
    new = ["Dataset.from_tensor_slices(files)", f"interleave(tf.data.{word}, {arguments})"]
    return [*chain[:at], *new, *chain[at + 1 :]]


def _arguments(count: int) -> str:
    return f"cycle_length={count}, num_parallel_calls={count}"


def _code(chain: list[str], stage: StageTime, count: int) -> str:
    if stage.label in chain:
        return diff(chain, interleaved(chain, stage, count))
    fresh = "tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset, "
    return f"- tf.data.TFRecordDataset(files)\n+ {fresh}{_arguments(count)})"


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
        edits=(Edit("parallel", stage.id, count), Edit("threads", value=count)) if stage.id >= 0 else (),
    )

"""Read files that are not compressed."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.pipeline_code import diff, written
from tfdiag.remedies.sparing import gain_of_sparing

__all__ = ["predict", "suggest"]

_BYTES_PER_S = 1e9
"""What one thread reads of records that are not compressed, checksums with it: an assumption."""
_SLOW, _FAST = 2e8, 3e9
"""Storage that is slower or faster than that."""


def predict(analysis: Analysis, model: PipelineModel, stage: StageTime) -> Maybe:
    """Predict the step when reading a batch is little more than copying its bytes."""
    if not stage.element_bytes:
        return Missing(f"the size of an element of {stage.label} is not known")
    size = stage.element_bytes * stage.per_batch
    source = f"its bytes read at {_BYTES_PER_S / 1e9:g} GB/s on a thread, an assumption"
    slow, middle, fast = (
        gain_of_sparing(analysis, _reading_at(model, stage, size / rate), source)
        for rate in (_SLOW, _BYTES_PER_S, _FAST)
    )
    if not isinstance(middle, Quantity) or not isinstance(slow, Quantity) or not isinstance(fast, Quantity):
        return middle
    return Quantity(middle.value, "x", slow.low, fast.high, "estimated", source)


def _reading_at(model: PipelineModel, stage: StageTime, seconds: float) -> PipelineModel:
    seconds = min(seconds, stage.per_batch_s)
    return model.changed(stage, per_batch_s=seconds, cpu_per_batch_s=seconds, locked=None)


def suggest(analysis: Analysis, check: str, model: PipelineModel, stage: StageTime) -> Suggestion:
    """Suggest files without compression."""
    compression = stage.node.compression if stage.node is not None else "GZIP"
    chain = written(analysis)
    word = stage.label.partition("(")[0]
    plain = f"{word}(uncompressed_files)"
    return Suggestion(
        id=f"{check}/uncompressed",
        check=check,
        text="Write the files without compression; keep what is large in them compressed (JPEG, PNG).",
        code=diff(chain, [plain if part == stage.label else part for part in chain])
        if stage.label in chain and word.endswith("Dataset")
        else f'- tf.data.TFRecordDataset(files, compression_type="{compression}")\n'
        "+ tf.data.TFRecordDataset(uncompressed_files)",
        predicted=predict(analysis, model, stage),
        risk="The files get larger; where storage is slower than unpacking, so does the input.",
        reason="not tried: only the caller can write the files anew",
    )

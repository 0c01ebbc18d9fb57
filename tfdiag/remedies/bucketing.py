"""Rows of about the same length in one batch."""

from __future__ import annotations

import math

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.layers import Padding
from tfdiag.model.quantity import Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import speedup

__all__ = ["suggest"]

_LEFT = 0.15
"""Of the padding, with a handful of buckets."""
_LEFT_AT_MOST = 0.5


def suggest(analysis: Analysis, check: str, padding: Padding, each_s: float) -> Suggestion:
    """Suggest buckets by length; what a step then takes follows from its time at two lengths."""
    spare = each_s * (padding.length - padding.row_length)
    mean = 0.0 if isinstance(analysis.step, Missing) else analysis.step.mean_s
    ends = [max(mean - part * spare, 0.05 * mean) for part in (1.0, 1 - _LEFT, 1 - _LEFT_AT_MOST)]
    middle = max(8, math.ceil(padding.row_length / 8) * 8)
    bounds = sorted({max(4, middle // 2), middle, min(2 * middle, math.ceil(padding.length))})
    before = ""
    if padding.side == "left":
        before = (
            "Padding is at the beginning of rows: buckets pad the end, as masks and fused kernels prefer. "
        )
    return Suggestion(
        id=f"{check}/buckets",
        check=check,
        text="Batch rows of about the same length together, and pad each batch to its own longest row. "
        "The lengths in the code are those of the batches that were seen.",
        code=(
            "- dataset = dataset.padded_batch(size)  # or arrays from pad_sequences\n"
            "+ dataset = dataset.bucket_by_sequence_length(  # rows without padding\n"
            "+     lambda x, y: tf.shape(x)[0],\n"
            f"+     bucket_boundaries={bounds},\n"
            f"+     bucket_batch_sizes=[size] * {len(bounds) + 1},\n"
            "+ )"
        ),
        predicted=speedup(
            analysis, ends[1], ends[0], ends[2], "the step's time at two lengths, the mean length of rows"
        ),
        risk=before
        + "Rows are no longer mixed with rows of any length: shuffle before the buckets. The model must "
        "take any length (keras.Input((None,))), and each new length is traced once.",
        reason="not tried: only the caller can give rows without their padding",
    )

"""Much of a batch is padding, and the step takes longer because of it.

What it measures
    What embeddings and masking layers are given by real batches: the part of all positions that holds
    nothing, at the end of rows or at their beginning. Then the step is timed on one batch and on the same
    batch cut to the mean length of its rows, by turns. It fires when padding is a quarter of a batch or
    more, and the time that the step takes for it is a share worth naming.
Why it matters
    A mask keeps padding out of the result, not out of the computation: each layer computes every position.
How to fix it
    Put rows of about the same length into one batch (`bucket_by_sequence_length`), and pad a batch to its own
    longest row instead of the longest of all (`padded_batch`).
When to ignore it
    When the model needs one length for all, as XLA on a TPU does, or when order matters.
References
    https://www.tensorflow.org/api_docs/python/tf/data/Dataset#bucket_by_sequence_length
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tfdiag import stats
from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, parts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.layers import Padding
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import bucketing

__all__ = ["CHECK"]

_PADDED = 0.25


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when a step of rows without their padding is quicker by a share worth naming."""
    found = parts.model(analysis)
    for padding in found.padding[:1]:
        if isinstance(padding.share, Missing) or padding.share.value < _PADDED:
            return
        if len(padding.calls) != 2 or len(padding.calls[0].call_s) < 3:
            why = padding.calls_missing or "it was not timed at two lengths"
            raise Undecided(
                f"{padding.share.value:.0%} of a batch is padding, and what that costs is not known: {why}"
            )
        each_s = _per_position(analysis, padding)
        seconds = each_s * (padding.length - padding.row_length)
        cost = min(1.0, analysis.share(seconds))
        if not analysis.crosses(cost, facts.COST_SHARE):
            return
        yield _result(analysis, padding, each_s, seconds, cost)


def _per_position(analysis: Analysis, padding: Padding) -> float:
    """Give what a step takes longer for one more position, from its times at two lengths."""
    live = analysis.measurements.live
    steps = 1 if isinstance(live, Missing) else live.steps_per_call
    whole, cut = padding.calls
    longer = stats.median(np.array(whole.call_s) - np.array(cut.call_s)).value / steps
    each = max(0.0, longer) / (whole.length - cut.length)
    # The batch that was kept may be longer than others.
    usual = float(np.median(whole.call_s)) / steps - each * (whole.length - padding.length)
    return each * parts.speed(analysis, usual)


def _result(analysis: Analysis, padding: Padding, each_s: float, seconds: float, cost: float) -> Result:
    whole, cut = padding.calls
    assert isinstance(padding.share, Quantity)
    side = "end" if padding.side == "right" else "beginning"
    return Result(
        Finding(
            check=CHECK.id,
            title=f"{padding.share.value:.0%} of each batch is padding",
            severity=severity_of(cost),
            cost=facts.share(
                cost, source="the step on a batch, and on the batch cut to the mean length of its rows"
            ),
            evidence=(
                parts.time_evidence(
                    analysis,
                    "time that the step takes for padding",
                    seconds,
                    "replay, at the job's speed",
                ),
                Evidence(
                    "part of positions that is padding",
                    padding.share,
                    Quantity(_PADDED, "share", origin="given"),
                    "above",
                ),
                Evidence("length of a batch", Quantity(padding.length, "positions", count=padding.batches)),
                Evidence(
                    "mean length of its rows", Quantity(padding.row_length, "positions", count=padding.rows)
                ),
                Evidence(f"a call at length {whole.length}", _call(whole.call_s)),
                Evidence(f"a call at length {cut.length}", _call(cut.call_s)),
            ),
            where=f"what layer {padding.layer} is given: {padding.value:g} at the {side} of rows",
        ),
        (bucketing.suggest(analysis, CHECK.id, padding, each_s),),
    )


def _call(series: tuple[float, ...]) -> Quantity:
    middle = stats.median(np.array(series))
    return Quantity(middle.value, "s", middle.low, middle.high, source="replay", count=middle.count)


CHECK = Check("padding-waste", "Much of a batch is padding", "compute", __doc__, run)

"""Prepare the next batch while the step runs."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.prediction import with_prefetch
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_of, gain_with_input_at
from tfdiag.remedies.pipeline_code import diff, written

__all__ = ["predict", "suggest"]

_SPREAD = 1.25
"""How much slower an input gets beside a running step: it shares cores and memory bandwidth."""


def predict(analysis: Analysis) -> Maybe:
    """Predict the step when input and step overlap."""
    model = analysis.pipeline
    if not isinstance(model, Missing) and model.known:
        return gain_of(analysis, with_prefetch(model), "input and step overlapped, from the stages' times")
    alone = analysis.input_alone
    if isinstance(alone, Missing):
        return Missing(f"the input alone was not measured: {alone.reason}")
    return gain_with_input_at(
        analysis, alone.batch.value, _SPREAD, "input and step overlapped, from both measured alone"
    )


def suggest(analysis: Analysis, check: str) -> Suggestion:
    """Suggest a prefetch at the end of the pipeline."""
    chain = written(analysis)
    return Suggestion(
        id=f"{check}/prefetch",
        check=check,
        text="Prepare the next batches while the step runs: end the pipeline with prefetch.",
        code=diff(chain, [*chain, "prefetch(tf.data.AUTOTUNE)"])
        if chain
        else "- dataset\n+ dataset.prefetch(tf.data.AUTOTUNE)",
        predicted=predict(analysis),
        risk="A few batches more are held in memory.",
        edits=(Edit("prefetch"),),
    )

"""One op instead of a loop: on whole batches, or in a fused kernel."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.layers import Loop, Recurrent
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["fused", "suggest"]

_GOES = 0.85
"""Of a loop's time, when its work is done by few ops: the work itself stays."""
_ADVICE = "not tried: only the caller can change the model"


def suggest(analysis: Analysis, check: str, loop: Loop, seconds: float) -> Suggestion:
    """Suggest to do all rounds of a loop at once."""
    of = f" of layer {loop.layer}" if loop.layer else f" of the {loop.part}" if loop.part else ""
    if loop.kind == "map_fn":
        text = f"Give the function{of} the whole batch, or use tf.vectorized_map: map_fn calls it row by row."
        code = (
            "- y = tf.map_fn(fn, x)\n+ y = tf.vectorized_map(fn, x)  # or fn(x), written for a batch of rows"
        )
    elif loop.kind == "recurrent":
        text = (
            f"Use LSTM or GRU with their default arguments{of}: a GPU does all of time in one fused kernel."
        )
        code = "- layer = keras.layers.RNN(cell)\n+ layer = keras.layers.LSTM(units)"
    elif loop.kind == "scan":
        text = f"Replace the scan{of} by an op over the whole axis, where there is one: cumsum, cumprod."
        code = "- y = tf.scan(lambda a, b: a + b, x)\n+ y = tf.cumsum(x, axis=0)"
    else:
        text = f"Do the rounds of the loop{of} at once: stack what differs between them."
        code = (
            "- for i in tf.range(n):\n-     y = y.write(i, fn(x[i]))\n"
            "+ y = fn(x)  # ops on all rows; what all rounds share is broadcast"
        )
    return Suggestion(
        id=f"{check}/at-once",
        check=check,
        text=text,
        code=code,
        predicted=gain_without(
            analysis,
            _GOES * seconds,
            at_least=0.4,
            at_most=1.02 / _GOES,
            source="the step less most of the time measured in the loop",
        ),
        risk="All rounds at once need memory for all of them, and results may differ in the last digits.",
        reason=_ADVICE,
    )


def fused(analysis: Analysis, check: str, layer: Recurrent, seconds: float) -> Suggestion:
    """Suggest the arguments with which a GPU uses its fused kernel."""
    names = " and ".join(each.split("=")[0] for each in layer.off)
    removed = "\n".join(f"-     {argument}," for argument in layer.off)
    return Suggestion(
        id=f"{check}/{layer.layer}",
        check=check,
        text=f"Give layer {layer.layer} the default for {names}: {layer.cls} then runs in one fused kernel.",
        code=f"  keras.layers.{layer.cls}(\n      {layer.units},\n{removed}\n+     # defaults\n  )",
        predicted=gain_without(
            analysis,
            0.75 * seconds,
            at_least=0.4,
            at_most=1.3,
            source="the step less most of the time measured in the layer; the fused kernel was not timed",
        ),
        risk="The layer then computes something else: an activation or a dropout in the recurrence is gone. "
        "Weights that were trained do not carry over.",
        reason=_ADVICE,
    )

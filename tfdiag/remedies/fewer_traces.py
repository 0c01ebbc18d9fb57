"""Trace and compile the step once."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.compilation import Trace
from tfdiag.model.quantity import Maybe
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest", "suggest_one_shape", "suggest_without_xla"]

_UNTRIED = "not tried: only the caller can change what the step is called with"
_SHAPES = "- dataset.batch(n)\n+ dataset.batch(n, drop_remainder=True)"


def suggest(analysis: Analysis, check: str, seconds: float, trace: Trace | None) -> Suggestion:
    """Suggest what keeps the argument that changes from being part of the graph."""
    cause = "unknown" if trace is None else trace.cause
    argument = "" if trace is None else trace.argument
    function = "train_step" if trace is None else trace.function
    before, after = ("", "") if trace is None else (trace.before, trace.after)
    name = argument.split("[", maxsplit=1)[0] or "value"
    texts = {
        "value": (
            f"Pass {argument} as a tensor: a Python value is part of the graph, and each new one is traced.",
            f"- {function}(…, {name}={name})\n+ {function}(…, {name}=tf.constant({name}))",
        ),
        "shape": (
            f"Give {argument} one shape: drop the rest of the rows, pad to few lengths, or let one trace do.",
            f"{_SHAPES}\n- @tf.function\n+ @tf.function(reduce_retracing=True)",
        ),
        "type": (
            f"Give {argument} one type: it was {before}, then {after}.",
            f"+ {name} = tf.cast({name}, tf.float32)",
        ),
        "object": (
            f"{argument} is another object each time: make it once, or pass the tensors in it.",
            f"+ {name} = …  # once, before the loop\n  {function}(…, {name})",
        ),
        "made anew": (
            "The tf.function is made anew each time it is called: make it once, outside of the loop.",
            (
                f"+ {function} = tf.function({function})  # once, before the loop\n  for batch in dataset:\n"
                f"-     tf.function({function})(batch)\n+     {function}(batch)"
            ),
        ),
    }
    text, code = texts.get(
        cause,
        (
            "Call the step with tensors of one shape and type, and with the same Python objects.",
            f"{_SHAPES}\n- @tf.function\n+ @tf.function(reduce_retracing=True)",
        ),
    )
    return Suggestion(
        id=f"{check}/one-trace",
        check=check,
        text=text,
        code=code,
        predicted=_gain(analysis, seconds, "the step less what traced calls take longer"),
        risk="A value that is a tensor can't choose between Python branches any more.",
        reason=_UNTRIED,
    )


def suggest_one_shape(analysis: Analysis, check: str, seconds: float) -> Suggestion:
    """Suggest few shapes for what XLA compiles."""
    return Suggestion(
        id=f"{check}/few-shapes",
        check=check,
        text="Give batches few shapes: pad to fixed lengths, and drop the rest of the rows.",
        code=(
            "- dataset.padded_batch(n)\n+ dataset.bucket_by_sequence_length(\n"
            "+     length, [64, 128, 256], [n, n, n, n], pad_to_bucket_boundary=True, drop_remainder=True)"
        ),
        predicted=_gain(analysis, seconds, "the step less what calls that compile take longer"),
        risk="Padding is computed as well.",
        reason="not tried: only the caller knows which lengths there may be",
    )


def suggest_without_xla(analysis: Analysis, check: str, seconds: float) -> Suggestion:
    """Suggest to leave XLA off."""
    return Suggestion(
        id=f"{check}/no-xla",
        check=check,
        text="Compile the model without XLA: a graph takes every shape as it comes.",
        code="- model.compile(…, jit_compile=True)\n+ model.compile(…, jit_compile=False)",
        predicted=_gain(analysis, seconds, "the step less what calls that compile take longer"),
        risk="What XLA fuses runs op by op again.",
        changes=(Change("jit_compile", value=False),),
    )


def _gain(analysis: Analysis, seconds: float, source: str) -> Maybe:
    return gain_without(analysis, seconds, at_least=0.7, at_most=1.05, source=source)

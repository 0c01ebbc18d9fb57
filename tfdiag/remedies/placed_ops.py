"""Put ops where they hold up nothing: on the accelerator, or into the dataset."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.placement import Copy, PlacedOp
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = [
    "fewer_copies", "gain", "instead_of_python", "model_on_accelerator", "on_the_accelerator",
    "text_in_dataset",
]  # fmt: skip

_MOST = 0.95
"""Of the step: something always stays."""
_ADVICE = "not tried: only the caller can change the model"


def gain(analysis: Analysis, seconds: float, *, at_least: float = 0.6) -> Maybe:
    """Predict the step without most of the time that is spent in the wrong place."""
    if isinstance(analysis.step, Missing):
        return analysis.step
    return gain_without(
        analysis,
        min(seconds, _MOST * analysis.step.mean_s),
        at_least=at_least,
        at_most=1.02,
        source="the step less the time measured for it",
    )


def instead_of_python(analysis: Analysis, check: str, op: PlacedOp, seconds: float) -> tuple[Suggestion, ...]:
    """Suggest TensorFlow operations; and a callback for what only watches."""
    function = op.function if op.function.isidentifier() else "fn"
    of = f" of layer {op.layer}" if op.layer else f" of the {op.part}" if op.part else ""
    looped = " It is called once for each element: work on whole batches instead." if op.in_loop else ""
    return (
        Suggestion(
            id=f"{check}/tensorflow-ops",
            check=check,
            text=f"Write {function}{of} with TensorFlow operations, which stay in the graph.{looped}",
            code=(
                f"- y = tf.py_function({function}, [x], tf.float32)\n"
                f"+ y = {function}_in_tensorflow(x)  # tf.math, tf.signal, tf.linalg, keras.ops …"
            ),
            predicted=gain(analysis, seconds, at_least=0.3),
            risk="The rewritten function must give the same, gradients too: compare both on some batches.",
            reason=_ADVICE,
        ),
    )


def text_in_dataset(analysis: Analysis, check: str, op: PlacedOp, seconds: float) -> Suggestion:
    """Suggest to map the dataset with the layer."""
    layer = op.layer if op.layer.isidentifier() else "vectorize"
    return Suggestion(
        id=f"{check}/in-dataset",
        check=check,
        text=f"Take {op.layer or 'the text ops'} out of the model, and map the dataset with it instead.",
        code=(
            f"- model = keras.Sequential([{layer}, …])\n"
            "+ model = keras.Sequential([…])\n"
            f"+ dataset = dataset.map(lambda x, y: ({layer}(x), y), num_parallel_calls=tf.data.AUTOTUNE)\n"
            "+ dataset = dataset.prefetch(tf.data.AUTOTUNE)"
        ),
        predicted=gain(analysis, seconds, at_least=0.3),
        risk="The model then takes numbers instead of text: for serving, put the layer in front of it again. "
        "Where the cores are busy already, the work only moves.",
        reason=_ADVICE,
    )


_PINNED = '- with tf.device("/CPU:0"):\n-     y = layer(x)\n+ y = layer(x)'


def on_the_accelerator(analysis: Analysis, check: str, op: PlacedOp, seconds: float) -> Suggestion:
    """Suggest what lets an op run on the accelerator, by why it does not."""
    of = f" in layer {op.layer}" if op.layer else ""
    if op.reason == "pinned":
        text, code = f"Take the tf.device around {op.op}{of} away.", _PINNED
    elif op.reason == "no kernel for this type":
        text = f"Give {op.op}{of} a type that the accelerator computes: it has no kernel for {op.dtype}."
        code = f"- x = tf.cast(x, tf.{op.dtype})\n+ x = tf.cast(x, tf.float32)"
    elif op.reason == "variable there":
        text = f"Make the variable of {op.op}{of} on the accelerator."
        code = '- with tf.device("/CPU:0"):\n-     layer.build(shape)\n+ layer.build(shape)'
    else:
        text = f"Use an op that the accelerator has a kernel for, not {op.op}{of}, or do this in the dataset."
        code = f"- y = …  # {op.name}\n+ dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)"
    return Suggestion(
        id=f"{check}/on-the-accelerator",
        check=check,
        text=text,
        code=code,
        predicted=gain(analysis, seconds),
        risk="Results may differ in the last digits, and with a narrower type by more.",
        reason=_ADVICE,
    )


def model_on_accelerator(check: str, predicted: Maybe) -> Suggestion:
    """Suggest to build the model where it is trained."""
    return Suggestion(
        id=f"{check}/build-there",
        check=check,
        text="Build, compile and train the model outside of tf.device: it is then put on the accelerator.",
        code='- with tf.device("/CPU:0"):\n-     model = make_model()\n+ model = make_model()',
        predicted=predicted,
        risk="The weights and what the step keeps between ops have to fit in the accelerator's memory.",
        reason=_ADVICE,
    )


def fewer_copies(analysis: Analysis, check: str, copy: Copy, seconds: float) -> Suggestion:
    """Suggest to keep an op and its reader on one device."""
    return Suggestion(
        id=f"{check}/one-device",
        check=check,
        text=f"Keep {copy.tensor} and {copy.reader or 'what reads it'} on one device: "
        f"it crosses from {copy.source} to {copy.target} in every step.",
        code=_PINNED,
        predicted=gain(analysis, seconds),
        risk="What moves to the accelerator takes memory there.",
        reason=_ADVICE,
    )

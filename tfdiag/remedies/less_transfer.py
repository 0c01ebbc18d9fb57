"""Send fewer bytes to the device, or send them while it computes."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest_ahead", "suggest_narrower", "suggest_overlap", "suggest_smaller"]

_AHEAD = '+ dataset = dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))'


def suggest_smaller(analysis: Analysis, check: str) -> Suggestion:
    """Suggest to send a quarter of the bytes: uint8 for float32."""
    exposed = analysis.segment("host_to_device")
    return Suggestion(
        id=f"{check}/fewer-bytes",
        check=check,
        text="Send fewer bytes: keep images as uint8 until the device has them; cast and scale them there.",
        code=(
            "- dataset = dataset.map(lambda x, y: (tf.cast(x, tf.float32) / 255, y))\n"
            "+ model = keras.Sequential([keras.layers.Rescaling(1 / 255), *model.layers])"
        ),
        predicted=gain_without(
            analysis,
            0.75 * exposed,
            at_least=1 / 3,
            at_most=1.0,
            source="a quarter of the bytes",
        ),
        risk="Only for data that is whole numbers to begin with; the model gets one more layer.",
        reason="not tried: only the caller knows what the data can be reduced to",
    )


def suggest_overlap(analysis: Analysis, check: str, hidden_s: float) -> Suggestion:
    """Suggest to copy the next batch while the step computes."""
    return Suggestion(
        id=f"{check}/prefetch-to-device",
        check=check,
        text="Copy the next batch while the step computes: end the dataset with prefetch_to_device.",
        code=_AHEAD,
        predicted=gain_without(
            analysis, 0.8 * hidden_s, at_least=0.0, at_most=1.25, source="copies hidden behind computing"
        ),
        risk="One more batch in the device's memory. It has to be the last transformation of the dataset.",
        changes=(Change("copy_ahead"),),
    )


def suggest_ahead(analysis: Analysis, check: str) -> Suggestion:
    """Suggest to take the copy out of pageable memory out of the step."""
    exposed = analysis.segment("host_to_device")
    return Suggestion(
        id=f"{check}/prefetch-to-device",
        check=check,
        text="Let copies be made ahead, on a thread of their own: end the dataset with prefetch_to_device.",
        code=_AHEAD,
        predicted=gain_without(
            analysis, 0.5 * exposed, at_least=0.0, at_most=2.0, source="half of the copies made ahead"
        ),
        risk="One more batch in the device's memory. It has to be the last transformation of the dataset.",
        changes=(Change("copy_ahead"),),
    )


def suggest_narrower(analysis: Analysis, check: str, dtype: str, narrow: str, saved_s: float) -> Suggestion:
    """Suggest to copy a narrower type and to cast on the device."""
    if narrow == "float32":
        code = "- x = load()\n+ x = load().astype('float32')"
    else:
        code = (
            f"- dataset = dataset.map(lambda x, y: (tf.cast(x, tf.{dtype}), y))\n"
            f"+ # the input stays {narrow}; in the model, on the device:\n"
            f"+ x = tf.cast(x, tf.{dtype})"
        )
    return Suggestion(
        id=f"{check}/{narrow}",
        check=check,
        text=f"Copy {narrow} instead of {dtype} to the device, and cast there.",
        code=code,
        predicted=gain_without(
            analysis, saved_s, at_least=0.5, at_most=1.1, source="fewer bytes at the bandwidth that was seen"
        ),
        risk="One batch was looked at: others may hold numbers that do not fit.",
        reason="not tried: the cast has to move into the model",
    )

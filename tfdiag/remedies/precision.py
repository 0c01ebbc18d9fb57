"""Compute in another type."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.quantity import Maybe
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest_mixed", "suggest_plain"]


def _saved(analysis: Analysis, seconds: float, source: str) -> Maybe:
    """Predict the step when `seconds` of its products go away; what goes with them is not known."""
    return gain_without(analysis, seconds, at_least=0.3, at_most=1.3, source=source)


def suggest_mixed(analysis: Analysis, check: str, seconds: float) -> Suggestion:
    """Suggest mixed precision on a device that is faster with it."""
    return Suggestion(
        id=f"{check}/mixed-precision",
        check=check,
        text="Compute in mixed precision: float16 in the layers, float32 for the weights.",
        code='+ keras.mixed_precision.set_global_policy("mixed_float16")  # before the model is built',
        predicted=_saved(analysis, seconds, "the step's products at the two peaks that were measured"),
        risk=(
            "Numbers have three digits and overflow at 65504: the loss is scaled, and the result may differ. "
            'Give the last layer dtype="float32". mixed_bfloat16 overflows later and has two digits.'
        ),
        changes=(Change("policy", "mixed_float16"),),
    )


def suggest_plain(analysis: Analysis, check: str, policy: str, wanted: str, seconds: float) -> Suggestion:
    """Suggest another policy on a processor that is slow with the one that there is."""
    return Suggestion(
        id=f"{check}/{wanted.replace('_', '-')}",
        check=check,
        text=f"Compute in {wanted} on this processor: it was measured to be faster there.",
        code=f'- keras.mixed_precision.set_global_policy("{policy}")\n'
        f'+ keras.mixed_precision.set_global_policy("{wanted}")',
        predicted=_saved(analysis, seconds, "the step's products at the two peaks that were measured"),
        risk="Activations take twice the memory." if wanted == "float32" else "bfloat16 has two digits.",
        changes=(Change("policy", wanted),),
    )

"""Round the sizes of layers up to multiples of 8."""

from __future__ import annotations

from collections.abc import Sequence

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.compute import LayerWork
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["STEP", "suggest"]

STEP = 8
_SHOWN = 4


def suggest(analysis: Analysis, check: str, layers: Sequence[LayerWork], seconds: float) -> Suggestion:
    """Suggest the next larger size for the layers that have most to do."""
    lines = []
    for layer in layers[:_SHOWN]:
        width = layer.kernel[-1]
        wanted = -(-width // STEP) * STEP
        if wanted != width:
            lines += [f"- {layer.kind}({width}, …)  # {layer.layer}", f"+ {layer.kind}({wanted}, …)"]
    if not lines:  # the inputs of these layers are what does not fit
        lines = [f"+ # {layers[0].layer}: give its input a multiple of {STEP} channels"]
    return Suggestion(
        id=f"{check}/multiples-of-8",
        check=check,
        text=f"Round the sizes of these layers up to multiples of {STEP}.",
        code="\n".join(lines),
        predicted=gain_without(
            analysis, seconds, at_least=0.3, at_most=1.3,
            source="these layers' products at the rates that aligned and unaligned ones were measured at",
        ),
        risk="The model has more parameters, and weights that were trained before don't fit.",
        reason="not tried: only the caller can change the model",
    )  # fmt: skip

"""Let XLA fuse small kernels."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest"]

_LIKELY = 0.6
"""Of the launches: elementwise work is fused, matrix products stay kernels of their own."""


def suggest(analysis: Analysis, check: str, launch_s: float) -> Suggestion:
    """Suggest `jit_compile=True`."""
    return Suggestion(
        id=f"{check}/xla",
        check=check,
        text="Let XLA fuse the step's small kernels: compile the model with jit_compile=True.",
        code="- model.compile(…)\n+ model.compile(…, jit_compile=True)",
        predicted=gain_without(
            analysis,
            _LIKELY * launch_s,
            at_least=0.2 / _LIKELY,
            at_most=0.9 / _LIKELY,
            source="fewer launches",
        ),
        risk=(
            "Each new shape is compiled again, so batches must have one shape; ops unknown to XLA fail, "
            "and rounding differs a little."
        ),
        changes=(Change("jit_compile", value=True),),
    )

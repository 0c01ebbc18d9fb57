"""Train on the CPU."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.step_devices import OtherDevice
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import speedup

__all__ = ["on_the_cpu"]

_CODE = """\
- model = make_model()
- model.compile(…)
- model.fit(dataset)
+ with tf.device("/CPU:0"):  # or, first of all: tf.config.set_visible_devices([], "GPU")
+     model = make_model()
+     model.compile(…)
+     model.fit(dataset)"""


def on_the_cpu(analysis: Analysis, check: str, found: OtherDevice) -> Suggestion:
    """Suggest to train on the CPU, as long as the batch is as small as it is."""
    until = ""
    if isinstance(found.from_rows, Quantity):
        until = f" From batches of about {round(found.from_rows.value):,} rows on {found.device} is faster."
    return Suggestion(
        id=f"{check}/cpu",
        check=check,
        text=f"Build and train this model on the CPU: its steps are too small for {found.device}.{until}",
        code=_CODE,
        predicted=speedup(
            analysis,
            found.after_s,
            found.best_s,
            found.worst_s,
            "the step measured on both devices, beside the input as it is",
        ),
        risk="Results may differ in the last digits. A larger model or batch turns it round: measure again.",
        reason="not tried in the job itself: copies of the step were run on both devices",
    )

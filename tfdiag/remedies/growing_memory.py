"""Find the lines whose allocations stay."""

from __future__ import annotations

from tfdiag.model.quantity import Missing
from tfdiag.model.report import Suggestion

__all__ = ["suggest"]

_CODE = """\
+ import tracemalloc
+
+ class WhatStays(keras.callbacks.Callback):
+     def on_train_begin(self, logs=None):
+         tracemalloc.start()
+
+     def on_train_batch_end(self, batch, logs=None):
+         if batch == 100:
+             self.before = tracemalloc.take_snapshot()
+         if batch == 600:
+             now = tracemalloc.take_snapshot()
+             for line in now.compare_to(self.before, "lineno")[:10]:
+                 print(line)
+             tracemalloc.stop()
+
- model.fit(dataset)
+ model.fit(dataset, callbacks=[WhatStays()])"""


def suggest(check: str) -> Suggestion:
    """Suggest to look at what 500 steps leave behind."""
    return Suggestion(
        id=f"{check}/what-stays",
        check=check,
        text=(
            "See which lines of Python, numpy's arrays included, keep what they allocate in 500 steps; what "
            "is not among them TensorFlow keeps: functions that are traced again, datasets made in the loop."
        ),
        code=_CODE,
        predicted=Missing("steps do not get faster by it; the run goes on"),
        risk="Python runs several times slower while it is watched: take it out again.",
        reason="not tried: only the caller knows what may go",
    )

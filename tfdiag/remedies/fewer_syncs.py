"""Ask for values of tensors less often."""

from __future__ import annotations

from typing import Protocol

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest"]

_EVERY = 100


class _Syncs(Protocol):
    """Waits for values; see `checks.hosted`."""

    @property
    def seconds(self) -> float: ...
    @property
    def logs_s(self) -> float: ...


def suggest(analysis: Analysis, check: str, seconds: float, found: _Syncs, asking: str) -> Suggestion:
    """Suggest to leave values where they are, and to look at them every hundredth step."""
    callback, _, method = asking.partition(".")
    name = callback.split(" ", maxsplit=1)[0].split(",", maxsplit=1)[0]
    if 2 * found.logs_s >= found.seconds:
        text = (
            f"{asking} has a hook at the end of each batch, so fit fetches all logs of each batch first: say "
            "that it can run beside the steps, or move what it does to the end of the epoch."
        )
        code = f"  class {name}(keras.callbacks.Callback):\n+     async_safe = True"
        risk = (
            "The hook then runs on another thread while the next step is made: it may not change the model."
        )
        at_least = 0.3
    elif method:
        text = f"{asking} asks for values at every batch: ask every {_EVERY} batches."
        unit = "batch" if "batch" in method else "epoch"
        code = (
            f"  class {name}:\n      def {method}(self, {unit}, logs=None):\n"
            f"+         if {unit} % {_EVERY}:\n+             return"
        )
        risk = "What is watched is seen less often."
        at_least = 0.8
    else:
        text = (
            f"The train step asks for a value each time: keep it on the device and look every {_EVERY} steps."
        )
        code = (
            f"- losses.append(float(loss))\n+ losses.append(loss)\n+ if step % {_EVERY} == 0:\n"
            "+     print(float(loss))"
        )
        risk = "A loss that becomes NaN is seen later."
        at_least = 0.5
    return Suggestion(
        id=f"{check}/fewer",
        check=check,
        text=text,
        code=code,
        predicted=gain_without(
            analysis,
            seconds * (1 - 1 / _EVERY),
            at_least=at_least,
            at_most=1.02,
            source="the step less the time in which Python waits for values",
        ),
        risk=risk,
    )

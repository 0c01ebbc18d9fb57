"""Do a callback's work less often."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.host_work import CallbackFacts
from tfdiag.model.quantity import Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest", "suggest_checkpoint", "suggest_summaries"]

_EVERY = 100
_SHARE_LEFT = 0.01
"""The share of the step that rarer saving may keep."""


class _Work(Protocol):
    """What a callback does; see `checks.hosted`."""

    @property
    def name(self) -> str: ...
    @property
    def saves(self) -> float: ...
    @property
    def worst(self) -> str: ...
    @property
    def facts(self) -> CallbackFacts | None: ...


def suggest(analysis: Analysis, check: str, callback: str, method: str, seconds: float) -> Suggestion:
    """Suggest to run the expensive part of a callback every hundredth time."""
    unit, every = ("batch", _EVERY) if "batch" in method else ("epoch", 10)
    plural = "batches" if unit == "batch" else "epochs"
    return Suggestion(
        id=f"{check}/{callback}.{method}",
        check=check,
        text=f"{callback}.{method} does its work at every {unit}: do it every {every} {plural}.",
        code=_guarded(callback.split(" ", maxsplit=1)[0], method, every),
        predicted=gain_without(
            analysis,
            seconds * (1 - 1 / every),
            at_least=0.9,
            at_most=1.02,
            source="the step less the time measured in this method",
        ),
        risk="What the callback records is recorded less often.",
        changes=(Change("without_callback", target=callback),),
    )


def suggest_checkpoint(analysis: Analysis, check: str, work: _Work, seconds: float) -> Suggestion:
    """Suggest to save so rarely that it no longer shows."""
    assert not isinstance(analysis.step, Missing)
    training = max(1e-9, analysis.step.mean_s - seconds)
    factor = max(2, math.ceil(seconds / (_SHARE_LEFT * training) - 1e-6))
    interval = max(1, round(1 / work.saves)) if work.saves > 0 else 1
    settings = dict(work.facts.settings) if work.facts is not None else {}
    freq = settings.get("save_freq", "")
    name = work.name.split(" ", maxsplit=1)[0]
    if freq.isdigit():
        then = _rounded(int(freq) * factor)
        code = f"- {name}(…, save_freq={freq})\n+ {name}(…, save_freq={then})"
        text = f"{work.name} saves every {freq} batches: save every {then}, or once an epoch."
        factor = max(2, then // max(1, int(freq)))
    elif "epoch" in work.worst:
        text = f"{work.name} saves at every epoch, and epochs are short: save every {factor} epochs."
        code = _guarded(name, work.worst, factor)
        if freq or name == "BackupAndRestore":  # the caller can't write into Keras' own class
            code = _in_class(name, work.worst, factor)
    elif work.worst:
        then = _rounded(interval * factor)
        text = f"{work.name}.{work.worst} saves every {interval} batches: save every {then}."
        code = _guarded(name, work.worst, then)
        factor = max(2, then // interval)
    else:
        then = _rounded(interval * factor)
        text = f"The train step saves every {interval} steps: save every {then}."
        code = f"- checkpoint.save(path)\n+ if step % {then} == 0:\n+     checkpoint.save(path)"
        factor = max(2, then // interval)
    return replace(
        _without(analysis, check, work, seconds * (1 - 1 / factor)),
        id=f"{check}/{work.name}",
        text=text,
        code=code,
        risk="A job that dies loses the steps since it was last saved.",
    )


def suggest_summaries(analysis: Analysis, check: str, work: _Work, seconds: float) -> Suggestion:
    """Suggest to write summaries every hundredth step, or once an epoch."""
    name = work.name.split(" ", maxsplit=1)[0]
    settings = dict(work.facts.settings) if work.facts is not None else {}
    if settings:
        wanted = {"update_freq": "'epoch'", "histogram_freq": "0", "write_images": "False"}
        costly = {key: value for key, value in settings.items() if key in wanted and value != wanted[key]}
        before = ", ".join(f"{key}={value}" for key, value in costly.items()) or "…"
        after = ", ".join(f"{key}={wanted[key]}" for key in costly) or "…, update_freq='epoch'"
        code = f"- {name}({before})\n+ {name}({after})"
        text = f"{work.name} writes {before}: write less, and less often."
        part = 0.95
    elif work.worst:
        unit, every = ("batch", _EVERY) if "batch" in work.worst else ("epoch", 10)
        code = _guarded(name, work.worst, every)
        text = f"{work.name}.{work.worst} writes summaries at every {unit}: write every {every}."
        part = 1 - 1 / every
    else:
        code = (
            f"- tf.summary.scalar(…)\n+ with tf.summary.record_if(step % {_EVERY} == 0):\n"
            "+     tf.summary.scalar(…)"
        )
        text = f"The train step writes summaries: write every {_EVERY} steps."
        part = 1 - 1 / _EVERY
    return replace(
        _without(analysis, check, work, seconds * part),
        id=f"{check}/{work.name}",
        text=text,
        code=code,
        risk="Curves have fewer points.",
    )


def _without(analysis: Analysis, check: str, work: _Work, seconds: float) -> Suggestion:
    """Give the suggestion that takes so many seconds off a step, still without words."""
    return Suggestion(
        id=check,
        check=check,
        text="",
        code="",
        predicted=gain_without(
            analysis,
            seconds,
            at_least=0.9,
            at_most=1.02,
            source="the step less the time measured in it",
        ),
        changes=(Change("without_callback", target=work.name),) if work.worst else (),
    )


def _guarded(name: str, method: str, every: int) -> str:
    unit = "batch" if "batch" in method else "epoch"
    return (
        f"  class {name}:\n      def {method}(self, {unit}, logs=None):\n+         if {unit} % {every}:\n"
        "+             return"
    )


def _in_class(name: str, method: str, factor: int) -> str:
    return (
        f"+ class Rarer{name}({name}):\n+     def {method}(self, epoch, logs=None):\n"
        f"+         if epoch % {factor} == 0:\n+             super().{method}(epoch, logs)"
    )


def _rounded(number: int) -> int:
    """Give a round number of batches that is no less."""
    size = int("1" + "0" * (len(str(number)) - 1))
    return -(-number // size) * size

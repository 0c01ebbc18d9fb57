"""The steady state of a run: what one call of the train function costs, and what lies between epochs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfdiag import stats
from tfdiag.analyse.aftermath import aftermath
from tfdiag.model.measurements import LOOP, CallbackTime, Job, Live, ValidationRun
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.stats import Estimate

__all__ = ["Boundary", "CallbackShare", "Did", "Steady", "steady_state"]

Floats = npt.NDArray[np.float64]

_EPOCH_METHODS = ("on_epoch_begin", "on_epoch_end")
_BATCH_METHODS = ("on_train_batch_begin", "on_train_batch_end")
_LOOP_METHODS = ("logs", "step")
"""Of the loop itself, what happens once a call."""
_METRIC_METHODS = ("metric result", "metric reset")
_RETRACES_LEAST = 3
"""Fewer traces than this in the steady state are single events, not a condition."""


@dataclass(frozen=True, slots=True)
class Did:
    """What a method of a callback, or the loop itself, asked of TensorFlow: seconds and numbers per call."""

    callback: str
    method: str
    runs: float
    """How often the method ran; a method at the ends of epochs runs once an epoch."""
    total_s: float
    syncs: float
    sync_s: float
    saves: float
    save_s: float
    summaries: float
    summary_s: float
    written_bytes: float
    count: int
    """How many runs were seen."""


@dataclass(frozen=True, slots=True)
class CallbackShare:
    """What one method of one callback costs, spread over the calls of the train function."""

    callback: str
    method: str
    per_call_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """What happens once an epoch, in seconds per epoch."""

    epochs: int
    """How many ends of epochs were seen."""
    followed: int
    """How many of them by themselves, with another epoch behind."""
    total_s: float
    """All of it, validation as long as it really is."""
    surely_s: float
    """At least so much of it: one gap says nothing of the next, which need not stall as well."""
    validation_s: float
    callbacks: tuple[tuple[str, str, float], ...]
    """Callback, method, seconds per epoch."""
    restart_s: float
    """What the first batch of an epoch waits longer than others."""
    validation_note: str = ""
    validation_parts: tuple[tuple[str, float], ...] = ()
    """Of the validation, in seconds: the wait for its input, its step, callbacks, its start and end."""
    metrics_s: float = 0.0
    """Resetting metrics and asking for their results, at the ends of epochs, without validation."""


@dataclass(frozen=True, slots=True)
class Steady:
    """Means over the steady calls, in seconds per call."""

    first: int
    calls: int
    period: Estimate
    median: Estimate
    duration: Estimate
    wait: Estimate | Missing
    arrival: Estimate | Missing
    """From the call's start to the arrival of its batch, where batches were stamped."""
    between: Estimate
    compile_s: float
    traces: int
    callbacks: tuple[CallbackShare, ...]
    boundary: Boundary | Missing
    calls_per_epoch: Maybe
    outliers: int
    first_call: Maybe
    compile_once: Maybe
    did: tuple[Did, ...] = ()
    """What callbacks and the loop did, where that was watched."""
    xla_s: float = 0.0
    """Of `compile_s`, calls in which XLA compiled and nothing was traced."""
    xla_calls: int = 0
    """How many of `traces` these are."""
    aftermath_s: float = 0.0
    """What calls take longer behind long work between two of them, in seconds per call."""


def steady_state(live: Live, job: Job) -> Steady | Missing:
    """Find the steady state of a run; `Missing` when there were too few steps."""
    start = np.asarray(live.start_s, dtype=np.float64)
    duration = np.asarray(live.duration_s, dtype=np.float64)
    wait = np.asarray(live.wait_s, dtype=np.float64)
    if len(start) < 3:
        return Missing(
            f"only {len(start)} calls of the train function were seen, three are needed"
            + (f" ({live.cut})" if live.cut else "")
        )
    begins = _epoch_begins(live, len(start))
    traced = np.zeros(len(start), dtype=bool)
    traced[[call - live.first_call_index for call in live.traced]] = True
    # XLA compiles in a call without tracing it; both are compile time, and neither is a step.
    slow = traced.copy()
    slow[[call - live.first_call_index for call in live.compiled]] = True
    index, period, whole = _candidates(live, start, duration, begins)
    cut = stats.warmup_end(period[index])
    last_early_trace = max((i for i in np.flatnonzero(traced) if i <= len(start) // 2), default=-1)
    steady = index[cut:]
    if np.any(steady > last_early_trace) and last_early_trace < len(start) // 4:
        steady = steady[steady > last_early_trace]
    retraces = int(np.count_nonzero(slow[steady]))
    if retraces < _RETRACES_LEAST:
        steady = steady[~slow[steady]]
    if len(steady) < 2:
        return Missing(f"only {len(steady)} steady calls were seen" + (f" ({live.cut})" if live.cut else ""))

    in_call = duration[steady]
    waits = _mean_of_known(wait[steady], live.wait_missing or "the waits of too few calls are known")
    arrivals: Estimate | Missing = Missing("no batch was stamped")
    if live.arrival_s:
        arrivals = _mean_of_known(
            np.asarray(live.arrival_s, dtype=np.float64)[steady], "the batches of too few calls were stamped"
        )
    hot = slow[steady]
    typical = float(np.median(in_call if np.all(hot) else in_call[~hot]))
    # Where each call is traced, no call shows what it takes without; the tracing itself was timed.
    longer = np.maximum(
        np.maximum(0.0, in_call - typical), np.minimum(_tracing(live, len(start))[steady], in_call)
    )
    compile_s = float(np.sum(longer[hot])) / len(steady)
    between = period[steady] - in_call
    first_batches = [] if whole else [begin for begin in begins if begin and not traced[begin]]
    first_traced = bool(traced[0]) and live.first_call_index == 0
    busy = typical - (waits.value if isinstance(waits, Estimate) else 0.0)
    return Steady(
        first=int(steady[0]),
        calls=len(steady),
        period=stats.mean(period[steady]),
        median=stats.median(period[steady]),
        duration=stats.mean(in_call),
        wait=waits,
        arrival=arrivals,
        between=stats.mean(between),
        compile_s=compile_s,
        traces=retraces,
        callbacks=_callbacks(live, int(steady[0]) + live.first_call_index),
        boundary=_boundary(live, job, start, duration, float(np.median(between)), begins, first_batches),
        calls_per_epoch=_calls_per_epoch(live, job, begins),
        outliers=stats.outliers(period[steady]),
        first_call=(
            Quantity(float(duration[0]), "s", source="first call of the train function", count=1)
            if live.first_call_index == 0
            else Missing("the first call is no longer kept")
        ),
        compile_once=(
            Quantity(
                max(0.0, float(duration[0]) - busy),
                "s",
                origin="estimated",
                source="first call less a steady one",
                count=1,
            )
            if first_traced
            else Missing("the step was not traced while it was watched")
        ),
        did=_did(live, job, int(steady[0]) + live.first_call_index, begins),
        xla_s=float(np.sum(longer[hot & ~traced[steady]])) / len(steady),
        xla_calls=int(np.count_nonzero(hot & ~traced[steady])),
        aftermath_s=_aftermath(start, duration, wait, steady[~hot], begins),
    )


def _aftermath(
    start: Floats, duration: Floats, wait: Floats, steady: npt.NDArray[np.intp], begins: list[int]
) -> float:
    """Look for cold steps behind what is done between steps; an epoch's first has other reasons too."""
    before = np.append(0.0, start[1:] - (start + duration)[:-1])
    usable = np.zeros(len(start), dtype=bool)
    usable[steady] = True
    usable[begins] = False
    return aftermath(duration - np.nan_to_num(wait), before, usable)


def _tracing(live: Live, count: int) -> Floats:
    """Give what tracing, or XLA, took in each call, 0 where it was not timed."""
    took = np.zeros(count)
    for call, seconds in zip(live.traced, live.trace_s, strict=False):
        if seconds == seconds:  # noqa: PLR0124  # not timed is NaN, the number that differs
            took[call - live.first_call_index] = seconds
    for call, seconds in zip(live.compiled, live.compile_s, strict=False):
        took[call - live.first_call_index] = seconds
    return took


def _mean_of_known(series: Floats, otherwise: str) -> Estimate | Missing:
    """Give the mean of what is known, where that is half of it."""
    known = series[~np.isnan(series)]
    return stats.mean(known) if len(known) >= max(2, 0.5 * len(series)) else Missing(otherwise)


def _candidates(
    live: Live, start: Floats, duration: Floats, begins: list[int]
) -> tuple[npt.NDArray[np.intp], Floats, bool]:
    """Give the calls that may be steady, the period of each call, and whether first batches are among them.

    What lies behind an epoch's last call is no part of a step, and its first call waits longer than
    others: both are counted once an epoch. Where epochs are so short that hardly a call is left, all calls
    stand for themselves.
    """
    period = np.append(np.diff(start), np.nan)
    inner = np.ones(len(start), dtype=bool)
    inner[[begin - 1 for begin in begins if begin > 0]] = False
    inner[-1] = False  # the last call's period was not seen to its end
    # What the recorder does after a call is not the job's time; but a job of few steps has only those.
    held = np.zeros(len(start), dtype=bool)
    held[[call - live.first_call_index for call in live.held]] = True
    if np.count_nonzero(inner & ~held) >= max(2, np.count_nonzero(inner) // 2):
        inner &= ~held
    body = inner.copy()
    body[[begin for begin in begins if begin > 0]] = False
    if np.count_nonzero(body) >= max(2, len(begins) // 2):
        return np.flatnonzero(body), period, False
    if np.any(inner):
        between = float(np.median((period - duration)[inner]))
    else:
        # Epochs of a single call: all that is known to belong to a step are its callbacks.
        seen = float(np.median((period - duration)[:-1]))
        between = min(seen, sum(share.per_call_s for share in _callbacks(live, live.first_call_index)))
    return np.arange(len(start) - 1), duration + between, True


def _epoch_begins(live: Live, count: int) -> list[int]:
    begins = {event.call - live.first_call_index for event in live.events if event.kind == "epoch_begin"}
    return sorted(begin for begin in begins if 0 <= begin < count)


def _callbacks(live: Live, first: int) -> tuple[CallbackShare, ...]:
    """Spread the batch methods of callbacks over the calls of the blocks that are steady."""
    totals: dict[tuple[str, str], list[float]] = {}
    rows, calls = _steady_rows(live, first, _BATCH_METHODS)
    for row in rows:
        cell = totals.setdefault((row.callback, row.method), [0.0, 0.0])
        cell[0] += row.total_s
        cell[1] += row.count
    return tuple(
        CallbackShare(callback, method, total / calls, int(count))
        for (callback, method), (total, count) in totals.items()
    )


def _steady_rows(live: Live, first: int, methods: tuple[str, ...]) -> tuple[list[CallbackTime], int]:
    """Give the rows of the blocks that are steady, and the calls of those blocks."""
    rows = [row for row in live.callbacks if row.method in methods]
    blocks = {(row.first_call, row.calls) for row in rows}
    steady = {block for block in blocks if block[0] >= first}
    if not steady and blocks:
        steady = {max(blocks)}
    # Blocks in which no callback ran have no row; calls are counted from block bounds instead.
    if not steady:
        return [], 1
    begin = min(block[0] for block in steady)
    end = live.first_call_index + len(live.start_s)
    return [row for row in rows if row.first_call >= begin], max(1, end - begin)


def _did(live: Live, job: Job, first: int, begins: list[int]) -> tuple[Did, ...]:
    """Spread what callbacks and the loop asked of TensorFlow over the calls."""
    rows, calls = _steady_rows(live, first, (*_BATCH_METHODS, *_LOOP_METHODS))
    found = [*_sums(rows, 1.0 / calls)]
    length = _calls_per_epoch(live, job, begins)
    ended = sum(event.kind == "epoch_end" for event in live.events)
    if ended and isinstance(length, Quantity):
        rare = [row for row in live.callbacks if row.method in _EPOCH_METHODS]
        found += _sums(rare, 1.0 / ended / max(1.0, length.value))
    return tuple(found)


def _sums(rows: list[CallbackTime], factor: float) -> list[Did]:
    of: dict[tuple[str, str], list[CallbackTime]] = {}
    for row in rows:
        of.setdefault((row.callback, row.method), []).append(row)
    return [
        Did(
            callback=callback,
            method=method,
            runs=factor * sum(row.count for row in each),
            total_s=factor * sum(row.total_s for row in each),
            syncs=factor * sum(row.syncs for row in each),
            sync_s=factor * sum(row.sync_s for row in each),
            saves=factor * sum(row.saves for row in each),
            save_s=factor * sum(row.save_s for row in each),
            summaries=factor * sum(row.summaries for row in each),
            summary_s=factor * sum(row.summary_s for row in each),
            written_bytes=factor * sum(row.written_bytes for row in each),
            count=sum(row.count for row in each),
        )
        for (callback, method), each in of.items()
    ]


def _calls_per_epoch(live: Live, job: Job, begins: list[int]) -> Maybe:
    if isinstance(job.steps_per_epoch, Quantity):
        return job.steps_per_epoch.scaled(1.0 / live.steps_per_call, "calls")
    lengths = np.diff(begins)
    if len(lengths):
        return Quantity(float(np.median(lengths)), "calls", source="epochs seen", count=len(lengths))
    return job.steps_per_epoch


def _boundary(
    live: Live,
    job: Job,
    start: Floats,
    duration: Floats,
    typical_between: float,
    begins: list[int],
    first_batches: list[int],
) -> Boundary | Missing:
    end = start + duration
    gaps = [float(start[begin] - end[begin - 1]) - typical_between for begin in begins if begin]
    typical = float(np.median(duration))
    restarts = [float(duration[begin]) - typical for begin in first_batches]
    ended = sum(event.kind == "epoch_end" for event in live.events)
    if not ended:
        return Missing("no epoch ended while the job was watched")
    full, note = _validation(live.validations, job)
    parts = _validation_parts(live, full)
    # An epoch that was broken off does not tear its iterator down, so only those that another one
    # followed say what lies between epochs. Each such gap holds its validation as it was seen.
    for at, begin in enumerate(begin for begin in begins if begin):
        inside = (run for run in live.validations if end[begin - 1] <= run.begin_s <= start[begin])
        gaps[at] -= sum(run.end_s - run.begin_s for run in inside)
    callbacks = _epoch_callbacks(live, ended)
    metrics = sum(row.total_s for row in live.callbacks if _of_metrics(row)) / ended
    known = metrics + sum(seconds for _, _, seconds in callbacks)
    other = stats.mean(np.array(gaps)) if gaps else stats.Estimate(known, known, known, 0)
    surely = min(other.value, max(other.low, known))
    return Boundary(
        epochs=ended,
        followed=len(gaps),
        total_s=max(0.0, other.value) + full,
        surely_s=max(0.0, surely) + full,
        validation_s=full,
        callbacks=callbacks,
        restart_s=max(0.0, float(np.median(restarts))) if restarts else 0.0,
        validation_note=note,
        validation_parts=parts,
        metrics_s=metrics,
    )


def _of_metrics(row: CallbackTime) -> bool:
    return row.callback == LOOP and row.method in _METRIC_METHODS


def _validation_parts(live: Live, full: float) -> tuple[tuple[str, float], ...]:
    """Split a validation of so many seconds as those that were seen are split; nothing where nobody knows."""
    runs = [run for run in live.validations if run.complete] or list(live.validations)
    runs = runs[1:] or runs
    took = sum(run.end_s - run.begin_s for run in runs)
    waits = [run.wait_s.value * run.calls for run in runs if isinstance(run.wait_s, Quantity)]
    if not runs or took <= 0 or len(waits) < len(runs):
        return ()
    inside = sum(run.in_calls_s for run in runs)
    waited = min(sum(waits), inside)
    tests = [row for row in live.callbacks if row.method.startswith("on_test_batch")]
    each = sum(row.total_s for row in tests) / max(1, sum(run.calls for run in live.validations))
    hooks = min(each * sum(run.calls for run in runs), max(0.0, took - inside))
    scale = full / took
    return (
        ("its input", waited * scale),
        ("its step", (inside - waited) * scale),
        ("callbacks", hooks * scale),
        ("start and end", max(0.0, took - inside - hooks) * scale),
    )


def _validation(runs: tuple[ValidationRun, ...], job: Job) -> tuple[float, str]:
    """Give the seconds of one whole validation, spread over the epochs that have none."""
    if not runs:
        return 0.0, ""
    freq = max(1, job.validation_freq)
    complete = [run for run in runs if run.complete]
    if complete:
        # The first one traces the test function, which later ones do not.
        only, rate = complete[0], complete[0].steady_call_s
        if len(complete) == 1 and isinstance(rate, Quantity):
            # Nothing came after it that was not traced in its first call; its other calls tell.
            whole = only.end_s - only.begin_s
            return min(whole, whole - only.in_calls_s + only.calls * rate.value) / freq, ""
        steady = complete[1:] or complete
        return float(np.mean([run.end_s - run.begin_s for run in steady])) / freq, ""
    run = runs[-1]
    rate = run.steady_call_s
    steps = job.validation_steps
    if isinstance(rate, Quantity) and isinstance(steps, Quantity):
        calls = steps.value / max(1, job.steps_per_execution)
        fixed = max(0.0, (run.end_s - run.begin_s) - run.in_calls_s)
        return (fixed + rate.value * calls) / freq, (
            f"cut short after {run.calls} of {calls:.0f} calls and extrapolated"
        )
    return (run.end_s - run.begin_s) / freq, "cut short: at least this long"


def _epoch_callbacks(live: Live, epochs: int) -> tuple[tuple[str, str, float], ...]:
    totals: dict[tuple[str, str], float] = {}
    for row in live.callbacks:
        if row.method in _EPOCH_METHODS:
            key = (row.callback, row.method)
            totals[key] = totals.get(key, 0.0) + row.total_s
    return tuple((name, method, total / epochs) for (name, method), total in totals.items())

"""Where the steps of a trace begin and end, and what the host did meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from tfdiag.timeline import names as words
from tfdiag.timeline.columns import Column, Line, Timeline
from tfdiag.timeline.intervals import EMPTY, Spans, joined, length, union

__all__ = ["Host", "Steps", "find_steps", "host_of", "within_epochs"]

_MARKER = "step markers"
_MANY = 3
"""From so many steps on the last one is left out: nobody knows what followed it."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Bounds: step i is from `start[i]` to `end[i]`; without a gap, unless some were left out."""

    start: Column
    end: Column
    called: Column
    """When the host's call returned, where a call tells the step; a step lasts until the next one begins."""
    found_by: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """What the host did, as intervals."""

    known: bool
    """The trace holds events of the host at all."""
    gets_next: Spans
    """A step asks for its batch."""
    dispatch: Spans
    """The host works for the step, or waits inside it."""
    processing: Spans
    """Ops run on the host."""
    compiling: Spans
    python: Spans
    """Python functions run, where the trace holds them."""
    launch_start: Column
    """Calls that launched something on a device, by correlation id."""
    launch_end: Column
    launch_id: Column


def _picked(lines: list[Line], chosen: Column) -> tuple[Column, Column]:
    """Give begin and end of the events with one of these names, in order."""
    start, end = [], []
    for line in lines:
        rows = np.isin(line.label, chosen)
        if rows.any():
            start.append(line.start[rows])
            end.append(line.end[rows])
    if not start:
        return EMPTY
    begins, ends = np.concatenate(start), np.concatenate(end)
    order = np.argsort(begins, kind="stable")
    return begins[order], ends[order]


def host_of(timeline: Timeline, host: str) -> Host:
    """Condense what one host did."""
    lines = [line for line in timeline.of("host") if line.host == host]
    names = timeline.names
    calls = [line for line in lines if line.correlation is not None]
    start, end, identity = (np.empty(0, np.int64) for _ in range(3))
    if calls:
        start = np.concatenate([line.start for line in calls])
        end = np.concatenate([line.end for line in calls])
        identity = np.concatenate([line.correlation for line in calls if line.correlation is not None])
        rows = identity > 0
        order = np.argsort(identity[rows], kind="stable")
        start, end, identity = start[rows][order], end[rows][order], identity[rows][order]
    marks = words.matching(names, words.DISPATCH)
    dispatch = [union(*_picked(lines, marks)), union(start, end)]
    dispatch += [union(*_picked(lines, words.matching(names, words.LAUNCH_CALL)))]
    processes = words.matching(names, words.PROCESSING)
    processing = _of_the_step(timeline, lines, processes)
    # A function may return while its ops still run on threads that launch.
    dispatch.append(union(*_picked(calls, processes)))
    if not len(dispatch[0].start):
        dispatch.append(processing)
    if timeline.form != "XSpace":  # all that such a trace tells of the host are ops
        dispatch += [union(line.start, line.end) for line in lines]
    return Host(
        known=bool(lines),
        gets_next=_gets_next(timeline, lines),
        dispatch=joined(dispatch),
        processing=processing,
        compiling=union(*_picked(lines, words.matching(names, words.COMPILING))),
        python=union(*_picked(lines, words.matching(names, words.PYTHON))),
        launch_start=start,
        launch_end=end,
        launch_id=identity,
    )


def _gets_next(timeline: Timeline, lines: list[Line]) -> Spans:
    """Find when a step asked for its batch."""
    pattern = words.GETS_NEXT if timeline.form == "XSpace" else words.TF1_GETS_NEXT
    found = _of_the_step(timeline, lines, words.matching(timeline.names, pattern))
    if len(found.start):
        return found
    return union(*_picked(lines, words.matching(timeline.names, words.ITERATOR)))


def _of_the_step(timeline: Timeline, lines: list[Line], chosen: Column) -> Spans:
    """Find events that are the step's own: the input runs functions too, and prefetches in the background."""
    runs = words.matching(timeline.names, words.RUN)
    caller = _caller(lines, runs)
    ours = np.empty(0, np.int64)
    if caller is not None and caller.run is not None:
        ours = np.unique(caller.run[np.isin(caller.label, runs) & (caller.run != -1)])
    foreground, every = [], []
    for line in lines:
        rows = np.isin(line.label, chosen)
        if not rows.any():
            continue
        every.append(union(line.start[rows], line.end[rows]))
        if line is not caller:
            rows &= np.isin(line.run, ours) if line.run is not None else False
        foreground.append(union(line.start[rows], line.end[rows]))
    found = joined(foreground)
    return found if len(found.start) else joined(every)


def _caller(lines: list[Line], runs: Column) -> Line | None:
    """Give the thread that calls the step: functions run functions, and it has most to do with them."""
    took = [length(union(*_picked([line], runs))) for line in lines]
    return lines[int(np.argmax(took))] if any(took) else None


def find_steps(timeline: Timeline, host: str) -> Steps | None:
    """Find the steps of one host; None where the trace is empty."""
    lines = [line for line in timeline.of("host") if line.host == host]
    devices = [line for line in timeline.of("device") if line.host == host]
    for found in (
        _marked(timeline, lines, devices),
        _functions(timeline, lines, devices),
        _modules(timeline, host, devices),
    ):
        if found is not None:
            return found
    busy = devices + lines if timeline.form != "XSpace" else devices or lines
    if not busy:
        return None
    begin = min(int(line.start.min()) for line in busy)
    end = max(int(np.maximum(line.end, line.start).max()) for line in busy)
    if end <= begin:
        return None
    one = np.array([begin]), np.array([end]), np.array([end])
    return Steps(*one, "nothing in the trace marks a step: all of it counts as one", whole=True)


def _marked(timeline: Timeline, lines: list[Line], devices: list[Line]) -> Steps | None:
    start: list[Column] = []
    end: list[Column] = []
    label: list[Column] = []
    for line in lines:
        if line.step is not None:
            rows = line.step >= 0
            start.append(line.start[rows])
            end.append(line.end[rows])
            label.append(line.label[rows])
    if not start:
        return None
    labels = np.concatenate(label)
    present, counts = np.unique(labels, return_counts=True)
    name = present[np.argmax(counts)]
    rows = labels == name
    return _following(
        devices, np.concatenate(start)[rows], np.concatenate(end)[rows], f'{_MARKER} "{timeline.names[name]}"'
    )


def _functions(timeline: Timeline, lines: list[Line], devices: list[Line]) -> Steps | None:
    """Take the function that took most time for the train step."""
    names = timeline.names
    functions: dict[str, list[int]] = {}
    for index in words.matching(names, words.CALL).tolist():
        function = words.CALL.match(names[index])
        assert function is not None
        functions.setdefault(words.stem_of(function[2]), []).append(index)
    best: tuple[int, str, Column, Column] | None = None
    for function_name, indices in functions.items():
        start, end = _picked(lines, np.array(indices))
        start, end = _outermost(start, end)
        took = int((end - start).sum())
        if len(start) and (best is None or took > best[0]):
            best = took, function_name, start, end
    if best is not None:
        return _following(devices, best[2], best[3], f"calls of the function {best[1].strip('_')}")
    runs = words.matching(names, words.RUN)
    caller = _caller(lines, runs)
    if caller is None:
        return None
    start, end = _picked([caller], runs)
    took_each = end - start
    long = took_each >= 0.1 * np.max(took_each)
    return _following(devices, *_outermost(start[long], end[long]), "runs of a function on the host")


def _outermost(start: Column, end: Column) -> tuple[Column, Column]:
    """Leave out what lies in another; what follows another at once stays."""
    if not len(start):
        return start, end
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    outer = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
    return start[outer], end[outer]


def _modules(timeline: Timeline, host: str, devices: list[Line]) -> Steps | None:
    lines = [line for line in timeline.of("derived") if line.name == "XLA Modules" and line.host == host]
    if not lines:
        return None
    line = max(lines, key=lambda each: len(each.start))
    stems = np.array([words.stem_of(timeline.names[index].split("(")[0]) for index in line.label.tolist()])
    took = {stem: int((line.end - line.start)[stems == stem].sum()) for stem in set(stems.tolist())}
    stem = max(sorted(took), key=lambda each: took[each])
    rows = stems == stem
    if rows.sum() < _MANY:
        return None
    return _following(devices, line.start[rows], line.end[rows], f"runs of the XLA module {stem}")


def _following(devices: list[Line], start: Column, end: Column, found_by: str) -> Steps:
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    new = np.append(True, start[1:] > start[:-1])
    start, end = start[new], end[new]
    if len(start) >= _MANY:
        return Steps(start[:-1], start[1:], end[:-1], found_by)
    # What the device still does belongs to the last step.
    last = max([int(end.max()), *(int(line.end.max()) for line in devices)])
    return Steps(start, np.append(start[1:], max(last, int(start[-1]) + 1)), end, found_by)


def within_epochs(steps: Steps, last: Collection[int]) -> Steps:
    """Keep the steps apart from what lies between epochs; `last` are those that an epoch ended with.

    A live run counts the end of an epoch, and the wait for the first batch of the next one, once an epoch.
    """
    if steps.whole or not last:
        return steps
    index = np.arange(len(steps.start))
    ends = np.isin(index, list(last))
    kept = ~ends & ~np.isin(index - 1, list(last))
    if kept.sum() >= _MANY:
        return replace(steps, start=steps.start[kept], end=steps.end[kept], called=steps.called[kept])
    # In epochs of hardly a call no step would be left: their last ones end with their calls.
    return replace(steps, end=np.where(ends, np.minimum(steps.called, steps.end), steps.end))

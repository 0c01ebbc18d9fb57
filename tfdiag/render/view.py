"""What a report says to a person: sentences, order and numbers, before any form is chosen.

Every string here is safe to show on a line of a terminal; a form adds its own escaping and layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tfdiag.model.measurements import Environment, Job, Live, Measurements, Overhead, Replay
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import SEGMENTS, Finding, ReportData, Step, Suggestion, Verdict
from tfdiag.render.compilation import compilation_lines
from tfdiag.render.compute import compute_gaps, compute_lines
from tfdiag.render.device import device_lines
from tfdiag.render.format import (
    clean,
    clean_code,
    duration,
    interval,
    number,
    quantity,
    share,
    size,
    speedup,
    with_interval,
)
from tfdiag.render.gpus import gpu_gaps, gpu_lines
from tfdiag.render.host import host_lines
from tfdiag.render.parts import model_gaps, model_lines
from tfdiag.render.placement import placement_lines
from tfdiag.render.stages import stage_lines
from tfdiag.render.step_devices import step_lines

__all__ = ["LEGEND", "Bar", "Change", "Problem", "Row", "View", "view"]

_HOST_ITEMS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Row:
    """A name and what is to say about it."""

    name: str
    text: str


LEGEND = Row("to read", "~ is estimated, not measured; a range is a 95 % interval")


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of the step."""

    name: str
    code: str
    """The segment's name in the data, or empty for a part of a segment."""
    fraction: float
    """0 to 1, for drawing."""
    time: str
    share: str
    interval: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding."""

    title: str
    severity: str
    check: str
    where: str
    cost: str
    detail: str
    evidence: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A suggestion."""

    text: str
    id: str
    facts: tuple[Row, ...]
    code: str


@dataclass(frozen=True, slots=True)
class Part:
    """Lines under a heading."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A whole report, in the order in which it is read."""

    code: str
    headline: str
    confidence: str
    needed: tuple[str, ...]
    job: str
    step: str
    step_note: str
    bars: tuple[Bar, ...]
    once: tuple[Row, ...]
    bounds: tuple[Row, ...]
    parts: tuple[Part, ...]
    """What was measured of the input, the device … in lines of its own."""
    problems: tuple[Problem, ...]
    no_problem: str
    changes: tuple[Change, ...]
    withdrawn: tuple[Change, ...]
    unmeasured: tuple[str, ...]
    notes: tuple[str, ...]
    cost: str
    phases: str
    environment: str


def view(report: ReportData) -> View:
    """Put a report into words."""
    step = report.step if isinstance(report.step, Step) else None
    bounds = [(name, bound) for name, bound in _bounds(report) if _known(bound)]
    return View(
        code=clean(report.verdict.code),
        headline=clean(report.verdict.headline),
        confidence=_confidence(report.verdict),
        needed=_needed(report.verdict),
        job=_job(report.measurements.job),
        step=with_interval(step.mean) if step else "",
        step_note=_step_note(step) if step else "",
        bars=tuple(_bars(step)) if step else (),
        once=tuple(Row(name, quantity(cost)) for name, cost in _once(step) if _known(cost)),
        bounds=tuple(Row(name, with_interval(bound)) for name, bound in bounds),
        parts=tuple(_parts(report.measurements)),
        problems=tuple(map(_problem, report.findings)),
        no_problem=_no_problem(report),
        changes=tuple(_changes(report.suggestions)),
        withdrawn=tuple(map(_change, report.rejected)),
        unmeasured=_unmeasured(report),
        notes=_notes(report),
        cost=_cost(report.measurements.overhead, step),
        phases=", ".join(
            f"{clean(name)} {duration(spent)}"
            for name, spent in report.measurements.overhead.phases_s.items()
        ),
        environment=_environment(report.measurements.environment),
    )


def _parts(measured: Measurements) -> Iterator[Part]:
    """Give what has something to say."""
    of = {
        "The input, stage by stage": stage_lines(measured.pipeline),
        "On the device": device_lines(measured.device),
        "GPU": gpu_lines(measured),
        "On the host": host_lines(measured),
        "Where ops run": placement_lines(measured.placement),
        "The computation": compute_lines(measured),
        "The step on each device": step_lines(measured.step_devices),
        "The model": model_lines(measured.model),
        "Traces and compilation": compilation_lines(measured.compilation),
    }
    for title, lines in of.items():
        rows = tuple(Row(*line) for line in lines)
        if rows:
            yield Part(title, rows)


def _known(value: Maybe) -> bool:
    return isinstance(value, Quantity)


def _confidence(verdict: Verdict) -> str:
    # "Inconclusive, with 0 % confidence" would puzzle.
    silent = verdict.code == "inconclusive" and not verdict.confidence > 0
    return "" if silent else f"{share(verdict.confidence)} confidence"


def _needed(verdict: Verdict) -> tuple[str, ...]:
    return tuple(map(clean, verdict.missing))


def _job(job: Job) -> str:
    parts = [clean(job.model), clean(job.input)]
    if isinstance(job.batch_size, Quantity):
        content = f" ({size(job.batch_bytes.value)})" if isinstance(job.batch_bytes, Quantity) else ""
        parts.append(f"batches of {number(job.batch_size.value)}{content}")
    if isinstance(job.parameters, Quantity):
        parts.append(f"{number(job.parameters.value)} parameters")
    if job.steps_per_execution > 1:
        parts.append(f"{job.steps_per_execution} steps per call")
    if job.replicas > 1:
        parts.append(f"{job.replicas} replicas")
    return ", ".join(part for part in parts if part)


# The step


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _step_note(step: Step) -> str:
    parts = [f"mean of {_count(step.steady_steps, 'steady step')}"]
    if step.warmup_steps:
        parts.append(f"{step.warmup_steps:,} before that were warm-up")
    parts.append(f"median {quantity(step.median)}")
    if step.outliers:
        parts.append(f"{_count(step.outliers, 'outlier')} included")
    restart = step.epoch_restart
    if isinstance(restart, Quantity) and restart.value > step.mean_s:
        parts.append(f"the first of each epoch waits {quantity(restart)} longer")
    return ", ".join(parts)


def _bars(step: Step) -> Iterator[Bar]:
    """Give the segments that take time, longest first; `unexplained` is always the last."""
    present = {name: part for name, part in step.segments.items() if isinstance(part, Quantity)}
    ranked = sorted(present, key=lambda name: present[name].value, reverse=True)
    for name in ranked:
        if name == "unexplained" or present[name].value == 0:
            continue
        yield _bar(_label(name), name, present[name], step.mean_s)
        if name == "host":
            yield from _host_bars(step)
    unexplained = step.segments.get("unexplained", Missing(""))
    if isinstance(unexplained, Quantity):
        yield _bar("unexplained", "unexplained", unexplained, step.mean_s)
    else:
        yield Bar("unexplained", "unexplained", 0.0, "unknown", "", "")


def _label(segment: str) -> str:
    return clean(segment.replace("_", " "))


def _bar(name: str, code: str, part: Quantity, mean_s: float, note: str = "") -> Bar:
    fraction = part.value / mean_s if mean_s > 0 else math.nan
    part = replace(part, unit="s")
    drawn = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0
    return Bar(name, code, drawn, quantity(part), share(fraction), interval(part), note)


def _host_bars(step: Step) -> Iterator[Bar]:
    items = sorted(step.host_items, key=lambda item: item.per_step.value, reverse=True)
    items = [item for item in items if item.per_step.value != 0]
    # One more is shown rather than summed up as "1 more".
    keep = len(items) if len(items) <= _HOST_ITEMS_SHOWN + 1 else _HOST_ITEMS_SHOWN
    for item in items[:keep]:
        yield _bar(clean(item.name), "", item.per_step, step.mean_s, clean(item.note))
    if rest := items[keep:]:
        total = Quantity(sum(item.per_step.value for item in rest), "s", origin=rest[0].per_step.origin)
        yield _bar(f"{len(rest)} more", "", total, step.mean_s)


def _once(step: Step | None) -> list[tuple[str, Maybe]]:
    if step is None:
        return []
    return [
        ("first step", step.first_step),
        ("tracing and compiling", step.compile_once),
        ("first batch", step.first_batch),
    ]


def _bounds(report: ReportData) -> list[tuple[str, Maybe]]:
    bounds = report.bounds
    return [
        ("speed-up if input and host cost nothing", bounds.best_speedup),
        ("a step without its input", bounds.replay),
        ("a batch of input without the model", bounds.input_alone),
        ("both, perfectly overlapped", bounds.ideal_overlap),
    ]


# Findings and suggestions


def _problem(finding: Finding) -> Problem:
    rows = []
    for evidence in finding.evidence:
        text = with_interval(evidence.quantity)
        if isinstance(evidence.quantity, Missing):
            text += f": {clean(evidence.quantity.reason)}"
        elif evidence.threshold is not None:
            side = f"{evidence.relation} " if evidence.relation else ""
            text += f", threshold: {side}{quantity(evidence.threshold)}"
        rows.append(Row(clean(evidence.name), text))
    return Problem(
        title=clean(finding.title),
        severity=finding.severity,
        check=clean(finding.check),
        where=clean(finding.where),
        cost=f"{quantity(replace(finding.cost, unit='share'))} of the step",
        detail=clean(finding.detail),
        evidence=tuple(rows),
    )


def _no_problem(report: ReportData) -> str:
    if report.findings:
        return ""
    undecided = len({check for check, _ in report.not_run})
    if undecided:
        return f"None, but {_count(undecided, 'check')} could not be decided: see “Not measured”."
    return "None."


def _changes(suggestions: Iterable[Suggestion]) -> Iterable[Change]:
    """Show what several checks suggest in the same words and code once, where it stands best."""
    shown: dict[tuple[str, str], Change] = {}
    for change in map(_change, suggestions):
        first = shown.get((change.text, change.code))
        also = () if first is None else (Row("also", change.id),)
        shown[change.text, change.code] = replace(first or change, facts=(*(first or change).facts, *also))
    return shown.values()


def _change(suggestion: Suggestion) -> Change:
    return Change(
        text=clean(suggestion.text),
        id=clean(suggestion.id),
        facts=tuple(_facts(suggestion)),
        code=clean_code(suggestion.code),
    )


def _facts(suggestion: Suggestion) -> Iterator[Row]:
    predicted, measured, reason = (
        suggestion.predicted,
        suggestion.measured,
        clean(suggestion.reason),
    )
    if isinstance(predicted, Quantity):
        yield Row("predicted", _speed(predicted))
        if predicted.source:
            yield Row("from", clean(predicted.source))
    else:
        yield Row("predicted", f"not known: {clean(predicted.reason)}")
    if isinstance(measured, Quantity):
        yield Row("tried", f"{_speed(measured)}, {suggestion.status}")
        if reason:
            yield Row("why", reason)
    else:
        # "no: not tried" would say the same twice.
        because = reason or clean(measured.reason).removeprefix("not tried").strip(" :,")
        yield Row("tried", f"no: {because}" if because else "no")
    if suggestion.risk:
        yield Row("risk", clean(suggestion.risk))


def _speed(gain: Quantity) -> str:
    ends = interval(replace(gain, unit="x"))
    # Without a mark: the word before it says whether it was predicted or tried.
    return f"{speedup(gain.value)} as fast" + (f" ({ends})" if ends else "")


# The rest


def _unmeasured(report: ReportData) -> tuple[str, ...]:
    """Collect what is missing and matters to a person; what shares a reason shares a sentence."""
    names_of: dict[str, list[str]] = {}
    for name, reason in _gaps(report):
        names = names_of.setdefault(clean(reason) or "no reason was given", [])
        if clean(name) not in names:
            names.append(clean(name))
    return tuple(_gap(names, reason) for reason, names in names_of.items())


def _gap(names: list[str], reason: str) -> str:
    """Put a gap into words, without saying anything twice."""
    if reason == "not measured":  # the heading says it
        return ", ".join(names)
    if len(names) == 1 and reason.startswith(names[0]):
        return reason
    return f"{', '.join(names)}: {reason}"


def _wait_stamped(report: ReportData, live: Live) -> bool:
    """Say whether stamps told the wait where the runtime's model did not."""
    wait = None if isinstance(report.step, Missing) else report.step.segments.get("input_wait")
    return bool(live.arrival_s) and isinstance(wait, Quantity) and wait.origin == "measured"


def _gaps(report: ReportData) -> Iterator[tuple[str, str]]:
    for name, value in _candidates(report):
        if isinstance(value, Missing):
            yield name, value.reason
    measurements = report.measurements
    live, replay, pipeline = measurements.live, measurements.replay, measurements.pipeline
    if isinstance(live, Live) and live.wait_missing and not _wait_stamped(report, live):
        yield "wait for input", live.wait_missing
    if isinstance(pipeline, Pipeline) and pipeline.missing:
        yield "stages of the input", pipeline.missing
    yield from gpu_gaps(measurements.gpu)
    yield from model_gaps(measurements.model)
    placed, devices = measurements.placement, measurements.environment.devices
    if isinstance(placed, Placement):
        if placed.copies_missing and any(device.kind != "CPU" for device in devices):
            yield "copies between devices", placed.copies_missing
        if placed.times_missing:
            yield "what misplaced ops cost", placed.times_missing
    if isinstance(measurements.step_devices, Missing) and any(device.kind != "CPU" for device in devices):
        yield "the step on each device", measurements.step_devices.reason
    # A job that already runs as a graph has no use for it.
    if isinstance(replay, Replay) and replay.graph_missing and measurements.job.run_eagerly:
        yield "the step as a graph", replay.graph_missing
    for check, reason in report.not_run:
        yield f"check {check}", reason


def _candidates(report: ReportData) -> Iterator[tuple[str, object]]:
    yield "where a step's time goes", report.step
    if isinstance(report.step, Step):
        for segment in SEGMENTS:
            yield _label(segment), report.step.segments.get(segment)
        yield from _once(report.step)
    yield from _bounds(report)
    for suggestion in (*report.suggestions, *report.rejected):
        yield f"gain of {suggestion.id}", suggestion.predicted
    yield from _phases(report.measurements)


def _phases(measurements: Measurements) -> Iterator[tuple[str, object]]:
    yield "the job as it runs", measurements.live
    yield "replay without input", measurements.replay
    yield "input alone", measurements.input_alone
    yield "stages of the input", measurements.pipeline
    yield "device timeline", measurements.device
    yield "GPU telemetry", measurements.gpu
    yield "op placement", measurements.placement
    yield from compute_gaps(measurements)
    yield "cost of the instrument", measurements.overhead.per_step_s


def _notes(report: ReportData) -> tuple[str, ...]:
    live, job = report.measurements.live, report.measurements.job
    notes = [*report.warnings, *job.notes]
    if isinstance(live, Live) and live.cut:
        notes.append(f"The run was cut short: {live.cut}")
    noise = report.measurements.trials.noise
    if isinstance(noise, Quantity):
        notes.append(
            f"trials: the job against itself differed by up to {share(noise.value)}, and no gain within that "
            "is claimed; copies run without callbacks and ends of epochs, whose measured time is added"
        )
    if report.ignored:
        notes.append("Silenced checks: " + ", ".join(report.ignored))
    return tuple(dict.fromkeys(map(clean, notes)))


def _cost(overhead: Overhead, step: Step | None) -> str:
    text = duration(overhead.total_s)
    if isinstance(overhead.budget_s, Quantity):
        text += f" of a budget of {quantity(overhead.budget_s)}"
    if isinstance(overhead.per_step_s, Quantity):
        text += f"; the instrument adds {quantity(overhead.per_step_s)} to a step"
        if step and step.mean_s > 0:
            text += f" ({share(overhead.per_step_s.value / step.mean_s)})"
    return text


def _environment(environment: Environment) -> str:
    accelerators: dict[str, int] = {}
    for device in environment.devices:
        if device.kind.upper() != "CPU":
            name = f"{device.kind} ({device.description})" if device.description else device.kind
            accelerators[name] = accelerators.get(name, 0) + 1
    if not environment.tensorflow:  # of a trace from elsewhere nothing is known
        return clean(f"a machine that is not known, read by tfdiag {environment.tfdiag}")
    cores = _count(environment.cores, "core")
    if isinstance(environment.cpu_quota, Quantity):
        cores += f" (quota {quantity(environment.cpu_quota)})"
    parts = [
        f"TensorFlow {environment.tensorflow}",
        f"Keras {environment.keras}",
        f"Python {environment.python}",
        environment.platform,
        cores,
        f"{size(environment.memory_bytes)} of memory",
        *(f"{count} {name}" for name, count in accelerators.items()),
        "no GPU" if environment.devices and not accelerators else "",
        f"tfdiag {environment.tfdiag}",
        # UTC by contract; seconds and the zone only lengthen the line.
        f"{environment.date[:16].replace('T', ' ')} UTC" if environment.date else "",
    ]
    return ", ".join(clean(part) for part in parts if part)

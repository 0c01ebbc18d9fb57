"""The one-word answer, how sure it is, and what was missing for a better one."""

from __future__ import annotations

import math

from tfdiag.analyse.breakdown import InputFacts
from tfdiag.analyse.host import host_facts
from tfdiag.model.measurements import Live, Measurements
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Step, Verdict

__all__ = ["VERDICT_SHARE", "contention", "crosses", "judge", "noise_of", "unsure_of"]

VERDICT_SHARE = 0.25
"""From this share of the step on, something that can be mended names the verdict."""
_COMPUTE_SHARE = 0.5
_UNEXPLAINED_SHARE = 0.3
_FEW_STEPS = 30
_CONTENTION_SHARE = 0.15
"""Below this share a slower second of the machine could be taken for it."""
_WORKS = 0.5
"""An input that computes for less of the step than this does not hold it up."""
_NOISE_LEAST = 0.02
"""How well a share of the step repeats at best."""
_NOISE_MOST = 0.1
"""However noisy a run, a cause this far above the threshold is named."""
_UNSTEADY = 0.5
"""Of steps whose mean is known no better than this, nobody can say that nothing is worth mending."""
_STOLEN = 0.1
"""From this share of the cores on, what a virtual machine's host takes is said."""
_GRAPH_DISPATCH_S = 1e-3
"""What calling a graph may cost at most; a call that is far longer does compute."""

_NOT_READ_ALONE = Missing("the input was not read without the model")

_WORDS = {
    "input-bound": "The step waits for data",
    "transfer-bound": "Copies between host and device take",
    "launch-bound": "Dispatching the step (Python, launches, the training loop) takes",
    "compute-bound": "The step computes for",
    "host-bound": "Python around the step (callbacks, validation, epoch ends) takes",
    "compile-bound": "Tracing and compiling take",
    "communication-bound": "Replicas exchange gradients for",
}

_MAY_HIDE = {"input_wait": "the wait for data", "launch": "dispatch", "host_to_device": "copies"}
"""Parts that are told from differences of two runs, which an unsteady machine may turn into anything."""


def contention(step: Step, alone: InputFacts | Missing) -> float:
    """Give the seconds by which the input's own work slows the step down, beside what it lets it wait.

    The same step takes less when it is replayed without its input. What the wait does not explain of that is
    the input's doing as far as it computes meanwhile: it takes the cores, or the interpreter's lock.
    """
    if isinstance(alone, Missing) or alone.cpu_per_batch_s < _WORKS * step.mean_s:
        return 0.0
    seconds = min(_seconds(step, "unexplained"), alone.cpu_per_batch_s)
    return seconds if crosses(step, seconds / step.mean_s, _CONTENTION_SHARE) else 0.0


def judge(
    measurements: Measurements,
    step: Step | Missing,
    filling: str = "",
    contended_s: float = 0.0,
    alone: InputFacts | Missing = _NOT_READ_ALONE,
) -> Verdict:
    """Name what the step's time is spent on.

    `filling` is a cache that was not full yet, `contended_s` what the input takes from the step by working,
    `alone` what a batch of the input takes without the model.
    """
    if isinstance(step, Missing):
        return Verdict("inconclusive", _sentence_without(step.reason), 0.0, 0.0, (step.reason,))
    groups = _groups(step)
    groups["input-bound"] += contended_s
    total = step.mean_s
    shares = {code: seconds / total if total > 0 else 0.0 for code, seconds in groups.items()}
    unexplained = (_seconds(step, "unexplained") - contended_s) / total if total > 0 else 0.0
    missing = _missing(measurements, step)
    fixable = {code: share for code, share in shares.items() if code != "compute-bound"}
    code = max(fixable, key=lambda key: fixable[key])
    if isinstance(alone, InputFacts) and crosses(step, shares["input-bound"], VERDICT_SHARE):
        # Whatever else is mended, no step is quicker than its input, which works beside dispatch and copies.
        left = max(0.0, 1 - alone.batch.value / total)
        code = max(fixable, key=lambda key: fixable[key] if key == "input-bound" else min(fixable[key], left))
    if not crosses(step, fixable[code], VERDICT_SHARE):
        code = "compute-bound" if shares["compute-bound"] >= _COMPUTE_SHARE else ""
    if code == "input-bound" and filling:
        reason = f"{filling} was being filled all the while: what the input takes after that was not seen"
        headline = f"The step waits for {shares[code]:.0%} of its {_time(total)} while {filling} is filled."
        return Verdict("inconclusive", headline, shares[code], 0.3, (reason, *missing))
    if code == "compute-bound" and _may_be_dispatch(measurements, step):
        share = shares[code]
        headline = (
            f"The step is busy with itself for {share:.0%} of its {_time(total)}; "
            "how much of that is dispatch is not known."
        )
        return Verdict("inconclusive", headline, share, 0.3, missing)
    if code == "compute-bound" and (doubt := _doubt(step)):
        share = shares[code]
        headline = f"The step seems to compute for {share:.0%} of its {_time(total)}, but {doubt}."
        return Verdict("inconclusive", headline, share, 0.3, (doubt, *missing))
    if not code and unexplained <= _UNEXPLAINED_SHARE:
        most = max(shares.values())
        headline = f"No single cause: nothing takes more than {most:.0%} of the step of {_time(total)}."
        return Verdict("inconclusive", headline, most, 0.3, missing)
    if not code or unexplained > max(_UNEXPLAINED_SHARE, shares[code]):
        headline = f"No single cause: {unexplained:.0%} of the step of {_time(total)} can't be explained."
        return Verdict("inconclusive", headline, unexplained, 0.3, missing)
    share = shares[code]
    verb = " for" if code == "input-bound" else ""
    headline = f"{_WORDS[code]}{verb} {share:.0%} of its {_time(total)}."
    if code == "input-bound" and contended_s > 0:
        waits = f"{share - contended_s / total:.0%}"
        headline = (
            f"The input takes {share:.0%} of the step of {_time(total)}: it waits for {waits}, and for "
            f"{contended_s / total:.0%} the input's own work holds it up."
        )
    return Verdict(code, headline, share, _confidence(measurements, step, shares, code), missing)


def _doubt(step: Step) -> str:
    """Say why something around the step may be worth mending after all, though nothing was seen to be."""
    low, high = step.mean.low, step.mean.high
    if low is not None and high is not None and high - low > 2 * _UNSTEADY * step.mean_s:
        return f"its steps were too unsteady to tell: their mean lies between {_time(low)} and {_time(high)}"
    for name, called in _MAY_HIDE.items():
        part = step.segments[name]
        most = part.high if isinstance(part, Quantity) else None
        if most is not None and most > 2 * VERDICT_SHARE * step.mean_s:
            most = min(1.0, most / step.mean_s)
            return f"{called} may take up to {most:.0%} of it: it was too unsteady to tell"
    return ""


def unsure_of(step: Step, name: str) -> float:
    """Give how much of a part of the host segment may be chance: it was seen too rarely to tell."""
    parts = (item.per_step for item in step.host_items if item.name == name)
    return sum(part.value - part.low for part in parts if part.low is not None)


def noise_of(step: Step) -> float:
    """Give how well the mean step is known, relative to it."""
    low, high = step.mean.low, step.mean.high
    noise = (high - low) / (2 * step.mean_s) if low is not None and high is not None else 1.0
    return max(noise, _NOISE_LEAST)


def crosses(step: Step, share: float, threshold: float) -> bool:
    """Say whether a share of the step is above a threshold for sure, and not by the noise of this run.

    What lies within the noise is not claimed: the next run of the same job would take it back.
    """
    return share * (1 - min(noise_of(step), _NOISE_MOST)) >= threshold


def _may_be_dispatch(measurements: Measurements, step: Step) -> bool:
    """Say whether what looks like compute could as well be dispatch, because nothing told them apart."""
    if not isinstance(step.segments["launch"], Missing):
        return False
    job = measurements.job
    if any(device.kind != "CPU" for device in measurements.environment.devices):
        return True  # a device computes while the host dispatches: a long call tells nothing
    per_call = _seconds(step, "device_compute") * job.steps_per_execution
    return job.run_eagerly or per_call < _GRAPH_DISPATCH_S / VERDICT_SHARE


def _sentence_without(reason: str) -> str:
    return f"The job could not be judged: {reason}."


def _time(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _seconds(step: Step, name: str) -> float:
    value = step.segments[name]
    return value.value if isinstance(value, Quantity) else 0.0


def _groups(step: Step) -> dict[str, float]:
    # The loop between steps is a fixed cost of each step, mended like dispatch and not like a callback.
    loop = sum(item.per_step.value for item in step.host_items if item.name == "loop")
    return {
        "input-bound": _seconds(step, "input_wait"),
        "transfer-bound": _seconds(step, "host_to_device") + _seconds(step, "device_to_host"),
        "launch-bound": _seconds(step, "launch") + loop,
        "compute-bound": _seconds(step, "device_compute"),
        "host-bound": _seconds(step, "host") - loop - unsure_of(step, "epoch"),
        "compile-bound": _seconds(step, "compile"),
        "communication-bound": _seconds(step, "collective"),
    }


def _confidence(measurements: Measurements, step: Step, shares: dict[str, float], code: str) -> float:
    """Say how likely the same code would come out again, less for what had to be estimated."""
    ordered = sorted((share for name, share in shares.items() if name != code), reverse=True)
    if code == "compute-bound":
        rival = VERDICT_SHARE - max(s for name, s in shares.items() if name != code)
        margin = rival
    else:
        margin = max(shares[code] - VERDICT_SHARE, 0.0) + max(0.0, shares[code] - ordered[0]) / 2
    certain = 0.5 * (1 + math.erf(margin / noise_of(step) / math.sqrt(2)))
    factor = 1.0
    if step.steady_steps < _FEW_STEPS:
        factor *= 0.5 + 0.5 * step.steady_steps / _FEW_STEPS
    wait = step.segments["input_wait"]
    if isinstance(wait, Missing):
        factor *= 0.6
    elif wait.origin == "estimated":
        factor *= 0.85
    if isinstance(measurements.replay, Missing):
        factor *= 0.8
    return round(max(0.0, min(0.99, certain * factor)), 3)


def _missing(measurements: Measurements, step: Step) -> tuple[str, ...]:
    reasons = []
    for name in ("input_wait", "device_compute", "launch"):
        value = step.segments[name]
        if isinstance(value, Missing):
            reasons.append(f"{name}: {value.reason}")
    if measurements.job.loop == "unknown":
        return tuple(reasons)  # nothing more can be measured of a trace from elsewhere
    for label, part in (("replay", measurements.replay), ("input alone", measurements.input_alone)):
        if isinstance(part, Missing):
            reasons.append(f"{label}: {part.reason}")
    if stolen := _stolen(measurements):
        reasons.append(stolen)
    if isinstance(measurements.live, Live) and measurements.live.cut:
        reasons.append(measurements.live.cut)
    return tuple(reasons)


def _stolen(measurements: Measurements) -> str:
    """Say so when the host of a virtual machine kept its cores: times are longer by that, and unsteady."""
    facts = host_facts(measurements)
    if isinstance(facts, Missing):
        return ""
    taken, cores = facts.rate("stolen"), measurements.environment.cores
    if isinstance(taken, Missing) or taken.value < _STOLEN * cores:
        return ""
    return f"the host of this virtual machine took away {taken.value:.1f} of its {cores} cores meanwhile"

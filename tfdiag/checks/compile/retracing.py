"""The step function is traced again and again.

What it measures
    Each trace of a `tf.function` that the steps call, how long it takes, and which argument was different
    from the trace before: a shape, a type, a Python value, an object, or the function itself, made anew. What
    traced calls take longer than others is spread over the steps. It fires while that goes on in the steady
    state; the first trace, and one more for the last batch of an epoch, are healthy.
Why it matters
    Tracing runs the Python of the step op by op and optimizes a new graph: tens to thousands of milliseconds
    for a step of one.
How to fix it
    Give Python numbers that change as tensors (`tf.constant(rate)`, a `tf.Variable`), batches one shape
    (`batch(n, drop_remainder=True)`, padding to few lengths), the function an `input_signature` or
    `reduce_retracing=True`; make a `tf.function` once, outside of the loop.
When to ignore it
    When only a few values come, and each was traced after a while.
References
    https://www.tensorflow.org/guide/function#controlling_retracing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.compilation import Trace
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import fewer_traces

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when traces in the steady state cost a share of the step worth naming."""
    facts.watched(analysis)
    assert not isinstance(analysis.step, Missing)
    assert not isinstance(analysis.steady, Missing)
    compiled = analysis.step.segments["compile"]
    if isinstance(compiled, Missing):
        raise Undecided(compiled.reason)
    steady = analysis.steady
    live = analysis.measurements.live
    assert not isinstance(live, Missing)
    seconds = max(0.0, compiled.value - steady.xla_s / live.steps_per_call)
    count = steady.traces - steady.xla_calls
    cost = analysis.share(seconds)
    if not count or not analysis.crosses(cost, facts.COST_SHARE):
        return
    first = steady.first + live.first_call_index
    seen = _in_steps(analysis, first)
    trace = _typical(seen)
    evidence = [
        Evidence(
            "tracing per step",
            Quantity(seconds, "s", source="what traced calls take longer", count=count),
            Quantity(facts.COST_SHARE * analysis.step.mean_s, "s", origin="given"),
            "above",
        ),
        Evidence("traces", Quantity(float(count), "traces", source=f"in {steady.calls} steady calls")),
    ]
    if seen:
        mean = sum(each.seconds for each in seen) / len(seen)
        evidence.append(Evidence("time of one trace", Quantity(mean, "s", source="timed", count=len(seen))))
    since = first + steady.calls - 1 - max(live.traced, default=0)
    evidence.append(
        Evidence("calls since the last trace", Quantity(float(max(0, since)), "calls", source="the live run"))
    )
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The step is traced again and again, for {cost:.0%} of its time{_because(trace)}",
            severity=severity_of(cost),
            cost=facts.share(cost, source="what traced calls take longer"),
            evidence=tuple(evidence),
            where=_where(trace),
            detail=_detail(trace, seen),
        ),
        (fewer_traces.suggest(analysis, CHECK.id, seconds, trace),),
    )


def _in_steps(analysis: Analysis, first: int) -> tuple[Trace, ...]:
    found = analysis.measurements.compilation
    if isinstance(found, Missing):
        return ()
    return tuple(
        each
        for each in found.traces
        if each.during == "step" and each.call >= first and each.cause != "first"
    )


def _typical(seen: tuple[Trace, ...]) -> Trace | None:
    """Give a trace of the most frequent cause."""
    kinds = Counter((each.function, each.cause, each.argument) for each in seen)
    if not kinds:
        return None
    most = kinds.most_common(1)[0][0]
    return next(each for each in reversed(seen) if (each.function, each.cause, each.argument) == most)


_WORDS = {
    "shape": "the shape of {argument} changes",
    "type": "the type of {argument} changes",
    "value": "{argument} is a Python value that changes",
    "object": "{argument} is another object each time",
    "structure": "its arguments have another structure each time",
    "made anew": "the tf.function is made anew each time",
}


def _because(trace: Trace | None) -> str:
    if trace is None or trace.cause not in _WORDS:
        return ""
    return ": " + _WORDS[trace.cause].format(argument=trace.argument)


def _where(trace: Trace | None) -> str:
    if trace is None:
        return "the train step"
    return f"{trace.function} ({trace.where})" if trace.where else trace.function


def _detail(trace: Trace | None, seen: tuple[Trace, ...]) -> str:
    if trace is None or not trace.after:
        return ""
    different = {each.after for each in seen if (each.argument, each.cause) == (trace.argument, trace.cause)}
    return f"it was {trace.before}, then {trace.after}" + (
        f"; {len(different)} different ones were seen" if len(different) > 1 else ""
    )


CHECK = Check("retracing", "The step function is traced again and again", "compile", __doc__, run)

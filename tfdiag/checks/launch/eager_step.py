"""The train step runs eagerly.

What it measures
    Whether the step runs eagerly (`run_eagerly=True`, or `tf.config.run_functions_eagerly(True)`), and
    how much faster the same batch goes through the same step compiled to a graph. In a loop of the caller's
    own: how many operations Python has executed one by one in a step, and for how long of it none of them
    ran.
Why it matters
    In an eager step Python dispatches each operation by itself, some ten to a hundred microseconds each;
    a graph is dispatched once, and its operations run in parallel and fused.
How to fix it
    `model.compile(...)` without `run_eagerly`, and without `tf.config.run_functions_eagerly(True)`; a step
    of one's own gets `@tf.function`. What needs Python values in the step has to be said with TensorFlow
    operations.
When to ignore it
    While debugging the step.
References
    https://www.tensorflow.org/guide/function
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import graph_step

__all__ = ["CHECK"]

_EVERYWHERE = "tf.config.run_functions_eagerly(True)"


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when an eager step would be faster as a graph."""
    facts.watched(analysis)
    job = analysis.measurements.job
    if job.loop == "custom":
        yield from _own_step(analysis)
        return
    if not job.run_eagerly:
        return
    if isinstance(analysis.replay, Missing):
        raise Undecided(f"the step was not replayed: {analysis.replay.reason}")
    graph = analysis.replay.graph
    if isinstance(graph, Missing):
        raise Undecided(graph.reason)
    live = analysis.measurements.live
    assert not isinstance(live, Missing)
    assert not isinstance(analysis.step, Missing)
    saved = (analysis.replay.call.value - graph.value) / live.steps_per_call
    cost = analysis.share(saved)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    per_step = 1.0 / live.steps_per_call
    call = analysis.replay.call
    yield Result(
        Finding(
            check=CHECK.id,
            title="The train step runs eagerly",
            severity=severity_of(cost),
            cost=facts.share(cost, source="eager replay less graph replay"),
            evidence=(
                Evidence(
                    "the step replayed eagerly",
                    Quantity(call.value, "s", call.low, call.high, source="replay").scaled(per_step),
                ),
                Evidence(
                    "the same step as a graph",
                    Quantity(graph.value, "s", graph.low, graph.high, source="replay").scaled(per_step),
                    Quantity(
                        call.value * per_step - facts.COST_SHARE * analysis.step.mean_s,
                        "s",
                        origin="given",
                    ),
                    "below",
                ),
            ),
            where=_EVERYWHERE if job.eager_everywhere else "model.compile(run_eagerly=True)",
        ),
        (graph_step.suggest(analysis, CHECK.id, everywhere=job.eager_everywhere),),
    )


def _own_step(analysis: Analysis) -> Iterator[Result]:
    """Fire when Python dispatches a caller's own step op by op, and that is what takes the time."""
    replay, job = analysis.measurements.replay, analysis.measurements.job
    if isinstance(replay, Missing):
        raise Undecided(f"the step was not replayed: {replay.reason}")
    traced = replay.traced
    if isinstance(traced, Missing):
        if job.eager_everywhere:
            raise Undecided(f"how the step is dispatched was not seen: {traced.reason}")
        return
    if not traced.eager:
        return
    assert not isinstance(analysis.step, Missing)
    dispatch = analysis.step.segments["launch"]
    if isinstance(dispatch, Missing):
        raise Undecided(dispatch.reason)
    cost = analysis.share(dispatch.value)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    threshold = Quantity(facts.COST_SHARE * analysis.step.mean_s, "s", origin="given")
    each = Quantity(traced.eager_ops / len(traced.call_s), "ops", source="trace", count=len(traced.call_s))
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Python dispatches the {each.value:.0f} operations of a step one by one",
            severity=severity_of(cost),
            cost=facts.share(cost, source="traced calls less the time in which their ops ran"),
            evidence=(
                Evidence("operations that Python has executed in a step", each),
                Evidence("time of a step in which none of them runs", dispatch, threshold, "above"),
            ),
            where=_EVERYWHERE if job.eager_everywhere else job.model,
        ),
        (graph_step.suggest_for_own(analysis, CHECK.id, dispatch.value),),
    )


CHECK = Check("eager-step", "The train step runs eagerly", "launch", __doc__, run)

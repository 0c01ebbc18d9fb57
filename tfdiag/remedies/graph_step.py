"""Run the train step as a graph."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import speedup

__all__ = ["predict", "suggest"]


def predict(analysis: Analysis) -> Maybe:
    """Predict the step from the same step replayed as a graph."""
    replay = analysis.replay
    live = analysis.measurements.live
    if isinstance(replay, Missing) or isinstance(live, Missing) or isinstance(analysis.step, Missing):
        return Missing("the step was not replayed")
    if isinstance(replay.graph, Missing):
        return replay.graph
    per_step = 1.0 / live.steps_per_call
    mean = analysis.step.mean_s

    def after(graph_s: float, eager_s: float) -> float:
        # A step is never faster than the same step replayed.
        return max(graph_s * per_step, mean - (eager_s - graph_s) * per_step)

    return speedup(
        analysis,
        after(replay.graph.value, replay.call.value),
        after(replay.graph.low, replay.call.high),
        after(replay.graph.high, replay.call.low),
        "the same batch replayed eagerly and as a graph",
    )


def suggest(analysis: Analysis, check: str, *, everywhere: bool) -> Suggestion:
    """Suggest to compile without `run_eagerly`."""
    code = (
        "- tf.config.run_functions_eagerly(True)"
        if everywhere
        else "- model.compile(…, run_eagerly=True)\n+ model.compile(…)"
    )
    return Suggestion(
        id=f"{check}/graph",
        check=check,
        text="Run the train step as a graph: each op is dispatched from Python now.",
        code=code,
        predicted=predict(analysis),
        risk="Python code in the step (prints, breakpoints, .numpy()) runs only while it is traced.",
        reason="not tried in the job itself: the step alone was replayed as a graph",
        changes=(Change("run_eagerly", value=False),),
    )

"""Run the train step as a graph."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import speedup

__all__ = ["predict", "suggest", "suggest_for_own"]

_SURELY = 0.5
"""Of the time in which no op runs, a graph takes away at least this part."""
_SWITCH = "- tf.config.run_functions_eagerly(True)\n+ tf.config.run_functions_eagerly(False)"
_ALONE = 4.0
"""An op that Python has executed by itself takes up to this much longer than in a graph."""
_CALL_S = 3e-4
"""What calling a graph takes, where it was not measured."""


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
    code = _SWITCH if everywhere else "- model.compile(…, run_eagerly=True)\n+ model.compile(…)"
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


def _with_function(analysis: Analysis, saved_s: float) -> Maybe:
    if isinstance(analysis.step, Missing):
        return analysis.step
    mean = analysis.step.mean_s
    after = mean - saved_s
    source = "the step without the time in which none of its ops runs"
    return speedup(analysis, after, after / _ALONE, mean - _SURELY * saved_s, source)


def suggest_for_own(analysis: Analysis, check: str, dispatch_s: float) -> Suggestion:
    """Suggest `tf.function` for a caller's own step, in which no op runs for so long."""
    job = analysis.measurements.job
    code = f"+ @tf.function\n  def {job.model}(batch): …"
    empty = Missing("not replayed") if isinstance(analysis.replay, Missing) else analysis.replay.empty
    call_s = _CALL_S if isinstance(empty, Missing) else empty.value
    return Suggestion(
        id=f"{check}/function",
        check=check,
        text="Run the train step as a graph: each op is dispatched from Python now.",
        code=_SWITCH if job.eager_everywhere else code,
        predicted=_with_function(analysis, max(0.0, dispatch_s - call_s)),
        risk="Python code in the step (prints, .numpy(), lists that grow) runs only while it is traced.",
        reason="the step is the caller's own function, which only the caller can change",
    )

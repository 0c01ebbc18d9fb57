"""The job as it is, and as a suggestion changes it, on copies of its input.

Where the job's epochs are short a copy has them too (`epochs.py`), and is the caller's own pipeline with
nothing but the change in it. Else a copy is read for ever, so that no end of an epoch falls into a turn; its
caches hold some batches and are full at once, because what is compared is the steady state. What comes out of
a cache costs the same however much it holds; what it takes to fill one is no part of the gain.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.analyse.pipeline.caches import never_full
from tfdiag.collect.session import Session
from tfdiag.compat import host, keras, keras_copies, tfdata
from tfdiag.compat.tfgraph import CannotEdit, DatasetGraph, GraphUnavailable
from tfdiag.model.changes import Change
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Step
from tfdiag.trials.apply import copied, edited, why_different
from tfdiag.trials.epochs import Epochs, caches_fit
from tfdiag.trials.lane import Arm, CachesTooLarge, CannotTry
from tfdiag.trials.model_changes import changed_arm

__all__ = ["arm_with", "require_possible"]

_CACHED_BATCHES = 8
_BUFFERED = 4
_AHEAD_BATCHES = 64
"""What the buffers of a copy may hold: a guess on the safe side, for memory only."""
_MEMORY_SHARE = 0.25
"""Of the free memory, for the buffers of one copy."""
_DIFFERENT_S = 1.0
_WAITS_MOST = 0.05
"""Of a step: an input that is gone is left out of a trial only where the step hardly waits for it."""
_NO_CALLBACKS = (
    "callbacks may have effects outside of the job, so none is run in a trial: its time was measured in fit"
)


def arm_with(
    session: Session,
    analysis: Analysis,
    edits: Sequence[Edit],
    changes: Sequence[Change],
    epochs: Epochs | None = None,
) -> Arm:
    """Give the caller's job on a copy of its input, with changes in that and beside it, if there are any.

    Without `epochs` it has no end.
    """
    require_possible(session, changes)
    rows = [int(change.value or 0) for change in changes if change.kind == "batch_size"]
    arm = _arm(session, analysis, edits, rows[-1] if rows else None, epochs)
    try:
        return changed_arm(arm, changes, session.device)
    except CannotTry:
        arm.close()
        raise


def require_possible(session: Session, changes: Sequence[Change]) -> None:
    """Say of changes beside the input that no time could try them, before any is spent."""
    if changes and session.request.train_step is not None:
        raise CannotTry("the step is the caller's own function, which only the caller can change")
    if any(change.kind == "without_callback" for change in changes):
        raise CannotTry(_NO_CALLBACKS)


def _arm(
    session: Session, analysis: Analysis, edits: Sequence[Edit], rows: int | None, epochs: Epochs | None
) -> Arm:
    source = session.request.source
    x = source.data.get("x")
    samples = 1.0
    if rows is not None:
        samples = rows / _rows(analysis)
    if source.exhausts or (source.one_shot and (edits or rows is not None or session.request.train_step)):
        raise CannotTry("the input can be read only once, and the measurement has used it")
    if tfdata.is_distributed(x) or not keras.has_default_strategy(session.request.model):
        raise CannotTry("jobs on several replicas are not tried")
    _require_memory(analysis)
    steps = 1
    if session.request.train_step is None:
        steps = keras.steps_per_execution(session.request.model)
    if source.one_shot:
        return _on_one_batch(session, analysis, steps)
    if keras.is_py_dataset(x):
        if rows is not None:
            raise CannotTry("a PyDataset makes its own batches")
        made = keras_copies.asking(copied(x, edits), endless=epochs is None)
        if made is None:
            raise CannotTry("a Sequence of tf_keras always comes to an end")
        return Arm(session.request.model, {"x": made}, steps_per_call=steps, epochs=epochs)
    if not tfdata.is_dataset(x):
        if edits:
            raise CannotTry(f"a {source.kind} can't be rewritten")
        return _adapted(session, source.fresh(), steps, rows, samples, epochs)
    dataset = _rewritten(session, analysis, x, edits, rows, epochs)
    return Arm(session.request.model, {"x": dataset}, steps_per_call=steps, samples=samples, epochs=epochs)


def _rewritten(
    session: Session,
    analysis: Analysis,
    x: Any,
    edits: Sequence[Edit],
    rows: int | None,
    epochs: Epochs | None,
) -> Any:
    """Give a copy of the caller's dataset that has these changes."""
    try:
        # Of its own: the caches of two copies must not lie in the same files.
        graph = DatasetGraph.of(x, tempfile.mkdtemp(dir=session.folder))
        changed = edited(graph, edits)
        if edits:
            why = why_different(graph, changed, edits, session.request.clock, _DIFFERENT_S)
            if why:
                raise CannotTry(why)
        if rows is not None:
            changed = changed.set_size(_batch(changed, _rows(analysis)), rows)
        if epochs is not None:
            if not caches_fit(changed.nodes, analysis):
                raise CachesTooLarge("its caches would hold more than a trial may take")
            return changed.build()
        changed = written_out(changed)
        spared = never_full(changed.nodes, _per_batch(analysis))
        endless = changed.full_caches(_cached(changed, analysis), but=spared).forever()
        if injects_prefetch(changed):
            endless = endless.prefetch(_BUFFERED)
        return _paused(endless).build()
    except (GraphUnavailable, CannotEdit) as error:
        raise CannotTry(str(error)) from error


def written_out(graph: DatasetGraph) -> DatasetGraph:
    """Make maps without state parallel, which the runtime does by itself, but only where it tunes."""
    if not graph.options.autotune or not graph.options.default_optimizations:
        return graph
    for node in graph.nodes:
        function = node.function
        if node.op == "MapDataset" and function is not None and not (function.stateful or function.python):
            with contextlib.suppress(CannotEdit):
                graph = graph.parallel(node.id)
    return graph


def injects_prefetch(graph: DatasetGraph) -> bool:
    """Say whether the runtime adds a prefetch at the end, which it does only where it tunes."""
    options = graph.options
    wanted = options.autotune and options.default_optimizations and options.inject_prefetch
    return wanted and "Prefetch" not in graph.nodes[-1].op


def _paused(graph: DatasetGraph) -> DatasetGraph:
    """Make a pipeline that stands still between turns behave as one that does not.

    The runtime's tuning would take the pause for a slow consumer, and let fewer threads work; without it,
    what it may tune runs on all cores. And deep buffers would hide for a whole turn what it takes to fill
    them.
    """
    for node in graph.nodes:
        if "Prefetch" in node.op and not 0 <= (node.size or 0) <= _BUFFERED:
            with contextlib.suppress(CannotEdit):
                graph = graph.set_size(node.id, _BUFFERED)
    return graph.with_options(autotune=False)


def _rows(analysis: Analysis) -> int:
    size = analysis.measurements.job.batch_size
    if isinstance(size, Missing):
        raise CannotTry(f"the batch size is not known: {size.reason}")
    return round(size.value)


def _batch(graph: DatasetGraph, rows: int) -> int:
    """Find the stage that makes the batches."""
    found = [node for node in graph.nodes if "BatchDataset" in node.op and node.size == rows]
    if not found:
        raise CannotTry(f"no stage of the pipeline makes batches of {rows}")
    return found[-1].id


def _on_one_batch(session: Session, analysis: Analysis, steps: int) -> Arm:
    """Give the job on the batch that was kept of an input that is gone: its step, which does not wait."""
    assert isinstance(analysis.step, Step)
    waits = analysis.step.segments["input_wait"]
    if not isinstance(waits, Quantity) or waits.value > _WAITS_MOST * analysis.step.mean_s:
        raise CannotTry("the input can be read only once, and the step waits for it")
    arguments = session.request.source.replayable()
    if arguments is None:
        raise CannotTry("the input can be read only once, and no batch of it was kept")
    arm = _adapted(session, arguments, steps, None, 1.0)
    arm.data["x"] = arm.data["x"].take(1).cache().repeat()
    return arm


def _adapted(
    session: Session,
    data: Mapping[str, Any],
    steps: int,
    rows: int | None,
    samples: float,
    epochs: Epochs | None = None,
) -> Arm:
    """Give the job on what `fit` makes of arrays, or of one batch."""
    request = session.request
    arguments = {**data, "shuffle": request.fit_kwargs.get("shuffle", True)}
    if rows is not None:
        arguments["batch_size"] = rows
    adapted = keras.adapter_dataset(request.model, arguments)
    if adapted is None:
        raise CannotTry("this Keras does not tell how it reads such an input")
    dataset = getattr(adapted, "dataset", adapted)
    close = getattr(adapted, "close", lambda: None)
    return Arm(
        request.model,
        {"x": dataset.repeat() if epochs is None else dataset},
        steps_per_call=steps,
        samples=samples,
        epochs=epochs,
        close=close,
    )


def _cached(graph: DatasetGraph, analysis: Analysis) -> int:
    """Give how many elements a cache holds in a trial: those of some batches, where their size is known."""
    rows = 1.0
    known = _per_batch(analysis)
    for node in graph.nodes:
        if "Cache" in node.op:
            below = [known[each] for each in node.inputs if each in known]
            rows = max([rows, known.get(node.id, 1.0), *below])
    return max(2, round(_CACHED_BATCHES * rows))


def _per_batch(analysis: Analysis) -> dict[int, float]:
    """Give the elements of each stage for a batch, where they are known."""
    if not isinstance(analysis.pipeline, PipelineModel):
        return {}
    return {stage.id: stage.per_batch for stage in analysis.pipeline.stages if stage.id >= 0}


def _require_memory(analysis: Analysis) -> None:
    size = analysis.measurements.job.batch_bytes
    if not isinstance(size, Quantity):
        return
    free = host.free_memory_bytes()
    need = _AHEAD_BATCHES * size.value
    if need > _MEMORY_SHARE * free:
        raise CannotTry(
            f"the buffers of a copy could take {need / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are free"
        )

"""The input pipeline: as the runtime's model has it, as it was written, and what its stages cost alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tfdiag.collect.recorder import Recorder
from tfdiag.collect.samples import Samples, sample_stages
from tfdiag.compat import tfdata
from tfdiag.compat.tfgraph import DatasetGraph, GraphUnavailable
from tfdiag.model.measurements import Live, Replay
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.quantity import Missing

__all__ = ["describe_pipeline", "hardly_waits", "with_samples"]

_SLOWED = 1.15
"""How much longer a call takes than its replay before its input is suspected."""
_WORTH = 0.03
"""Of the step: an input that is waited for less is not looked into any further."""


def describe_pipeline(dataset: Any, recorder: Recorder | None, cache_folder: str = "") -> Pipeline | Missing:
    """Describe the pipeline that ran."""
    stages = recorder.stages if recorder is not None else None
    before = recorder.stages_before if recorder is not None else None
    known = tfdata.is_dataset(dataset)
    if stages is None and not known:
        return Missing(recorder.stages_missing() if recorder is not None else "nothing ran")
    functions = tfdata.written_functions(dataset) if known else []
    described = Pipeline(
        stages=stages.stages if stages is not None else (),
        stages_before=before.stages if before is not None else (),
        output=stages.output if stages is not None else None,
        written=tuple(tfdata.written_chain(dataset)) if known else (),
        python_functions=tuple(name for name, python in functions if python),
        autotune=tfdata.autotune_enabled(dataset),
        prefetch_injected=tfdata.prefetch_injected(dataset),
        missing="" if stages is not None or recorder is None else recorder.stages_missing(),
    )
    if not known:
        return replace(described, graph_missing="the input is not a tf.data.Dataset of the caller's")
    try:
        graph = DatasetGraph.of(dataset, cache_folder)
    except GraphUnavailable as error:
        return replace(described, graph_missing=str(error))
    return replace(described, graph=graph.nodes, options=graph.options)


def with_samples(
    described: Pipeline | Missing,
    dataset: Any,
    *,
    cache_folder: str,
    cores: int,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
    longest_s: float = 0.0,
) -> Pipeline | Missing:
    """Add what the stages of a pipeline cost alone; `longest_s` is what a batch is known to take."""
    if isinstance(described, Missing) or not described.graph:
        return described
    try:
        graph = DatasetGraph.of(dataset, cache_folder)
    except GraphUnavailable as error:
        return replace(described, samples_missing=str(error))
    found: Samples = sample_stages(
        graph, cores=cores, until=until, clock=clock, should_stop=should_stop, longest_s=longest_s
    )
    return replace(
        described,
        samples=tuple(found.samples),
        sample_threads=cores,
        samples_missing=found.missing,
        call_overhead_s=found.overhead,
    )


def hardly_waits(live: Live | Missing, replayed: Replay | Missing) -> bool:
    """Say whether the steps of a run surely lose no time to their input.

    They wait hardly, and what remains of a call takes no longer than the same call without any input.
    """
    if isinstance(live, Missing) or len(live.start_s) < 3:
        return False
    periods = np.diff(np.array(live.start_s))
    waits = np.array(live.wait_s)[:-1]
    half = len(periods) // 2  # what the first steps wait for is a pipeline that starts
    seen = ~np.isnan(waits[half:])
    if not seen.any():
        return False
    if float(waits[half:][seen].sum()) >= _WORTH * float(periods[half:][seen].sum()):
        return False
    bare = () if isinstance(replayed, Missing) else replayed.paced_call_s or replayed.call_s
    if not bare:
        return True
    calls = (np.array(live.duration_s)[:-1] - waits)[half:][seen]
    return float(np.median(calls)) < _SLOWED * float(np.median(bare))

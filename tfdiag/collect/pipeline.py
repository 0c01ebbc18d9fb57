"""The input pipeline: as the runtime's model has it, and as the caller wrote it."""

from __future__ import annotations

from typing import Any

from tfdiag.collect.recorder import Recorder
from tfdiag.compat import tfdata
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.quantity import Missing

__all__ = ["describe_pipeline"]


def describe_pipeline(dataset: Any, recorder: Recorder | None) -> Pipeline | Missing:
    """Describe the pipeline that ran."""
    stages = recorder.stages if recorder is not None else None
    known = tfdata.is_dataset(dataset)
    if stages is None and not known:
        return Missing(recorder.stages_missing() if recorder is not None else "nothing ran")
    functions = tfdata.written_functions(dataset) if known else []
    return Pipeline(
        stages=stages[0] if stages is not None else (),
        output=stages[1] if stages is not None else None,
        written=tuple(tfdata.written_chain(dataset)) if known else (),
        python_functions=tuple(name for name, python in functions if python),
        autotune=tfdata.autotune_enabled(dataset),
        prefetch_injected=tfdata.prefetch_injected(dataset),
        missing="" if stages is not None or recorder is None else recorder.stages_missing(),
    )

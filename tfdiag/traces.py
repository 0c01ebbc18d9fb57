"""`tfdiag.analyze_trace`: the stages behind `collect` on a trace from elsewhere, without TensorFlow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from tfdiag.analyse.analysis import analyse
from tfdiag.analyse.device import measurements_of
from tfdiag.checks.registry import check_ids, run_checks
from tfdiag.errors import UsageError
from tfdiag.render.report import Report
from tfdiag.report.build import build
from tfdiag.timeline import condense, read_trace
from tfdiag.timeline.files import LIMIT_BYTES

__all__ = ["analyze_trace"]


def analyze_trace(
    path_or_bytes: str | os.PathLike[str] | bytes,
    *,
    limit_bytes: int = LIMIT_BYTES,
    ignore: Iterable[str] = (),
) -> Report:
    """Say where the time of the steps goes in a trace that was captured elsewhere.

    Takes an XSpace (`*.xplane.pb`, of `tf.profiler`, Keras' TensorBoard callback or JAX), a timeline of
    TensorFlow 1 (`*.json`), the bytes of either, gzipped or not, or a log directory, of which the newest run
    is taken with all its hosts. What is larger than `limit_bytes` is refused before it is read.
    """
    if limit_bytes <= 0:
        raise UsageError(f"limit_bytes is a number of bytes above 0, got {limit_bytes!r}")
    ignored = check_ids(ignore)
    begin = time.perf_counter()
    trace = condense(read_trace(path_or_bytes, limit_bytes=limit_bytes))
    analysis = analyse(measurements_of(trace, time.perf_counter() - begin))
    return Report.from_data(
        build(
            analysis,
            run_checks(analysis, ignored),
            ignored=ignored,
            untried="not tried: a trace can't be run again",
        )
    )

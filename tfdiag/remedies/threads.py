"""As many threads as there is processor time for, or more of that."""

from __future__ import annotations

import math

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.quantity import Maybe
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["as_many_as", "larger_quota"]

_THREADS = """\
+ # before TensorFlow computes anything
+ tf.config.threading.set_intra_op_parallelism_threads({number})
+ tf.config.threading.set_inter_op_parallelism_threads({number})
  options = tf.data.Options()
+ options.threading.private_threadpool_size = {number}
+ dataset = dataset.with_options(options)"""
_QUOTA = """\
+ # docker run --cpus={number} ...
+ # or in Kubernetes, for the container: resources: {{limits: {{cpu: "{number}"}}}}"""


def as_many_as(check: str, cores: float, of: str, predicted: Maybe) -> Suggestion:
    """Suggest thread pools of a size that fits."""
    number = max(1, math.floor(cores))
    return Suggestion(
        id=f"{check}/threads",
        check=check,
        text=f"Let TensorFlow and tf.data use {number} thread{'s' if number > 1 else ''}, as {of} allows.",
        code=_THREADS.format(number=number),
        predicted=predicted,
        risk="Both settings hold for the whole process, and only if they are made before its first op.",
        reason="not tried: threads are set before TensorFlow computes anything",
    )


def larger_quota(analysis: Analysis, check: str, wanted: float, cost: float) -> Suggestion:
    """Suggest a quota of as many cores as the job had at work."""
    number = min(analysis.measurements.environment.cores, max(1, math.ceil(wanted - 1e-9)))
    seconds = 0.0 if not hasattr(analysis.step, "mean_s") else cost * analysis.step.mean_s
    return Suggestion(
        id=f"{check}/quota",
        check=check,
        text=f"Give the container {number} cores: so many were at work until its quota was used up.",
        code=_QUOTA.format(number=number),
        predicted=gain_without(
            analysis, seconds, at_least=0.5, at_most=1.0,
            source="the step without the time in which the quota held everything back",
        ),
        risk="Others on the same machine get less.",
        reason="not tried: a container's quota is set from outside",
    )  # fmt: skip

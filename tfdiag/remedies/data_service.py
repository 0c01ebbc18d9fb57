"""Let other machines prepare the batches: tf.data service."""

from __future__ import annotations

import math

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import usable_cores
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import speedup

__all__ = ["DISPATCHER", "TRAINING", "WORKER", "code", "predict", "suggest", "workers"]

_SPREAD = 1.25
"""How much slower workers may be: batches travel over the network, and their receipt takes time too."""

DISPATCHER = """\
dispatcher = tf.data.experimental.service.DispatchServer(
    tf.data.experimental.service.DispatcherConfig(port={dispatcher_port})
)"""
WORKER = """\
worker = tf.data.experimental.service.WorkerServer(
    tf.data.experimental.service.WorkerConfig(
        dispatcher_address="{dispatcher}",
        worker_address="{worker}",
        port={worker_port},
    )
)"""
TRAINING = """\
dataset = dataset.apply(
    tf.data.experimental.service.distribute(
        processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
        service="grpc://{dispatcher}",
    )
).prefetch(tf.data.AUTOTUNE)"""


def workers(analysis: Analysis, input_cpu_s: float) -> int:
    """Give how many machines like this one prepare batches as fast as the step without waits takes them."""
    rest = _rest(analysis)
    if rest <= 0:
        return 1
    return max(1, math.ceil(input_cpu_s / (usable_cores(analysis.measurements) * rest) - 1e-9))


def _rest(analysis: Analysis) -> float:
    if isinstance(analysis.step, Missing):
        return 0.0
    return analysis.step.mean_s - analysis.segment("input_wait")


def predict(analysis: Analysis, input_cpu_s: float) -> Maybe:
    """Predict the step when the input's work is done elsewhere."""
    if isinstance(analysis.step, Missing):
        return analysis.step
    rest = _rest(analysis)
    number = workers(analysis, input_cpu_s)
    cores = usable_cores(analysis.measurements)
    elsewhere = input_cpu_s / (number * cores)
    bare = analysis.bounds.replay
    # The step itself gets faster as well once nobody takes its cores.
    best = min(rest, bare.value) if isinstance(bare, Quantity) else rest
    mean = analysis.step.mean_s
    after = max(rest, elsewhere)
    return speedup(
        analysis,
        min(after, mean),
        max(best, min(elsewhere, rest)),
        min(after * _SPREAD, mean),
        f"the input's processor time on {number} workers with {cores:g} cores each, like this machine's",
    )


def code(number: int) -> str:
    """Give the three parts of a tf.data service: a dispatcher, workers, and the job that reads from them."""
    names = {
        "dispatcher": "dispatcher-host:5050",
        "dispatcher_port": 5050,
        "worker": "worker-host:5051",
        "worker_port": 5051,
    }
    machines = f"on each of {number} other machines" if number > 1 else "on another machine"
    parts = (
        ("on a machine that all others reach, in a process that stays", DISPATCHER, "dispatcher.join()"),
        (f"{machines}, in a process that stays", WORKER, "worker.join()"),
        ("in the training job", TRAINING, ""),
    )
    lines = []
    for place, text, last in parts:
        lines.append(f"  # {place}")
        lines += [f"+ {line}" for line in [*text.format(**names).splitlines(), last] if line]
    return "\n".join(lines)


def suggest(analysis: Analysis, check: str, input_cpu_s: float) -> Suggestion:
    """Suggest as many workers as the step needs to wait no more."""
    number = workers(analysis, input_cpu_s)
    plural = "s" if number > 1 else ""
    return Suggestion(
        id=f"{check}/data-service",
        check=check,
        text=(
            f"Let tf.data service prepare the batches on {number} worker{plural} with as many cores as this "
            "machine has."
        ),
        code=code(number),
        predicted=predict(analysis, input_cpu_s),
        risk=(
            "Batches come in another order, and some twice or not at all if a worker fails. The network "
            "must carry them. Workers need the data's files at the same paths; Python functions and "
            "generators can't go there."
        ),
        reason="not tried: it takes other machines",
    )

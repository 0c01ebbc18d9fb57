"""The phases that look at the computation itself: what the step computes, and how it grows with the batch.

Like those of `phases.py`, each gives its measurement, or why there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfdiag.collect.compute import measure_compute
from tfdiag.collect.scaling import Room, measure_scaling
from tfdiag.collect.session import Session
from tfdiag.collect.worker import Worker
from tfdiag.compat import keras
from tfdiag.model.compute import Compute
from tfdiag.model.measurements import Job, Live, Replay
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.scaling import Scaling

__all__ = ["count_work", "scale_batch"]

_COUNT_SHARE = 0.08
_COUNT_AT_MOST_S = 1.0
_SCALING_SHARE = 0.2
_SCALING_MOST_SHARE = 0.6
"""Where less would tell nothing at all."""
_SCALING_AT_MOST_S = 4.0
_MOSTLY_WAITS = 0.5
"""A step that waits for more than this of its time is not made faster by what is done inside of it."""
_SMALL_BUDGET_S = 20.0
_LEAST_LEFT_S = 0.6
"""With less left of the budget the analysis and what else comes need all of it."""


def count_work(
    session: Session,
    worker: Worker,
    job: Job,
    live: Live,
    replayed: Replay | Missing,
    placement: Placement | Missing,
) -> Compute | Missing:
    """Count the operations of the step, and measure the machine's peak where computing may matter."""
    if job.run_eagerly:
        return Missing("an eager step has no graph whose operations could be counted")
    if isinstance(replayed, Missing):
        return replayed
    if session.deadline.left() < _LEAST_LEFT_S:
        return Missing("the budget left no time to count the operations of the step")
    request = session.request
    model = None if request.train_step is not None else request.model
    with session.phase("the computation"):
        until = session.deadline.share(_COUNT_SHARE, _COUNT_AT_MOST_S)
        device = _device(session, placement)

        def work() -> Compute | Missing:
            return measure_compute(
                model,
                request.train_step if model is None else keras.make_train_function(model),
                rows=round(job.batch_size.value) if isinstance(job.batch_size, Quantity) else None,
                device=device,
                capability=session.capability(device),
                peaks=_waits(live) < _MOSTLY_WAITS,
                until=until,
                clock=request.clock,
                should_stop=lambda: session.stopped_hard,
            )

        result: Compute | Missing = session.guarded(worker, work, "counting the operations of the step")
        return result


def scale_batch(
    session: Session, worker: Worker, job: Job, batch: Any, live: Live, replayed: Replay | Missing
) -> Scaling | Missing:
    """Replay the batch at several sizes, where there is room for it and it could matter."""
    if batch is None:
        return Missing("there is no batch to replay")
    if isinstance(replayed, Missing) or not replayed.call_s:
        return replayed if isinstance(replayed, Missing) else Missing("the batch was not replayed")
    request = session.request
    if request.train_step is not None:
        return Missing("the caller's own step function would be traced anew for batches of another size")
    if not isinstance(job.batch_size, Quantity):
        return job.batch_size
    if _waits(live) > _MOSTLY_WAITS and request.budget_s < _SMALL_BUDGET_S:
        return Missing("the step mostly waits for its input, and a small budget goes to that")
    if session.deadline.left() < _LEAST_LEFT_S:
        return Missing("the budget left no time to run the step at several batch sizes")
    rows = round(job.batch_size.value)
    session.say("replaying the batch at several sizes")
    with session.phase("batch scaling"):
        begin = request.clock()
        room = Room(
            window_s=max(0.0, session.deadline.share(_SCALING_SHARE, _SCALING_AT_MOST_S) - begin),
            most_s=max(0.0, session.deadline.share(_SCALING_MOST_SHARE, _SCALING_AT_MOST_S) - begin),
            call_s=float(np.median(replayed.call_s)),
            trace_s=max(live.duration_s[:1], default=0.0),
            compiles=job.jit_compile,
        )

        def work() -> Scaling | Missing:
            return measure_scaling(
                request.model,
                batch,
                session.element_spec,
                rows,
                room=room,
                device="GPU:0" if session.has_device else "",
                clock=request.clock,
                should_stop=lambda: session.stopped_hard,
            )

        result: Scaling | Missing = session.guarded(worker, work, "replaying the batch at several sizes")
        return result


def _waits(live: Live) -> float:
    """Give the share of the calls' time that waits for input, 0 where nobody knows."""
    known = [
        (wait, took)
        for wait, took in zip(live.wait_s[1:], live.duration_s[1:], strict=True)
        if not np.isnan(wait)
    ]
    took = sum(each for _, each in known)
    return sum(wait for wait, _ in known) / took if took > 0 else 0.0


def _device(session: Session, placement: Placement | Missing) -> str:
    """Give the device that runs most of the step's ops."""
    if not session.has_device:
        return "/CPU:0"
    if isinstance(placement, Missing) or not placement.devices:
        return "/GPU:0"
    return max(placement.devices, key=lambda each: each.ops).device

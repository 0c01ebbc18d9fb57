"""The device waits for the host to launch kernels that are shorter than their launch.

What it measures
    From the device's timeline: kernels per step, how long they are, how many are shorter than the host's
    call that launched them, and how long the device idles while the host dispatches. It fires when the
    device idles so for at least a tenth of the step and most kernels are that short.
Why it matters
    A launch costs the host some microseconds, with TensorFlow's executor ten or more. A kernel that is done
    sooner leaves the device waiting for the next, and a faster GPU waits longer.
How to fix it
    `model.compile(..., jit_compile=True)` lets XLA fuse many small kernels into few. A bigger batch makes
    each kernel longer for the same number of launches.
When to ignore it
    When the host is slowed by something else at the same time, such as input work on all cores.
References
    https://www.tensorflow.org/xla
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import fewer_launches, more_steps_per_call

__all__ = ["CHECK"]

_SHARE = 0.1
_SHORT = 0.5
_SHORT_S = 10e-6
_KERNELS = 10


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when launches of short kernels hold up the device."""
    traced = facts.device(analysis)
    if traced is None:
        return
    if analysis.measurements.job.run_eagerly:
        return  # an eager step has its own check
    device = traced.device
    launch = facts.segment(analysis, "launch")
    if device.launches:  # the host may be late with copies as well
        launch = min(launch, traced.per_step(device.late_gap_s))
    cost = analysis.share(launch)
    per_step = traced.per_step(device.kernels)
    if not analysis.crosses(cost, _SHARE) or per_step < _KERNELS:
        return
    if device.launches:
        short = device.short_kernels / device.launches
        length = Evidence(
            "part of the kernels shorter than their launch",
            Quantity(short, "share", source="device trace", count=device.launches),
            Quantity(_SHORT, "share", origin="given"),
            "above",
        )
        fires = short >= _SHORT
    else:
        fires = False
        length = Evidence("median kernel", Quantity(device.median_kernel_s, "s", source="device trace"))
    if not fires:
        if device.median_kernel_s >= _SHORT_S:
            return
        length = Evidence(
            "median kernel",
            Quantity(device.median_kernel_s, "s", source="device trace", count=device.kernels),
            Quantity(_SHORT_S, "s", origin="given"),
            "below",
        )
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The device waits for launches {cost:.0%} of the step: {per_step:,.0f} short kernels",
            severity=severity_of(cost),
            cost=facts.share(cost, source="the device idles while the host dispatches"),
            evidence=(
                Evidence(
                    "idle while the host dispatches, per step",
                    Quantity(launch, "s", source="device trace"),
                    Quantity(_SHARE * facts.mean(analysis), "s", origin="given"),
                    "above",
                ),
                length,
                Evidence("kernels per step", Quantity(per_step, "kernels", source="device trace")),
            ),
            where="the train step",
        ),
        (
            fewer_launches.suggest(analysis, CHECK.id, launch),
            more_steps_per_call.suggest_bigger_batch(analysis, CHECK.id, launch),
        ),
    )


CHECK = Check("many-small-kernels", "Kernels are shorter than their launch", "launch", __doc__, run)

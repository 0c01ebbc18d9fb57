"""The container's quota is used up, and the whole job is held back until the next period.

What it measures
    The quota of the control group (version 1 or 2) that the job runs in, and how long the kernel held its
    threads back because the quota was used up. That time is counted on each core that had work; held against
    the processor time that was used, it gives the share of the wall time in which nothing of the job ran. It
    fires from 5 % of the step on, where the quota is smaller than the machine's cores. On an accelerator only
    the time in which the device does not compute counts.
Why it matters
    TensorFlow sees the cores of the machine, and not the quota. With a quota of 2 cores on a machine of 64 it
    starts 64 threads, which use up the quota of a period of 100 ms in 3 ms; then all of them stand still, the
    thread that feeds the GPU as well.
How to fix it
    Give the container more processor time (`docker run --cpus`, `resources.limits.cpu` in Kubernetes), or no
    limit beside a request. Or let TensorFlow and tf.data start as many threads as the quota has cores: the
    same work is then spread over the period instead of standing still in it.
When to ignore it
    When the quota is meant, and the job is as fast as it has to be.
References
    https://docs.kernel.org/scheduler/sched-bwc.html
    https://www.tensorflow.org/api_docs/python/tf/config/threading
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, hosts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding, Suggestion
from tfdiag.remedies import threads

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the job loses time to a quota."""
    environment = analysis.measurements.environment
    quota, cores = environment.cpu_quota, environment.cores
    if isinstance(quota, Missing) or quota.value >= cores:
        return
    host = hosts.watched_host(analysis)
    held = hosts.told(host.used("throttled"), "how long the quota held the job back")
    used = hosts.told(host.used("group_cpu"), "the processor time of the container")
    wanted = held.value + used.value
    if wanted <= 0:
        return
    # With k cores at work until the quota is used up: both are k times what the wall clock says.
    stood = held.value / wanted
    cost = stood * hosts.exposed(analysis)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    evidence = [
        Evidence(
            "share of the time in which the quota held everything back",
            Quantity(
                stood, "share", origin="estimated",
                source="time held back over that and the processor time used", count=held.count,
            ),
            Quantity(facts.COST_SHARE, "share", origin="given"),
            "above",
        ),
        Evidence("quota of the container", quota, Quantity(float(cores), "cores", origin="given"), "below"),
        Evidence(
            "cores that it had at work until then",
            Quantity(
                wanted / host.seconds, "cores", origin="estimated",
                source="processor time and time held back, over the wall time",
            ),
        ),
    ]  # fmt: skip
    periods, throttled = host.used("periods"), host.used("throttled_periods")
    if isinstance(periods, Quantity) and isinstance(throttled, Quantity) and periods.value > 0:
        part = throttled.value / periods.value
        source = f"{throttled.value:.0f} of {periods.value:.0f}"
        evidence.append(Evidence("periods in which it was used up", Quantity(part, "share", source=source)))
    if environment.intra_op_threads:
        intra = Quantity(float(environment.intra_op_threads), "threads", origin="given")
        evidence.append(Evidence("threads that TensorFlow was told to use", intra))
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"The container's quota of {quota.value:g} cores holds the job back",
            severity=severity_of(cost),
            cost=Quantity(cost, "share", origin="estimated", source="time in which nothing of the job ran"),
            evidence=tuple(evidence),
            where=f"the control group ({quota.source})",
        ),
        tuple(_suggestions(analysis, quota.value, wanted / host.seconds, cost)),
    )


def _suggestions(analysis: Analysis, quota: float, wanted: float, cost: float) -> Iterator[Suggestion]:
    yield threads.larger_quota(analysis, CHECK.id, wanted, cost)
    yield threads.as_many_as(
        CHECK.id,
        quota,
        "the quota",
        Missing("the container's processor time stays what it is; only how it is spread changes"),
    )


CHECK = Check("cpu-quota", "The container's CPU quota holds the job back", "environment", __doc__, run)

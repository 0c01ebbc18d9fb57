"""More threads want to run than there are cores, and the step pays for it.

What it measures
    In the steady part of the live run: how many threads of the machine ran or wanted to at a time, how busy
    the cores were, and what they were busy with. Processor time counts as lost that other processes with
    TensorFlow took while no core was left; and, where TensorFlow was told to use more threads than the job
    has cores, the time that the job spent in the kernel, with switching and waking threads: it loses more
    than that, in locks and caches, but nothing tells how much. It fires from 5 % of the cores' time on, if at
    least half as many threads again as there are cores want to run.
Why it matters
    Two jobs on the same cores each take as long as both together. Threads beyond the cores do no more work:
    they take turns, wait for locks that a sleeping thread holds, and empty each other's caches.
How to fix it
    One training job a machine, or a set of cores for each (`taskset`, `docker run --cpuset-cpus`). Leave
    TensorFlow's thread counts alone, or set them to the cores that the job has; the same holds for
    `OMP_NUM_THREADS` and for the workers of a PyDataset or of other libraries in the input.
When to ignore it
    When the other job is meant to run beside this one. When what runs in the kernel is reading files.
References
    https://www.tensorflow.org/api_docs/python/tf/config/threading
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.host import HostFacts
from tfdiag.checks import facts, hosts
from tfdiag.checks.registry import Check, Result, severity_of
from tfdiag.model.host import HostProcess
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding, Suggestion
from tfdiag.remedies import threads

__all__ = ["CHECK"]

_QUEUE = 1.5
"""Threads that want to run, over cores."""
_FULL = 0.9
"""Of the cores: with more that are idle nobody takes anything away."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when threads beyond the cores cost the step."""
    environment = analysis.measurements.environment
    host = hosts.watched_host(analysis)
    cores = host.cores
    told = max(environment.intra_op_threads, environment.inter_op_threads)
    others = [each for each in host.telemetry.processes if each.tensorflow]
    if told <= cores and not others:
        return
    queue = hosts.told(host.mean("runnable"), "how many threads want to run")
    busy = hosts.told(host.rate("machine_busy"), "how busy the cores were")
    own = hosts.told(host.own_cores, "the processor time of the job")
    if queue.value < _QUEUE * cores:
        return
    full = busy.value >= _FULL * environment.cores
    # What was seen of single processes is of the whole diagnosis; there can't have been more than this.
    taken = min(sum(each.cores for each in others), max(0.0, busy.value - own.value)) if full else 0.0
    kernel = 0.0
    if told > cores:
        kernel = hosts.told(host.rate("system_cpu"), "the time in the kernel").value
    cost = min(1.0, (taken + kernel) / environment.cores) * hosts.exposed(analysis)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    evidence = [
        Evidence(
            "share of the cores' time that went elsewhere",
            Quantity(
                (taken + kernel) / environment.cores, "share", origin="estimated",
                source="other processes with TensorFlow, and switching threads", count=busy.count,
            ),
            Quantity(facts.COST_SHARE, "share", origin="given"),
            "above",
        ),
        Evidence(
            "threads that want to run at a time",
            queue,
            Quantity(_QUEUE * cores, "threads", origin="given"),
            "above",
        ),
        Evidence(
            "cores that were busy",
            busy,
            Quantity(_FULL * environment.cores, "cores", origin="given") if full else None,
            "above" if full else "",
        ),
        Evidence("of these, with this job", own),
        *_others(others),
        *_switching(host, told, cores, kernel),
    ]  # fmt: skip
    yield Result(
        Finding(
            check=CHECK.id,
            title=_title(others, told, cores, taken, kernel),
            severity=severity_of(cost),
            cost=Quantity(
                cost,
                "share",
                origin="estimated",
                source="cores' time that went elsewhere, if the job wanted it",
            ),
            evidence=tuple(evidence),
            where="the machine" if taken > kernel else "tf.config.threading",
        ),
        tuple(_suggestions(told, cores, len(others), taken, kernel)),
    )


def _others(others: list[HostProcess]) -> Iterator[Evidence]:
    for each in others:
        yield Evidence(f"cores that {_name(each)} kept busy", Quantity(each.cores, "cores", source="/proc"))


def _switching(host: HostFacts, told: int, cores: float, kernel: float) -> Iterator[Evidence]:
    if told > cores:
        given = Quantity(cores, "threads", origin="given")
        yield Evidence(
            "threads that TensorFlow was told to use", Quantity(float(told), "threads"), given, "above"
        )
        yield Evidence("cores with this job in the kernel", Quantity(kernel, "cores", source="getrusage"))
    switches = host.rate("involuntary_switches")
    if isinstance(switches, Quantity):
        yield Evidence("threads of this job taken off a core for another", switches)


def _title(others: list[HostProcess], told: int, cores: float, taken: float, kernel: float) -> str:
    if taken > kernel:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        return f"{_name(others[0])}{more} with TensorFlow on the same {cores:g} cores"
    return f"TensorFlow was told to use {told} threads on {cores:g} cores"


def _suggestions(told: int, cores: float, others: int, taken: float, kernel: float) -> Iterator[Suggestion]:
    each = cores / (1 + others)
    if told > cores:
        missing = Missing("how much of the time in the kernel goes away with the threads was not measured")
        yield threads.as_many_as(CHECK.id, cores, "the number of cores", missing)
    elif taken > kernel:
        missing = Missing("the cores are shared either way; alone, the job would have all of them")
        yield threads.as_many_as(CHECK.id, each, f"a share of the {cores:g} cores", missing)


def _name(process: HostProcess) -> str:
    return f"{process.name} (process {process.pid})" if process.name else f"process {process.pid}"


CHECK = Check(
    "oversubscribed-threads",
    "More threads want to run than there are cores",
    "environment",
    __doc__,
    run,
)

"""The memory of the process grows with every step, and will be full.

What it measures
    The resident memory of the process without pages of files, over the steps of the steady part of the live
    run. It is cut into six parts (four where samples are few), and their medians are compared: it fires when
    the rise with each step is above zero with its whole interval, does not become less in the second half,
    is at least 32 MB in all, and leads to full memory within a day.
    What fills up and then stays is no growth: while a cache is being filled nothing is said (a shuffle fills
    its buffer before the first step). Free is what the machine has left, or its container.
Why it matters
    When memory is full, the system ends the process, often in the night and without a word of Python's;
    before that it gives back the pages of the data's files, and reads get slow. Steps pay nothing until then,
    so the cost of this finding is zero.
How to fix it
    Usual causes: a list that keeps tensors, logs or predictions of each step; a `tf.function` that is traced
    again and again (each trace stays); a dataset or an iterator that is made anew within the loop; a Python
    generator that keeps what it gave. `tracemalloc` names the lines whose allocations stay; what it does not
    see belongs to TensorFlow.
When to ignore it
    When the job ends long before its memory is full, or when what grows is bounded: a replay buffer, say.
References
    https://docs.python.org/3/library/tracemalloc.html
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.growth import Growth, growth_of
from tfdiag.checks import facts, hosts
from tfdiag.checks.registry import Check, Result, Undecided
from tfdiag.model.measurements import Live
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding, Severity
from tfdiag.remedies import growing_memory

__all__ = ["CHECK"]

_DAY_S = 86400.0
_HOUR_S = 3600.0
_LEAST_RISE = 32e6
"""Bytes: allocators take and keep so much without any leak, tens of megabytes in the first seconds."""
_LEAST_PER_STEP = 1024.0
"""Bytes: what a diagnosis itself writes down of a step is less."""
_LONG_S = 60.0
"""In a shorter run, buffers that fill and allocators that spread out look the same as a leak …"""
_SURE_RISE = 512e6
"""… unless it is this much."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when memory will be full within a day."""
    host = hosts.watched_host(analysis)
    live = analysis.measurements.live
    assert isinstance(live, Live)
    growth = growth_of(host, live)
    if isinstance(growth, Missing):
        if host.samples[-1].rss_bytes - host.samples[0].rss_bytes < _LEAST_RISE:
            return  # whatever it is, it is not much
        raise Undecided(f"memory rose, but whether it goes on is not known: {growth.reason}")
    step = facts.mean(analysis)
    if growth.rise < _LEAST_RISE or growth.per_step.value < _LEAST_PER_STEP:
        return
    if isinstance(growth.free, Missing):
        raise Undecided(f"memory grows, but what is free is not known: {growth.free.reason}")
    full_s = growth.free / growth.per_step.value * step
    if full_s > _DAY_S or growth.settles:
        return
    if analysis.filling:
        raise Undecided(f"memory grows while {analysis.filling} is being filled")
    if growth.per_step.low <= 0 or growth.free / growth.per_step.low * step > _DAY_S:
        raise Undecided(
            f"memory rose by {growth.rise / 2**20:.0f} MiB in {growth.seconds:.1f} s, too unevenly to say "
            "that it goes on"
        )
    if growth.seconds < _LONG_S and growth.rise < _SURE_RISE:
        raise Undecided(
            f"memory rose by {growth.rise / 2**20:.0f} MiB in {growth.seconds:.0f} s, too short to tell a "
            "leak from buffers that fill: tfdiag.DiagnosticsCallback watches for longer"
        )
    yield _result(growth, step, full_s)


def _result(growth: Growth, step: float, full_s: float) -> Result:
    assert not isinstance(growth.free, Missing)
    rise = growth.per_step
    each = Quantity(rise.value, "B", rise.low, rise.high, source=growth.source, count=rise.count)
    many = each.scaled(1000)
    severity: Severity = "critical" if full_s < _HOUR_S else "warning"
    until = Quantity(
        full_s, "s", growth.free / rise.high * step, growth.free / rise.low * step, "estimated",
        "what is free over the growth",
    )  # fmt: skip
    evidence = (
        Evidence("until memory is full", until, Quantity(_DAY_S, "s", origin="given"), "below"),
        Evidence("growth of memory in a step", each, Quantity(_LEAST_PER_STEP, "B", origin="given"), "above"),
        Evidence("in 1,000 steps", many),
        Evidence(
            "rise in the steady part of the live run",
            Quantity(growth.rise, "B", source=growth.source),
            Quantity(_LEAST_RISE, "B", origin="given"),
            "above",
        ),
        Evidence("free memory", Quantity(growth.free, "B", source="the machine and its container")),
    )
    return Result(
        Finding(
            check=CHECK.id,
            title=f"Host memory grows by {_size(many.value)} in 1,000 steps and is full in {_time(full_s)}",
            severity=severity,
            cost=Quantity(0.0, "share", source="steps pay nothing until memory is full"),
            evidence=evidence,
            where="the process",
        ),
        (growing_memory.suggest(CHECK.id),),
    )


def _size(value: float) -> str:
    return f"{value / 2**20:.3g} MiB" if value < 999 * 2**20 else f"{value / 2**30:.3g} GiB"


def _time(seconds: float) -> str:
    return f"{seconds / _HOUR_S:.1f} h" if seconds >= _HOUR_S else f"{seconds / 60:.0f} min"


CHECK = Check("memory-growth", "Host memory grows step by step", "environment", __doc__, run)

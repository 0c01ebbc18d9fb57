"""What a report says about the machine beside the job: the little that matters."""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.host import HostFacts, host_facts
from tfdiag.model.host import HostTelemetry
from tfdiag.model.measurements import Measurements
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.render.format import clean, number, quantity, share, size

__all__ = ["host_lines"]

_WORTH = 0.01
"""A smaller share of the time is not worth a word."""
_TRAFFIC = 1e6
"""Bytes a second; below that a network has nothing to do with a step."""
_SHOWN = 3
_FULL = 0.9


def host_lines(measurements: Measurements) -> Iterator[tuple[str, str]]:
    """Give a line each for cores, container and input and output, as far as there is something to say."""
    facts = host_facts(measurements)
    if isinstance(facts, Missing):
        return
    if text := ", ".join(_cores(facts, measurements.environment.cores)):
        yield "cores", clean(text)
    if text := _container(facts):
        yield "container", clean(text)
    if text := ", ".join(_waits(facts)):
        yield "disks and network", clean(text)


def _cores(facts: HostFacts, cores: int) -> Iterator[str]:
    busy, own = facts.rate("machine_busy"), facts.own_cores
    if isinstance(busy, Missing) or isinstance(own, Missing):
        return
    yield f"{_tenths(busy.value)} of {cores} busy, {_tenths(own.value)} with this process"
    stolen = facts.rate("stolen")
    if isinstance(stolen, Quantity) and stolen.value >= 10 * _WORTH * cores:
        yield f"{_tenths(stolen.value)} taken away by the host of this virtual machine"
    if text := _busiest(facts.telemetry, facts):
        yield text
    kernel = facts.rate("system_cpu")
    if isinstance(kernel, Quantity) and own.value > 0 and kernel.value >= 10 * _WORTH * own.value:
        yield f"{share(min(1.0, kernel.value / own.value))} of its time in the kernel"
    queue = facts.mean("runnable")
    if isinstance(queue, Quantity) and queue.value > cores:
        yield f"{number(round(queue.value))} threads want to run at a time"
    others = facts.telemetry.processes
    if busy.value >= _FULL * cores and others:
        names = [f"{one.name or 'process'} {one.pid} ({_tenths(one.cores)})" for one in others[:_SHOWN]]
        yield f"others: {', '.join(names)}"


def _busiest(telemetry: HostTelemetry, facts: HostFacts) -> str:
    """Name a core that is full where the machine is not: one thread is what everything waits for."""
    begin, end = telemetry.at_s[facts.rows[0]], telemetry.at_s[facts.rows[-1]]
    rows = [row for row, at in enumerate(telemetry.core_at_s) if begin <= at <= end]
    if len(rows) < 2 or len(telemetry.cores) < 2:
        return ""
    wall = telemetry.core_at_s[rows[-1]] - telemetry.core_at_s[rows[0]]
    shares = [(one.values[rows[-1]] - one.values[rows[0]]) / wall for one in telemetry.cores]
    return f"the busiest for {share(min(1.0, max(shares)))} of the time"


def _container(facts: HostFacts) -> str:
    periods, held = facts.used("periods"), facts.used("throttled_periods")
    if isinstance(periods, Missing) or isinstance(held, Missing) or periods.value <= 0:
        return ""
    return (
        f"a quota of {_tenths(facts.cores)} cores, used up in {share(held.value / periods.value)} of its "
        "periods"
    )


def _waits(facts: HostFacts) -> Iterator[str]:
    waiting = facts.rate("iowait")
    if isinstance(waiting, Quantity) and waiting.value >= _WORTH:
        yield f"{_tenths(waiting.value)} cores idle because of disks"
    for name, word in (("received", "received"), ("sent", "sent")):
        rate = facts.rate(name)
        if isinstance(rate, Quantity) and rate.value >= _TRAFFIC:
            yield f"{size(rate.value)}/s {word}"
    first, last = facts.samples[0], facts.samples[-1]
    wall = last.at_s - first.at_s
    for before, after, word in (
        (first.read_bytes, last.read_bytes, "read from disks"),
        (first.write_bytes, last.write_bytes, "written to disks"),
    ):
        if isinstance(before, Quantity) and isinstance(after, Quantity):
            rate = Quantity((after.value - before.value) / wall, "B/s")
            if rate.value >= _TRAFFIC:
                yield f"{quantity(rate)} {word}"


def _tenths(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

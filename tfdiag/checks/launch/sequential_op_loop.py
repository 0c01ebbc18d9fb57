"""A loop inside the step runs one small op after the other.

What it measures
    The loops in the step's graph (`tf.map_fn`, `tf.scan`, `tf.while_loop`, a `for` over a tensor), forwards
    and backwards, by layer; and from a trace of a few steps, how long nothing but such a loop runs, how
    often it goes round and what an op in it takes. On a CPU the step is also timed, by turns, with a ready
    result in the place of the layer that loops, and that counts where the layer does little else. It fires
    when a loop takes a share of the step and its ops are small. Layers that go over time are no finding on a
    CPU, where there is no other way.
Why it matters
    Each op has to be dispatched, and on a GPU launched. In a loop over the rows of a batch that is done for
    each row, although one op could do all of them, on all cores.
How to fix it
    Write the function for whole batches: most operations take a leading dimension. `tf.vectorized_map` does
    that for many functions by itself. For a loop over time use a layer that has a fused kernel.
When to ignore it
    When each round needs the result of the one before it and no layer does the same.
References
    https://www.tensorflow.org/api_docs/python/tf/vectorized_map
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, parts, placed
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.layers import Loop, ModelFacts
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import vectorised

__all__ = ["CHECK"]

_SMALL_S = 1e-3
"""Beside an op that takes longer, dispatching it does not count."""
_REST = 0.5
"""Of what a layer takes: one that does more than this beside its loops says little of them."""
_TRACED = "trace of replayed calls: time in which nothing but this loop ran"
_TIMED = "replay with and without the layer's own work, at the job's speed"


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for each layer whose loops take a share of the step."""
    found = parts.model(analysis)
    if found.graph_missing:
        raise Undecided(f"the loops of the step are not known: {found.graph_missing}")
    by_place: dict[str, list[Loop]] = {}
    for loop in _loops(analysis, found):
        by_place.setdefault(_place(loop), []).append(loop)
    for place, loops in by_place.items():
        timed = [loop for loop in loops if isinstance(loop.alone, Quantity)]
        if not timed:
            why = found.times_missing or "the trace of the step does not show it"
            raise Undecided(f"there is a loop in {place}, and what it costs is not known: {why}")
        yield from _judged(analysis, place, timed, *_seconds(analysis, found, timed))


def _seconds(analysis: Analysis, found: ModelFacts, loops: list[Loop]) -> tuple[float, str]:
    """Give what the loops of one place cost a step, and how that is known."""
    traced = sum(parts.per_step(analysis, loop.alone) or 0.0 for loop in loops)
    layer = loops[0].layer
    cost = next((each for each in found.loop_costs if layer and each.layer == layer), None)
    if cost is None or not cost.with_s:
        return traced, _TRACED
    saved = max(0.0, parts.saved(analysis, cost.with_s, cost.without_s).value)
    rest = parts.per_step(analysis, Quantity(cost.rest_s, "s")) or 0.0
    if rest <= _REST * saved:
        return saved - rest, _TIMED
    # What is left of two large numbers is known less well than what a trace tells; no part is more than all.
    return min(traced, saved), _TRACED


def _loops(analysis: Analysis, found: ModelFacts) -> list[Loop]:
    """List the loops that could be something else; one that calls Python is slow because of that."""
    fusable = {each.layer for each in found.recurrent if each.fusable}
    accelerated = bool(placed.accelerators(analysis))
    return [
        loop
        for loop in found.loops
        if not loop.calls_python and loop.layer not in fusable and (accelerated or loop.kind != "recurrent")
    ]


def _place(loop: Loop) -> str:
    return f"layer {loop.layer}" if loop.layer else f"the {loop.part}" if loop.part else loop.name


def _judged(analysis: Analysis, place: str, loops: list[Loop], seconds: float, told: str) -> Iterator[Result]:
    longest = max(loops, key=lambda loop: parts.per_step(analysis, loop.alone) or 0.0)
    cost = min(1.0, analysis.share(seconds))  # traced calls are slower than others
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    # Ops that the profiler leaves out are quick.
    if isinstance(longest.op_s, Quantity) and longest.op_s.value >= _SMALL_S:
        return
    evidence = [parts.time_evidence(analysis, "time that the step spends in the loop", seconds, told)]
    if isinstance(longest.op_s, Quantity):
        limit = Quantity(_SMALL_S, "s", origin="given")
        evidence.append(Evidence("an op in the loop", longest.op_s, limit, "below"))
    if isinstance(longest.iterations, Quantity):
        evidence.append(Evidence("rounds of the loop in a call", longest.iterations))
    what = longest.kind.replace("recurrent", "loop over time").replace("while_loop", "while loop")
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"A {what} in {place} takes {cost:.0%} of each step",
            severity=severity_of(cost),
            cost=facts.share(cost, source=told),
            evidence=tuple(evidence),
            where=f"{longest.name} ({place})" if place != longest.name else place,
        ),
        (vectorised.suggest(analysis, CHECK.id, longest, seconds),),
    )


CHECK = Check(
    "sequential-op-loop", "A loop inside the step runs small ops in turn", "launch", __doc__, run,
    explains=("many-small-kernels",),
)  # fmt: skip

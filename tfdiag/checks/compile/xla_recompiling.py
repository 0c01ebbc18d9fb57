"""XLA compiles the step for every new shape.

What it measures
    With `jit_compile=True`: how long the step takes longer on a batch of a shape that it has not seen (tried
    once on a batch that was cut), which calls of the run were longer by that much, and which shapes the
    batches of the input have. It fires while that goes on in the steady state.
Why it matters
    XLA makes code for one shape exactly. Batches padded to their longest row have a new shape nearly each
    time, and each of them is compiled, for tens of milliseconds up to minutes.
How to fix it
    Pad to a few lengths (`padded_batch` with `padded_shapes`, `bucket_by_sequence_length` with
    `pad_to_bucket_boundary=True`), `batch(n, drop_remainder=True)`; or compile without `jit_compile`.
When to ignore it
    When the shapes are few and each is compiled after a while.
References
    https://openxla.org/xla/tf2xla
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import fewer_traces

__all__ = ["CHECK"]

_SHOWN = 3


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when compiling new shapes in the steady state costs a share of the step worth naming."""
    facts.watched(analysis)
    if not analysis.measurements.job.jit_compile:
        return
    assert not isinstance(analysis.step, Missing)
    assert not isinstance(analysis.steady, Missing)
    found, live = analysis.measurements.compilation, analysis.measurements.live
    assert not isinstance(live, Missing)
    if isinstance(found, Missing):
        raise Undecided(f"what XLA compiles was not measured: {found.reason}")
    once = found.xla_compile
    steady = analysis.steady
    if isinstance(once, Missing):
        if found.different > 1:
            raise Undecided(f"what a new shape costs is not known: {once.reason}")
        return
    seconds = steady.xla_s / live.steps_per_call
    cost = analysis.share(seconds)
    if not steady.xla_calls or not analysis.crosses(cost, facts.COST_SHARE):
        return
    shapes = [each.shape for each in found.shapes]
    evidence = [
        Evidence(
            "compiling per step",
            Quantity(seconds, "s", source="what calls that compile take longer", count=steady.xla_calls),
            Quantity(facts.COST_SHARE * analysis.step.mean_s, "s", origin="given"),
            "above",
        ),
        Evidence("compiling one new shape", once),
        Evidence(
            "calls that compiled",
            Quantity(float(steady.xla_calls), "calls", source=f"of {steady.calls} steady calls"),
        ),
    ]
    if shapes:
        number = Quantity(float(found.different), "shapes", source=f"of {found.looked} batches of the input")
        evidence.append(Evidence("different shapes", number))
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"XLA compiles the step for new shapes of its batches, for {cost:.0%} of the time",
            severity=severity_of(cost),
            cost=facts.share(cost, source="what calls that compile take longer"),
            evidence=tuple(evidence),
            where="model.compile(jit_compile=True)",
            detail="batches were " + ", then ".join(shapes[:_SHOWN]) + (" …" if len(shapes) > _SHOWN else "")
            if shapes
            else "",
        ),
        (
            fewer_traces.suggest_one_shape(analysis, CHECK.id, seconds),
            fewer_traces.suggest_without_xla(analysis, CHECK.id, seconds),
        ),
    )


CHECK = Check("xla-recompiling", "XLA compiles the step for every new shape", "compile", __doc__, run)

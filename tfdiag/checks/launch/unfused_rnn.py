"""An LSTM or a GRU is configured off the GPU's fused kernel.

What it measures
    The arguments of each LSTM and GRU that the fused (cuDNN) kernel can't do, whether the step's graph holds
    that kernel, and from a trace of a few steps how long the GPU works for the layer or idles because of it.
    It fires on a GPU only: a CPU has no fused kernel.
Why it matters
    With the fused kernel the GPU goes over all time steps by itself. Without it the host launches a dozen
    small kernels for each time step, forwards and backwards, and the GPU mostly waits for the next launch.
How to fix it
    Use the defaults: `activation="tanh"`, `recurrent_activation="sigmoid"`, `recurrent_dropout=0`,
    `unroll=False`, `use_bias=True`, for a GRU `reset_after=True`. Masks must be on the right: pad sequences
    at their ends.
When to ignore it
    When the model needs the argument, for instance dropout inside the recurrence.
References
    https://keras.io/api/layers/recurrent_layers/lstm/
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, parts, placed
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import vectorised

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for each layer that could run in a fused kernel and takes a share of the step without it."""
    if not placed.accelerators(analysis):
        return
    found = parts.model(analysis)
    for layer in found.recurrent:
        if not layer.fusable or not layer.off or layer.fused:
            continue
        seconds = parts.per_step(analysis, layer.alone)
        arguments = ", ".join(layer.off)
        if seconds is None:
            why = found.graph_missing or found.times_missing or "the trace of the step does not show its ops"
            raise Undecided(f"{layer.layer} has {arguments}, and what it costs is not known: {why}")
        cost = min(1.0, analysis.share(seconds))
        if not analysis.crosses(cost, facts.COST_SHARE):
            continue
        evidence = [
            parts.time_evidence(
                analysis, f"time of {layer.layer} in a step", seconds, "trace of replayed calls"
            ),
            Evidence(
                "arguments off the fused kernel", Quantity(float(len(layer.off)), "arguments", origin="given")
            ),
        ]
        rounds = [loop.iterations for loop in found.loops if loop.layer == layer.layer]
        evidence += [Evidence("time steps", each) for each in rounds[:1] if isinstance(each, Quantity)]
        yield Result(
            Finding(
                check=CHECK.id,
                title=f"{layer.cls} can't use the fused kernel because of {arguments}",
                severity=severity_of(cost),
                cost=facts.share(cost, source="time in which the GPU worked or idled for this layer"),
                evidence=tuple(evidence),
                where=f"{layer.layer}: {arguments}",
            ),
            (vectorised.fused(analysis, CHECK.id, layer, seconds),),
        )


CHECK = Check(
    "unfused-rnn", "A recurrent layer is off the fused kernel", "launch", __doc__, run,
    explains=("many-small-kernels",),
)  # fmt: skip

"""Metrics take a share of the step.

What it measures
    The job's train function beside the same one with metrics that do nothing, on one batch, by turns; where
    there are few metrics and they take long, with each of them left out. It fires when the difference is a
    share of the step, and more than any metric takes to be updated at all.
Why it matters
    Metrics are updated in every step, on all of the batch, and their results are computed in every step as
    well. An AUC compares each prediction with hundreds of thresholds; a metric of one's own may do anything.
How to fix it
    Leave the metric out of `compile` and compute it on the validation data, or from a callback every so many
    steps. Give an AUC fewer thresholds (`num_thresholds=50`).
When to ignore it
    When it has to be known for each batch.
References
    https://keras.io/api/metrics/
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, parts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.layers import MetricFacts
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import fewer_metrics
from tfdiag.stats import Estimate

__all__ = ["CHECK"]

_ANY_S = 200e-6
"""What it takes to update a metric, whatever it computes; of more than one, so much each."""
_PART = 0.2
"""Of what all metrics take: with less, a metric is not named."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when the step without its metrics is quicker by a share worth naming."""
    found = parts.model(analysis)
    if not found.metrics:
        return
    cost = found.metric_cost
    if isinstance(cost, Missing):
        raise Undecided(f"what the metrics cost is not known: {cost.reason}")
    saved = parts.saved(analysis, cost.with_s, cost.without_s)
    share = min(1.0, analysis.share(saved.value))
    least = _ANY_S * len(found.metrics)
    if not analysis.crosses(share, facts.COST_SHARE) or saved.value < least or saved.low <= 0:
        return
    if not analysis.crosses(analysis.share(saved.low), facts.COST_SHARE):
        raise Undecided(
            f"the step takes {saved.low * 1e3:.2g} to {saved.high * 1e3:.2g} ms longer with its metrics, "
            "which may be too little to name"
        )
    each = {one.name: parts.saved(analysis, one.with_s, one.call_s) for one in cost.each}
    guilty = [name for name, took in sorted(each.items(), key=_longest) if took.value >= _PART * saved.value]
    named = [_named(name, found.metrics) for name in guilty]
    evidence = [
        Evidence(
            "what the step takes longer with its metrics",
            Quantity(saved.value, "s", saved.low, saved.high, source="replay, at the job's speed"),
            Quantity(max(least, facts.COST_SHARE * facts.mean(analysis)), "s", origin="given"),
            "above",
        ),
        Evidence("metrics", Quantity(float(len(found.metrics)), "metrics", origin="given")),
    ]
    if len(each) > 1:
        evidence += [
            Evidence(
                f"of it {name}", Quantity(took.value, "s", took.low, took.high, source="replay without it")
            )
            for name, took in sorted(each.items(), key=_longest)
        ]
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Metrics take {share:.0%} of each step",
            severity=severity_of(share),
            cost=facts.share(share, source="replay with and without metrics"),
            evidence=tuple(evidence),
            where=parts.listed(named or [f"{one.name} ({one.cls})" for one in found.metrics]),
            detail="" if guilty else "Which of them it is was not measured.",
        ),
        (fewer_metrics.suggest(analysis, CHECK.id, guilty, [one.name for one in found.metrics], saved),),
    )


def _longest(item: tuple[str, Estimate]) -> float:
    return -item[1].value


def _named(name: str, metrics: tuple[MetricFacts, ...]) -> str:
    return next((f"{one.name} ({one.cls})" for one in metrics if one.name == name), name)


CHECK = Check("costly-metrics", "Metrics take a share of the step", "host", __doc__, run)

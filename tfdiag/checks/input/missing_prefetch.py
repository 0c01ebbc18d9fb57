"""Producing a batch and training on it alternate although they could overlap.

What it measures
    The wait for input in each step, and whether the last stage of the *running* pipeline works ahead of
    the step. tf.data adds a prefetch by itself in most jobs, so what the dataset was written like says
    little; the runtime's own model of the pipeline says it.
Why it matters
    Without working ahead, each step first waits for its batch to be made and then trains on it while the
    input idles. Overlapped, a step takes the longer of the two.
How to fix it
    End the pipeline with `prefetch(tf.data.AUTOTUNE)`. Where the job switches off tf.data's own tuning
    (`options.autotune.enabled = False`, `inject_prefetch = False`), nothing adds it for you.
When to ignore it
    When memory has no room for one more batch.
References
    https://www.tensorflow.org/guide/data_performance#prefetching
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.analyse.prediction import feed, with_prefetch
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import prefetch
from tfdiag.remedies.gain import hidden_by

__all__ = ["CHECK"]

_STRETCH = 2.0
"""How much longer the work for a batch may take in the job than its stages took alone."""


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when overlap would hide a share of the step that is worth it."""
    wait = facts.input_wait(analysis)
    if not analysis.crosses(analysis.share(wait), facts.COST_SHARE):
        return
    model = facts.pipeline(analysis)
    if model.prefetches:
        return
    if isinstance(analysis.input_alone, Missing) and not model.known:
        raise Undecided(f"the input alone was not measured: {analysis.input_alone.reason}")
    assert not isinstance(analysis.step, Missing)
    rest = analysis.step.mean_s - wait
    # What overlap can hide of the wait: as much as there is step to hide it behind, and nothing of what
    # already works ahead.
    hidden = min(wait, rest)
    if model.known:
        part = hidden_by(analysis, with_prefetch(model))
        hidden = min(part * wait, rest, _STRETCH * feed(model).in_step.seconds)
    cost = analysis.share(hidden)
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    yield Result(
        Finding(
            check=CHECK.id,
            title="Nothing prepares the next batch while the step runs",
            severity=severity_of(cost),
            cost=facts.share(cost, source="wait that the step could hide"),
            evidence=(
                facts.wait_evidence(analysis, facts.COST_SHARE),
                *_times(analysis, model),
                Evidence(
                    "stages that work ahead at the end of the running pipeline",
                    Quantity(0, "stages", source="tf.data model" if model.from_model else "options"),
                    Quantity(1, "stages", origin="given"),
                    "below",
                ),
            ),
            where=" → ".join(model.written[-2:]),
        ),
        (prefetch.suggest(analysis, CHECK.id),),
    )


def _times(analysis: Analysis, model: PipelineModel) -> Iterator[Evidence]:
    if not isinstance(analysis.input_alone, Missing):
        alone = Quantity(analysis.input_alone.batch.value, "s", source="input alone")
        yield Evidence("a batch from the input alone", alone)
    if model.known:
        source = "samples of the stages" if model.sampled else "tf.data model"
        yield Evidence(
            "work for a batch that nothing does ahead of the step",
            Quantity(feed(model).in_step.seconds, "s", source=source),
        )


CHECK = Check("missing-prefetch", "Input and step alternate", "input", __doc__, run)

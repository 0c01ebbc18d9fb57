"""The host waits for values of each step.

What it measures
    The time in which Python waits for the value of a tensor after each step: `.numpy()`, `float()`, `print`
    in callbacks and in a step of your own, and the logs of each batch where Keras fetches them for a callback
    that has a hook at the end of batches. It is told apart from the time that Python itself takes. Beside an
    accelerator only what the device idles for it counts; on a CPU it is what copying the values takes.
Why it matters
    A value can be had when all that leads to it has been computed. Until then nothing new is dispatched, so
    the device runs dry after every step.
How to fix it
    Keep values on the device and look at them every hundredth step. A callback that needs no values says so
    with `async_safe = True`, and `fit` no longer waits for its sake.
When to ignore it
    When each value decides how the next step is made.
References
    https://www.tensorflow.org/guide/gpu_performance_analysis
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts, hosted, placed
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.host_work import HostWork
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import fewer_syncs

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when waiting for values costs a share of the step worth naming."""
    facts.watched(analysis)
    known = analysis.measurements.host_work
    job = analysis.measurements.job
    if isinstance(known, Missing):
        if job.loop != "custom" and not job.callbacks:
            return  # nobody is there who could ask for values
        raise Undecided(f"waits for values are not told apart: {known.reason}")
    if "sync" not in known.watched:
        if job.loop != "custom" and not any(each.batch_hook for each in known.callbacks):
            return
        raise Undecided(f"waits for values were not watched: {known.unwatched}")
    found = hosted.syncs(analysis)
    if found.asked < hosted.SYNCS_LEAST:
        return
    seconds, source = found.seconds, "timed where Python asks for a value"
    own = hosted.own_step(analysis)
    if own is not None and own.sync_s > 0 and placed.accelerators(analysis):
        # While the host waits the device computes. What is lost is the dispatch that could have gone ahead.
        seconds = facts.segment(analysis, "launch") + analysis.host_item("loop")
        source = "the device idles until the next step is dispatched"
    if not hosted.worth_naming(analysis, seconds):
        return
    cost = analysis.share(seconds)
    asking = _asking(known, found)
    yield Result(
        Finding(
            check=CHECK.id,
            title=f"Each step waits for values that {asking} asks for: {cost:.0%} of it",
            severity=severity_of(cost),
            cost=facts.share(cost, source=source),
            evidence=(
                Evidence(
                    "waiting for values per step",
                    Quantity(seconds, "s", source=source),
                    hosted.limit(analysis),
                    "above",
                ),
                Evidence(
                    "values asked for per step",
                    Quantity(found.asked, "values", source="counted"),
                    Quantity(hosted.SYNCS_LEAST, "values", origin="given"),
                    "above",
                ),
                *(
                    Evidence(f"of it in {work.name}", Quantity(work.sync_s, "s", source=source))
                    for work in found.of
                ),
                *(
                    [Evidence("of it fetching logs", Quantity(found.logs_s, "s", source=source))]
                    if found.logs_s
                    else []
                ),
            ),
            where=asking,
        ),
        (fewer_syncs.suggest(analysis, CHECK.id, seconds, found, asking),),
    )


def _asking(known: HostWork, found: hosted.Syncs) -> str:
    """Name who asks for most: for the logs of a batch, the callbacks with a hook there."""
    if found.of and found.of[0].sync_s >= found.logs_s:
        work = found.of[0]
        return f"{work.name}.{work.worst}" if work.worst else work.name
    hooks = [each.name for each in known.callbacks if each.batch_hook]
    return ", ".join(hooks) if hooks else "fit"


CHECK = Check("host-sync-per-step", "The host waits for values of each step", "host", __doc__, run)

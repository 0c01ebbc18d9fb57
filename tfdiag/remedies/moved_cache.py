"""Put a cache where it spares something."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.order import kind
from tfdiag.analyse.pipeline import PipelineModel, StageTime
from tfdiag.analyse.prediction import with_cache
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies.caching import size_of
from tfdiag.remedies.pipeline_code import diff, written
from tfdiag.remedies.sparing import gain_of_sparing

__all__ = ["suggest", "suggest_completing"]


def suggest(
    analysis: Analysis, check: str, model: PipelineModel, cache: StageTime, stage: StageTime
) -> Suggestion:
    """Suggest to move the cache behind a stage."""
    chain = written(analysis)
    size = size_of(analysis, stage)
    takes = f"about {size.value / 2**20:.0f} MiB" if isinstance(size, Quantity) else "an unknown amount"
    unseen = any(s.function is not None and s.function.python for s in [stage, *model.upstream(stage)])
    code = "- dataset.cache().map(fn)\n+ dataset.map(fn).cache()"
    if cache.label in chain and stage.label in chain:
        without = [part for index, part in enumerate(chain) if index != chain.index(cache.label)]
        at = len(without) - without[::-1].index(stage.label)
        code = diff(chain, [*without[:at], cache.label, *without[at:]])
    return Suggestion(
        id=f"{check}/move-cache",
        check=check,
        text=f"Move the cache behind {stage.label}.",
        code=code,
        predicted=gain_of_sparing(
            analysis, with_cache(model, stage), f"everything up to {stage.label} read from memory"
        ),
        risk=f"It takes {takes} of memory; the first epoch is no faster."
        + (" What is random in the Python code would be frozen." if unseen else ""),
        reason="not tried: whether its Python code gives the same again only the caller knows"
        if unseen
        else "",
        edits=() if unseen else (Edit("remove", cache.id), Edit("cache_after", stage.id)),
    )


def suggest_completing(
    analysis: Analysis,
    check: str,
    model: PipelineModel,
    cache: StageTime,
    cut: StageTime | None,
    endless: StageTime | None,
    changed: PipelineModel,
) -> Suggestion:
    """Suggest an order in which the cache comes to its end."""
    predicted = gain_of_sparing(analysis, changed, "everything below the cache read from memory")
    edits: tuple[Edit, ...] = ()
    chain = written(analysis)
    old, new = "- dataset.cache().take(n).repeat()", "+ dataset.take(n).cache().repeat()"
    code = f"{old}\n{new}"
    text = "Read the cached data to their end once, so that the cache is complete."
    if cut is not None:
        text = f"Take the elements below the cache: {cut.label} before {cache.label}."
        if cut.inputs and model.stages[cut.inputs[0]] is cache:
            edits = (Edit("swap", cut.id),)
            code = _swapped(chain, cache.label, cut.label) or code
    elif endless is not None:
        text = f"Repeat behind the cache: a cache over {endless.label} never ends, and its memory grows."
        code = "- dataset.repeat().cache()\n+ dataset.cache().repeat()"
        if cache.inputs and model.stages[cache.inputs[0]] is endless and kind(endless) == "Repeat":
            edits = (Edit("swap", cache.id),)
            code = _swapped(chain, endless.label, cache.label) or code
    return Suggestion(
        id=f"{check}/complete-cache",
        check=check,
        text=text,
        code=code,
        predicted=predicted,
        risk="The cache holds the elements in memory; each epoch then sees the same ones.",
        reason="" if edits else "not tried: only the caller knows which elements are meant",
        edits=edits,
    )


def _swapped(chain: list[str], lower: str, upper: str) -> str:
    if lower not in chain or upper not in chain or chain.index(upper) != chain.index(lower) + 1:
        return ""
    at = chain.index(lower)
    return diff(chain, [*chain[:at], upper, lower, *chain[at + 2 :]])

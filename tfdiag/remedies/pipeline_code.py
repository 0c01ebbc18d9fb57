"""The caller's pipeline written out, so that a change in it can be shown as a diff."""

from __future__ import annotations

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.quantity import Missing

__all__ = ["diff", "written"]


def written(analysis: Analysis) -> list[str]:
    """Give the transformations that the caller wrote, source first; empty where Python does not know."""
    if isinstance(analysis.pipeline, Missing):
        return []
    return list(analysis.pipeline.written)


def diff(before: list[str], after: list[str]) -> str:
    """Write two chains of transformations as a diff, one transformation a line."""
    old, new = _lines(before), _lines(after)
    result: list[str] = []
    position = 0
    for line in new:
        if line in old[position:]:
            kept = position + old[position:].index(line)
            result.extend(f"-     {gone}" for gone in old[position:kept])
            result.append(f"      {line}")
            position = kept + 1
        else:
            result.append(f"+     {line}")
    result.extend(f"-     {gone}" for gone in old[position:])
    # Removed lines read better above what takes their place.
    ordered = _minus_first(result)
    return "\n".join(["  dataset = (", *ordered, "  )"])


def _lines(chain: list[str]) -> list[str]:
    if not chain:
        return ["dataset"]
    source = chain[0]
    prefix = "tf.data.Dataset." if source[:1].islower() else "tf.data."
    if not source[:1].isalpha():
        prefix = ""  # several sources, which have no one name
    return [prefix + source, *("." + part for part in chain[1:])]


def _minus_first(lines: list[str]) -> list[str]:
    result: list[str] = []
    plus: list[str] = []
    for line in lines:
        if line.startswith("+"):
            plus.append(line)
        elif line.startswith("-"):
            result.append(line)
        else:
            result.extend(plus)
            plus = []
            result.append(line)
    return result + plus

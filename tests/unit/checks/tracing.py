"""How tests run one check on a trace of known make-up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import analysed
from tests.traces import job
from tests.unit.checks.running import is_sound
from tfdiag.analyse.analysis import Analysis, analyse
from tfdiag.analyse.device import measurements_of
from tfdiag.checks.registry import Check, Result, Undecided
from tfdiag.timeline import condense, read_trace

__all__ = ["needs_a_trace", "only", "results", "traced"]


def traced(data: bytes | None = None, **parts: Any) -> Analysis:
    """Analyse a trace, by default of a job of these parts."""
    return analyse(measurements_of(condense(read_trace(job(**parts) if data is None else data)), 0.1))


def results(check: Check, data: bytes | None = None, **parts: Any) -> list[Result]:
    """Run a check; each answer is made sure of."""
    found = list(check.run(traced(data, **parts)))
    for result in found:
        is_sound(check, result)
    return found


def only(check: Check, data: bytes | None = None, **parts: Any) -> Result:
    """Run a check that has one answer."""
    (result,) = results(check, data, **parts)
    return result


def needs_a_trace(check: Check) -> None:
    """Make sure that a check does not answer where nothing was traced, nor ask without a device."""
    assert list(check.run(analysed(accelerator=False))) == []
    with pytest.raises(Undecided, match="not traced"):
        list(check.run(analysed(accelerator=True)))

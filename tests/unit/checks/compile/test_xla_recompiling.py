"""xla-recompiling: XLA compiles the step for every new shape."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, analysed
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.compile.retracing import CHECK as RETRACING
from tfdiag.checks.compile.xla_recompiling import CHECK
from tfdiag.model.changes import Change
from tfdiag.model.compilation import BatchShape, Compilation
from tfdiag.model.quantity import Missing, Quantity

SHAPES = (
    BatchShape("(8, 31)", 2),
    BatchShape("(8, 40)", 1),
    BatchShape("(8, 47)", 1),
    BatchShape("(8, 9)", 1),
)


def compiling(share: float, count: int = 8, **parts: Any) -> dict[str, Any]:
    """Give a step of 100 ms with calls in which XLA compiles, for this share of all time."""
    calls = tuple(range(110, 190, 10))[:count]
    each = share * 100 * MS * 200 / len(calls)
    return {
        "compute": (99 - share * 100) * MS,
        "dispatch": 1 * MS,
        "extra": dict.fromkeys(calls, each),
        "live": {"compiled": calls},
        "job": {"jit_compile": True},
        "compilation": Compilation(shapes=SHAPES, different=4, looked=5, xla_compile=Quantity(each, "s")),
        **parts,
    }


@pytest.mark.parametrize(("share", "fires"), [(0.045, False), (0.056, True)])
def test_fires_at_a_twentieth_of_the_step(share: float, fires: bool):
    """Compiling that costs less of the time is not worth a finding, and it is no retracing."""
    assert bool(results(CHECK, **compiling(share))) is fires
    assert not results(RETRACING, **compiling(share))


@pytest.mark.parametrize(("count", "fires"), [(2, False), (3, True)])
def test_single_compilations_are_no_condition(count: int, fires: bool):
    """The last batch of an epoch may have a shape of its own."""
    # So few calls of so many seconds leave the mean open: what is predicted from it is not looked at here.
    assert bool(list(CHECK.run(analysed(**compiling(0.3, count))))) is fires


def test_shows_its_numbers():
    """How often, how long, and which shapes."""
    found = only(CHECK, **compiling(0.3))
    assert value(found, "compiling one new shape") == pytest.approx(0.75)
    assert value(found, "calls that compiled") == 8
    assert value(found, "different shapes") == 4
    assert found.finding.detail == "batches were (8, 31), then (8, 40), then (8, 47) …"
    assert [each.changes for each in found.suggestions] == [(), (Change("jit_compile", value=False),)]


def test_says_nothing_of_other_jobs():
    """Without XLA, or with one shape, there is nothing to compile again."""
    assert not results(CHECK, **compiling(0.3, job={}))
    assert not results(CHECK, **compiling(0.3, compilation=Compilation(xla_compile=Missing("one shape"))))


def test_what_was_not_tried_is_open():
    """Different shapes that could not be tried may cost a lot."""
    untried = Compilation(shapes=SHAPES, different=4, looked=5, xla_compile=Missing("no time was left"))
    assert "no time was left" in not_run(CHECK, **compiling(0.3, compilation=untried))

"""tiny-steps: a step is mostly fixed cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, Synthetic
from tests.synthetic_compute import scaled
from tests.traces import MS as NS_MS
from tests.traces import job
from tests.unit.checks.running import evidence, is_sound, not_run, only, results, value
from tfdiag.analyse.analysis import analyse
from tfdiag.checks.launch.tiny_steps import CHECK
from tfdiag.checks.registry import Undecided
from tfdiag.model.changes import Change
from tfdiag.model.quantity import Quantity
from tfdiag.timeline import condense, read_trace


def fixed(share: float, **parts: Any) -> dict[str, Any]:
    """Give a step of 1 ms of which this share is fixed cost, two thirds of it dispatch."""
    return {
        "compute": (1 - share) * MS,
        "dispatch": share * 2 / 3 * MS,
        "loop": share / 3 * MS,
        **parts,
    }


@pytest.mark.parametrize(("share", "fires"), [(0.249, False), (0.257, True)])
def test_fires_at_a_quarter_of_the_step(share: float, fires: bool):
    """Dispatch and the loop together decide, though each alone is below the threshold."""
    assert bool(results(CHECK, **fixed(share))) is fires


def test_callbacks_are_no_fixed_cost():
    """What a callback takes is not mended by steps_per_execution."""
    assert results(CHECK, compute=9 * MS, dispatch=1 * MS, callbacks={"Log": 5 * MS}) == []


@pytest.mark.parametrize("job", [{"run_eagerly": True}, {"loop": "custom"}])
def test_silent_for_eager_steps_and_loops_of_the_callers_own(job: dict[str, Any]):
    """An eager step has its own check, and a caller's own loop no setting."""
    assert results(CHECK, **fixed(0.6, job=job)) == []


def test_shows_its_numbers():
    """The sum with its threshold, and both parts of it."""
    found = only(CHECK, **fixed(0.6))
    total = evidence(found, "dispatch and training loop per step")
    assert total.threshold is not None
    assert total.relation == "above"
    assert value(found, total.name) == pytest.approx(0.6 * MS)
    assert total.threshold.value == pytest.approx(0.25 * MS)
    assert value(found, "dispatch") == pytest.approx(0.4 * MS)
    assert value(found, "training loop") == pytest.approx(0.2 * MS)
    assert found.finding.cost.value == pytest.approx(0.6)
    assert found.finding.severity == "critical"


def test_suggests_several_steps_a_call_and_a_bigger_batch():
    """Both remedies come with code and gain."""
    several, bigger = only(CHECK, **fixed(0.6)).suggestions
    assert several.id == "tiny-steps/steps-per-execution"
    assert several.code == "- model.compile(…)\n+ model.compile(…, steps_per_execution=16)"
    assert isinstance(several.predicted, Quantity)
    assert several.predicted.value == pytest.approx(1 / (1 - 0.75 * 0.6 * 15 / 16))
    assert bigger.id == "tiny-steps/bigger-batch"
    assert bigger.code == "- dataset.batch(n)\n+ dataset.batch(4 * n)"
    assert isinstance(bigger.predicted, Quantity)
    assert bigger.predicted.value == pytest.approx(1 / (0.4 + 0.6 / 4))


def test_starts_from_the_callers_steps_per_execution():
    """A job that makes two steps a call is told a multiple of that."""
    several, _ = only(CHECK, **fixed(0.6, steps_per_call=2)).suggestions
    assert several.code == (
        "- model.compile(…, steps_per_execution=2)\n+ model.compile(…, steps_per_execution=32)"
    )


@pytest.mark.parametrize(("empty", "fires"), [(2.0, False), (3.0, True)])
def test_launches_of_kernels_are_no_fixed_cost(empty: float, fires: bool):
    """On a device an empty call tells what is fixed; each kernel's launch comes on top of it."""
    trace = condense(read_trace(job(30, kernels=5, kernel=NS_MS, late=NS_MS)))
    synthetic = Synthetic(accelerator=True, compute=(10 - empty) * MS, dispatch=empty * MS, first_call=0.0)
    analysis = analyse(replace(synthetic.measurements(), device=trace))
    assert analysis.segment("launch") == pytest.approx(5 * MS)
    found = list(CHECK.run(analysis))
    assert bool(found) is fires
    if found:
        is_sound(CHECK, found[0])
        assert value(found[0], "dispatch") == pytest.approx(empty * MS)


def test_undecided_on_a_device_without_an_empty_call():
    """A device's idling for its launches is not called fixed."""
    trace = condense(read_trace(job(30, kernels=5, kernel=NS_MS, late=NS_MS)))
    synthetic = Synthetic(accelerator=True, compute=8 * MS, dispatch=2 * MS, first_call=0.0, empty=False)
    with pytest.raises(Undecided, match="the same for each step"):
        list(CHECK.run(analyse(replace(synthetic.measurements(), device=trace))))


def test_undecided_without_a_replay():
    """Dispatch that was not told apart from compute is not called small."""
    assert "no time for a replay" in not_run(CHECK, **fixed(0.6, replay=False))


def test_undecided_without_an_empty_call():
    """Neither is dispatch that was not measured."""
    assert "dispatch was not measured" in not_run(CHECK, **fixed(0.6, empty=False))


def test_what_does_not_grow_with_the_batch_is_the_most_that_is_fixed():
    """Dispatch that no larger batch shares is none: the line through several sizes has the last word."""
    job = {"batch_size": Quantity(32.0, "rows")}
    assert results(CHECK, **fixed(0.6, job=job, scaling=scaled(0.0, MS / 32))) == []
    found = only(CHECK, **fixed(0.6, job=job, scaling=scaled(0.3 * MS, 0.5 * MS / 32)))
    assert value(found, "dispatch") == pytest.approx(0.3 * MS)
    assert value(found, "fixed cost of a step, by its batch's size") == pytest.approx(0.3 * MS)
    assert value(found, "how well a line fits the sizes (R²)") == pytest.approx(1)


def test_the_gain_of_a_bigger_batch_is_that_of_a_size_that_was_run():
    """For each row, and with its risk; both suggestions can be tried on a copy."""
    job = {"batch_size": Quantity(32.0, "rows")}
    found = only(CHECK, **fixed(0.6, job=job, scaling=scaled(0.6 * MS, 0.2 * MS / 32)))
    several, bigger = found.suggestions
    assert several.changes == (Change("steps_per_execution", 16),)
    assert bigger.changes == (Change("batch_size", 128),)
    assert isinstance(bigger.predicted, Quantity)
    assert bigger.predicted.value == pytest.approx(4 / (1 + 3 * 0.2), rel=0.02)
    assert "convergence" in bigger.risk

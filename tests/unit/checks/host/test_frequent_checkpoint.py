"""frequent-checkpoint: saving takes a share of every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, analysed
from tests.unit.checks.running import only, results, value
from tfdiag.analyse.steady import Steady
from tfdiag.checks.host.frequent_checkpoint import CHECK
from tfdiag.checks.host.slow_callback import CHECK as SLOW
from tfdiag.model.changes import Change
from tfdiag.model.host_work import CallbackFacts, HostWork
from tfdiag.model.quantity import Missing

SAVER = CallbackFacts(
    "ModelCheckpoint", ("ModelCheckpoint", "MonitorCallback"), (("save_freq", "1"),), batch_hook=True
)


def saving(share: float, name: str = "ModelCheckpoint", **did: Any) -> dict[str, Any]:
    """Give a step of 100 ms of which saving takes this share."""
    return {
        "callbacks": {name: share * 100 * MS},
        "compute": (99 - share * 100) * MS,
        "dispatch": 1 * MS,
        "did": {name: did},
        "host_work": HostWork((SAVER,), ("sync", "save", "summary")),
    }


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_at_a_twentieth_of_the_step(share: float, fires: bool):
    """All of the time of a callback that is there to save is saving."""
    assert bool(results(CHECK, **saving(share))) is fires


@pytest.mark.parametrize(("saved", "fires"), [(4.9, False), (5.2, True)])
def test_a_callback_of_ones_own_counts_for_what_it_saves(saved: float, fires: bool):
    """Of any other callback it is the time inside of what saves."""
    parts = saving(0.4, "Mine", saves=1, save_s=saved * MS)
    assert bool(results(CHECK, **parts)) is fires


def test_shows_its_numbers():
    """How often, for how long, and how many bytes."""
    found = only(CHECK, **saving(0.3, saves=0.2, save_s=20 * MS, written_bytes=2e6))
    assert found.finding.where == "ModelCheckpoint.on_train_batch_end"
    assert found.finding.title == "Saving takes 30% of each step: ModelCheckpoint saves every 5 steps"
    assert value(found, "saving in ModelCheckpoint per step") == pytest.approx(30 * MS)
    assert value(found, "steps from one to the next") == pytest.approx(5)
    assert value(found, "time of one") == pytest.approx(150 * MS)
    assert value(found, "written each time") == pytest.approx(1e7)


def test_suggests_a_round_number_of_batches():
    """So many batches that a hundredth of the step is left, and a copy without the callback can be tried."""
    (suggestion,) = only(CHECK, **saving(0.5)).suggestions
    assert suggestion.code == "- ModelCheckpoint(…, save_freq=1)\n+ ModelCheckpoint(…, save_freq=100)"
    assert suggestion.changes == (Change("without_callback", target="ModelCheckpoint"),)
    (own,) = only(CHECK, **saving(0.5, "Mine", saves=0.5, save_s=45 * MS)).suggestions
    assert "def on_train_batch_end(self, batch, logs=None):\n+         if batch % 200:" in own.code


def test_saving_at_the_ends_of_short_epochs():
    """What runs once an epoch is done every so many."""
    found = only(CHECK, epochs=5, calls_per_epoch=100, epoch_callbacks={"BackupAndRestore": 1.1})
    assert found.finding.cost.value == pytest.approx(0.5)
    analysis = analysed(epochs=5, calls_per_epoch=100, epoch_callbacks={"BackupAndRestore": 1.1})
    assert isinstance(analysis.steady, Steady)
    (cold,) = CHECK.run(replace(analysis, steady=replace(analysis.steady, aftermath_s=1 * MS)))
    more = cold.finding.cost.value - found.finding.cost.value
    assert more == pytest.approx(1 * MS / analysis.step.mean_s, rel=0.02)
    code = found.suggestions[0].code
    assert code.startswith("+ class RarerBackupAndRestore(BackupAndRestore):")
    assert "if epoch % 100 == 0:" in code


def test_what_saving_makes_slower_is_its_cost_too():
    """Steps behind a save find cold caches; two callbacks share that by what each takes between steps."""
    parts = saving(0.2)
    parts["callbacks"] |= {"Mine": 20 * MS}
    analysis = analysed(**parts)
    assert isinstance(analysis.steady, Steady)
    cold = replace(analysis, steady=replace(analysis.steady, aftermath_s=12 * MS))
    (before,), (after,) = CHECK.run(analysis), CHECK.run(cold)
    step = analysis.step.mean_s
    assert after.finding.cost.value - before.finding.cost.value == pytest.approx(6 * MS / step)
    shown = next(each for each in after.finding.evidence if "behind it" in each.name)
    assert shown.quantity.value == pytest.approx(6 * MS)
    assert not [each for each in before.finding.evidence if "behind it" in each.name]


@pytest.mark.parametrize(("wait", "longer"), [(0.0, 10 * MS), (30 * MS, 4 * MS)])
def test_steps_that_never_recover_are_its_cost_as_well(wait: float, longer: float):
    """Once some are cold, what all take over their replay counts; not beside an input that works."""
    analysis = analysed(**{**saving(0.2), "replay_call": 70 * MS, "wait": wait})
    assert isinstance(analysis.steady, Steady)
    assert analysis.segment("unexplained") == pytest.approx(10 * MS)
    cold = replace(analysis, steady=replace(analysis.steady, aftermath_s=4 * MS))
    (found,) = CHECK.run(cold)
    shown = next(each for each in found.finding.evidence if "behind it" in each.name)
    assert shown.quantity.value == pytest.approx(longer)


def test_a_wait_that_is_not_known_is_not_taken_for_none():
    """An input may work beside the step: only what the steps right behind show is counted."""
    analysis = analysed(**{**saving(0.2), "replay_call": 70 * MS})
    assert isinstance(analysis.steady, Steady)
    assert not isinstance(analysis.step, Missing)
    unknown = {**analysis.step.segments, "input_wait": Missing("the runtime does not tell")}
    step = replace(analysis.step, segments=unknown)
    cold = replace(analysis, step=step, steady=replace(analysis.steady, aftermath_s=4 * MS))
    (found,) = CHECK.run(cold)
    shown = next(each for each in found.finding.evidence if "behind it" in each.name)
    assert shown.quantity.value == pytest.approx(4 * MS)


def test_a_step_of_ones_own():
    """What a loop of the caller's own saves counts as well."""
    parts = {"job": {"loop": "custom"}, "loop_did": {"step": {"saves": 0.1, "save_s": 2 * MS}}}
    found = only(CHECK, **parts)
    assert found.finding.where == "the train step"
    assert "if step % 300 == 0:" in found.suggestions[0].code


def test_no_other_finding_for_the_same_time():
    """What is claimed by this check is no slow callback; what is left over may be one."""
    assert not results(SLOW, **saving(0.5))
    rest = only(SLOW, **saving(0.4, "Mine", saves=1, save_s=30 * MS))
    assert rest.finding.cost.value == pytest.approx(0.1)
    # Too little for this check stays with the callback.
    whole = only(SLOW, **saving(0.4, "Mine", saves=1, save_s=4 * MS))
    assert whole.finding.cost.value == pytest.approx(0.4)

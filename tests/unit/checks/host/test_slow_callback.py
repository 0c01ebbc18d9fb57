"""slow-callback: a callback takes a share of every step."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.running import evidence, only, results, value
from tfdiag.checks.host.slow_callback import CHECK
from tfdiag.model.quantity import Quantity


def with_callback(share: float) -> dict[str, object]:
    """Give a step of 100 ms of which a callback takes this share."""
    return {"callbacks": {"Log": share * 100 * MS}, "compute": (99 - share * 100) * MS, "dispatch": 1 * MS}


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_at_a_twentieth_of_the_step(share: float, fires: bool):
    """A callback under a twentieth of the step is not worth a finding."""
    assert bool(results(CHECK, **with_callback(share))) is fires


def test_methods_of_a_callback_count_together():
    """Two methods under the threshold are one callback above it, told by the worse one."""
    parts = {"compute": 93 * MS, "dispatch": 1 * MS, "calls_per_epoch": 50, "epochs": 4}
    found = only(CHECK, **parts, callbacks={"Log": 3.5 * MS}, epoch_callbacks={"Log": 125 * MS})
    assert found.finding.cost.value == pytest.approx(0.06)
    assert found.finding.where == "Log.on_train_batch_end"
    assert value(found, "of it in on_train_batch_end") == pytest.approx(3.5 * MS)
    assert value(found, "of it in on_epoch_end") == pytest.approx(2.5 * MS)


def test_each_callback_is_a_finding_of_its_own():
    """Two slow callbacks are two findings; the fast one is none."""
    found = results(CHECK, compute=8 * MS, callbacks={"A": 1 * MS, "B": 2 * MS, "C": 0.1 * MS})
    assert [result.finding.where for result in found] == ["A.on_train_batch_end", "B.on_train_batch_end"]
    assert [len(result.suggestions) for result in found] == [1, 1]


def test_shows_its_numbers():
    """The time per step with its threshold; the cost is its share."""
    found = only(CHECK, **with_callback(0.3))
    time = evidence(found, "time in Log per step")
    assert isinstance(time.quantity, Quantity)
    assert time.quantity.value == pytest.approx(30 * MS)
    assert time.threshold is not None
    assert time.threshold.value == pytest.approx(5 * MS)
    assert time.relation == "above"
    assert found.finding.cost.value == pytest.approx(0.3)
    assert found.finding.severity == "critical"
    assert found.finding.title == "Log takes 30% of each step"


def test_suggests_to_do_it_every_hundredth_batch():
    """The code guards the method that is slow, and 99 of 100 runs of it fall away."""
    (suggestion,) = only(CHECK, **with_callback(0.5)).suggestions
    assert suggestion.id == "slow-callback/Log.on_train_batch_end"
    assert suggestion.code == (
        "  class Log:\n"
        "      def on_train_batch_end(self, batch, logs=None):\n"
        "+         if batch % 100:\n"
        "+             return"
    )
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / (100 - 49.5))


def test_suggests_every_tenth_epoch_for_an_end_of_an_epoch():
    """What runs once an epoch is done every tenth."""
    found = only(CHECK, epochs=5, calls_per_epoch=100, epoch_callbacks={"Save": 1.1})
    (suggestion,) = found.suggestions
    assert found.finding.cost.value == pytest.approx(0.5)
    assert "def on_epoch_end(self, epoch, logs=None):\n+         if epoch % 10:" in suggestion.code
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(1 / (1 - 0.45))


def test_a_callback_of_an_epoch_of_one_call_is_found():
    """Full-batch training has an epoch a step, and its epoch callbacks are not its loop."""
    found = only(CHECK, epochs=60, calls_per_epoch=1, epoch_callbacks={"Save": 11 * MS})
    assert found.finding.where == "Save.on_epoch_end"
    assert found.finding.cost.value == pytest.approx(0.5, rel=0.01)

"""Jobs at their gates: who runs, what counts, how it ends; on a clock that each step moves."""

from __future__ import annotations

import itertools
import threading

import pytest

from tests.unit.fakes import FakeClock
from tfdiag.compat.tfdata import ModelReader
from tfdiag.trials.gate import EpochGate, Gate, batches_ahead

STEP_S = 0.01
PATIENCE_S = 10.0


class Job:
    """Steps of a hundredth of a second on a clock of its own."""

    def __init__(self, most: int = 10_000, gate: type[Gate] = Gate) -> None:
        """Begin nothing yet."""
        self.clock = FakeClock()
        self.gate = gate(self.clock)
        self.steps = 0
        self._most = most
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while self.steps < self._most and self.gate.passes():
            self.steps += 1
            self.clock.at += STEP_S
        self.gate.leave()

    def turn(self, seconds: float) -> str:
        """Let it run for a while."""
        self.gate.begin(seconds)
        if not self._thread.ident:
            self._thread.start()
        return self.gate.wait(PATIENCE_S)

    def end(self) -> str:
        """Let it come to its end."""
        self.gate.end()
        told = self.gate.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        return told


def test_a_turn_is_so_long_and_its_first_steps_do_not_count():
    """What is over when the turn begins is left out, and every counted period is a step's."""
    job = Job()
    assert job.turn(1.0) == "parked"
    turn = job.gate.turn()
    assert job.steps * STEP_S == pytest.approx(1.0, abs=2 * STEP_S)
    assert turn.periods_s == pytest.approx([STEP_S] * len(turn.periods_s))
    assert turn.skipped * STEP_S == pytest.approx(0.4, abs=2 * STEP_S)
    assert len(turn.periods_s) + turn.skipped == pytest.approx(job.steps, abs=1)
    assert job.end() == "out"


def test_nothing_runs_between_turns_and_the_pause_counts_nowhere():
    """A job that waits for its turn makes no step, and no period holds the time that it waited."""
    job = Job()
    job.turn(0.5)
    steps = job.steps
    job.clock.at += 100.0
    assert job.steps == steps
    job.turn(0.5)
    assert max(job.gate.turn().periods_s) == pytest.approx(STEP_S)
    job.end()


@pytest.mark.parametrize(
    ("ready", "skipped"),
    [([0], 25), ([40, 10, 3], 40 + 1 + 10 + 1 + 3 + 1), ([40, 40], 41), ([40, 60], 41)],
    ids=["nothing", "an input that is slower", "one that keeps up", "one that gets ahead"],
)
def test_what_was_made_while_buffers_emptied_does_not_count_either(
    monkeypatch: pytest.MonkeyPatch, ready: list[int], skipped: int
):
    """Batches lie ready after a pause; a slow input makes some more while they are used up."""
    job = Job()
    job.turn(0.2)
    left = itertools.chain(ready, itertools.repeat(0))
    monkeypatch.setattr("tfdiag.trials.gate.batches_ahead", lambda reader, iterator: next(left))
    job.turn(0.6)
    turn = job.gate.turn()
    job.end()
    assert turn.skipped == pytest.approx(skipped, abs=1)
    assert len(turn.periods_s) >= 4


def test_a_turn_of_epochs_is_whole_ones_and_all_of_them_count():
    """Nothing worked ahead of the first one, and what happens at the end of the last one is its time."""
    job = Job(gate=EpochGate)
    for seconds, epochs in ((2.5 * STEP_S, 3), (0.1 * STEP_S, 1)):
        before = job.steps
        assert job.turn(seconds) == "parked"
        job.clock.at += 100.0
        assert job.gate.turn().periods_s == pytest.approx([STEP_S] * epochs)
        assert job.steps - before == epochs
    job.end()


def test_slow_steps_make_longer_turns():
    """Some steps count in any case."""
    job = Job()
    job.turn(STEP_S)
    assert len(job.gate.turn().periods_s) >= 4
    job.end()


def test_a_job_that_ends_by_itself_says_so():
    """Its data were over."""
    job = Job(most=3)
    assert job.turn(1.0) == "out"


def test_a_job_that_does_not_come_back_is_not_waited_for():
    """The conductor has a budget to keep."""
    assert Gate(FakeClock()).wait(0.01) == ""


def test_nothing_lies_ahead_where_nobody_tells():
    """An iterator without a model has no known buffers."""
    assert batches_ahead(ModelReader(), None) == 0
    assert batches_ahead(ModelReader(), iter(())) == 0

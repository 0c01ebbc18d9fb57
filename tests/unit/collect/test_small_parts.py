"""The budget, the host's samples, files of callbacks, and a loop of the caller's own."""

from __future__ import annotations

import itertools
import math
import threading
from pathlib import Path
from typing import Any

import keras
import pytest

from tests.unit.fakes import FakeClock
from tfdiag.collect.deadline import Deadline
from tfdiag.collect.loop import run_own_loop
from tfdiag.collect.recorder import Recorder
from tfdiag.collect.redirect import redirect_files
from tfdiag.collect.sampler import HostSampler
from tfdiag.compat.host import Host

LONG_S = 20.0


# The budget ----------------------------------------------------------------------------------


def test_the_budget_runs_out() -> None:
    """What is left shrinks as time passes, and is negative when it is over."""
    clock = FakeClock()
    deadline = Deadline(clock, 10.0, clock())
    assert (deadline.begin, deadline.end, deadline.left(), deadline.spent()) == (100.0, 110.0, 10.0, 0.0)
    clock.advance(12.0)
    assert (deadline.left(), deadline.spent()) == (-2.0, 12.0)


def test_a_share_of_the_budget() -> None:
    """A phase gets a share of what is left, at most so much, and never an end that has passed."""
    clock = FakeClock()
    deadline = Deadline(clock, 10.0, clock())
    assert deadline.share(0.5, 100.0) == 105.0
    assert deadline.share(0.5, 2.0) == 102.0
    clock.advance(8.0)
    assert deadline.share(0.5, 100.0) == 109.0
    clock.advance(5.0)
    assert deadline.share(0.5, 100.0) == clock()


def test_phases_add_up() -> None:
    """A phase that runs twice has the time of both."""
    clock = FakeClock()
    deadline = Deadline(clock, 10.0, clock())
    for seconds in (1.0, 2.5):
        begin = clock()
        clock.advance(seconds)
        deadline.note("replay", begin)
    assert deadline.phases_s == {"replay": 3.5}


# The host ------------------------------------------------------------------------------------


def test_the_sampler_reads_until_it_is_stopped() -> None:
    """There is a sample at the beginning, at each wake-up and at the end, and then no thread."""
    clock, woken = FakeClock(), threading.Event()

    class Paced(threading.Event):
        """Wakes three times without waiting, then waits to be set."""

        times = 0

        def wait(self, timeout: float | None = None) -> bool:
            Paced.times += 1
            clock.advance(timeout or 0.0)
            if Paced.times <= 3:
                return False
            woken.set()
            return super().wait(LONG_S)

    sampler = HostSampler(clock, period_s=0.5)
    sampler._stop = Paced()
    with sampler:
        assert woken.wait(LONG_S)
    assert not sampler._thread.is_alive()
    samples = sampler.samples()
    assert [sample.at_s for sample in samples] == [100.0, 100.5, 101.0, 101.5, 102.0]
    cpu = [sample.process_cpu_s for sample in samples]
    assert cpu == sorted(cpu) and cpu[0] > 0
    assert samples[0].rss_bytes > 0 and samples[0].threads >= 1


def test_the_sampler_stops_when_the_block_fails() -> None:
    """An exception ends the thread as well."""
    sampler = HostSampler(FakeClock(), period_s=1000.0)
    with pytest.raises(KeyError), sampler:
        raise KeyError
    assert not sampler._thread.is_alive()
    assert len(sampler.samples()) == 2
    assert isinstance(sampler._host, Host)


# Files of callbacks --------------------------------------------------------------------------


def test_files_go_to_the_private_folder(tmp_path: Path) -> None:
    """Keras' callbacks write below the folder, each in a place of its own with the name it had."""
    checkpoint = keras.callbacks.ModelCheckpoint("/data/run/{epoch}.keras")
    other = keras.callbacks.ModelCheckpoint("/data/run/{epoch}.keras")
    log = keras.callbacks.CSVLogger("../log.csv")
    stop = keras.callbacks.EarlyStopping()
    changed = redirect_files([checkpoint, stop, log, other], tmp_path)
    assert changed == ["ModelCheckpoint", "CSVLogger", "ModelCheckpoint"]
    paths = [Path(checkpoint.filepath), Path(log.filename), Path(other.filepath)]
    assert len(set(paths)) == 3
    for path in paths:
        assert path.resolve().is_relative_to(tmp_path.resolve())
        assert path.parent.is_dir()
    assert paths[0].name == "{epoch}.keras"


def test_relative_paths_stay_inside(tmp_path: Path) -> None:
    """A path that climbs up does not climb out of the folder."""
    log = keras.callbacks.CSVLogger("../../../../../../tmp/../log.csv")
    redirect_files([log], tmp_path)
    assert Path(log.filename).resolve().is_relative_to(tmp_path.resolve())


def test_a_backup_is_redirected_with_its_files(tmp_path: Path) -> None:
    """All the paths that BackupAndRestore has made of its folder go along."""
    backup = keras.callbacks.BackupAndRestore("/data/backup")
    redirect_files([backup], tmp_path)
    left = {name: value for name, value in vars(backup).items() if str(value).startswith("/data")}
    assert left == {}


def test_objects_of_the_callers_are_left(tmp_path: Path) -> None:
    """What is no Keras callback may mean anything by `filename`."""

    class Own:
        filename = "mine.csv"

        def __init__(self) -> None:
            self.filepath = "mine.txt"

    own = Own()
    assert redirect_files([own], tmp_path) == []
    assert own.filepath == "mine.txt"
    assert list(tmp_path.iterdir()) == []


# A loop of the caller's own ------------------------------------------------------------------


class Source:
    """Gives batches that have to be waited for, three in each iteration."""

    def __init__(self, clock: FakeClock, count: int = 3) -> None:
        """Begin no iteration yet."""
        self.clock, self.count, self.begun = clock, count, 0

    def __iter__(self) -> Any:
        """Begin anew."""
        self.begun += 1
        for k in range(self.count):
            self.clock.advance(0.1 * (k + 1))
            yield k


def test_an_own_loop_measures_its_waits() -> None:
    """Batches go to the step in order, epoch by epoch, each call with its wait, until it is told to stop."""
    clock, batches = FakeClock(), []
    recorder, source = Recorder(clock), Source(clock)

    def step(batch: int) -> None:
        batches.append(batch)
        clock.advance(1.0)

    run_own_loop(source, step, recorder, should_stop=lambda: len(batches) >= 5)
    assert batches == [0, 1, 2, 0, 1]
    assert source.begun == 2
    live = recorder.live()
    assert live.wait_s == pytest.approx([0.1, 0.2, 0.3, 0.1, 0.2])
    assert live.duration_s == pytest.approx([1.1, 1.2, 1.3, 1.1, 1.2])
    assert [event.kind for event in live.events] == [
        "train_begin", "epoch_begin", "epoch_end", "epoch_begin", "epoch_end", "train_end",
    ]  # fmt: skip
    assert recorder.failed_call is None


def test_an_iterator_is_gone_through_once() -> None:
    """What can't be begun again is not waited for."""
    clock = FakeClock()
    recorder = Recorder(clock)
    run_own_loop(iter(Source(clock)), lambda _: None, recorder, should_stop=lambda: False)
    assert len(recorder.calls) == 3


def test_an_empty_source_ends() -> None:
    """A source without batches is asked once."""
    clock = FakeClock()
    recorder, source = Recorder(clock), Source(clock, 0)
    run_own_loop(source, lambda _: None, recorder, should_stop=lambda: False)
    assert recorder.calls == []
    assert source.begun == 1


def test_a_failing_step_is_known() -> None:
    """The error of the caller's step goes on, and the call that failed is known."""
    clock = FakeClock()
    recorder, count = Recorder(clock), itertools.count()

    def step(_: int) -> None:
        if next(count) == 2:
            raise ValueError("third batch")

    with pytest.raises(ValueError, match="third batch"):
        run_own_loop(Source(clock), step, recorder, should_stop=lambda: False)
    assert recorder.failed_call == 2
    assert not any(math.isnan(wait) for wait in recorder.waits)

"""What Python asks of TensorFlow between steps, and that nothing stays replaced."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.integration import jobs
from tfdiag.compat.watch import KINDS, Spent, Watch


@pytest.fixture
def watch() -> Any:
    """Give a watch that is on, and take it off."""
    made = Watch(time.perf_counter)
    made.start()
    yield made
    made.stop()


def test_all_kinds_are_watched_and_put_back() -> None:
    """The functions are the very ones from before, whatever was called meanwhile."""
    before = [tf.summary.write, keras.Model.save, keras.Model.save_weights, tf.train.Checkpoint.save]
    made = Watch(time.perf_counter)
    made.start()
    assert made.kinds == KINDS
    assert made.missing == ""
    assert tf.summary.write is not before[0]
    made.stop()
    made.stop()
    after = [tf.summary.write, keras.Model.save, keras.Model.save_weights, tf.train.Checkpoint.save]
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_values_are_counted_while_a_hook_runs(watch: Watch) -> None:
    """`.numpy()`, `float` and the like are syncs, also of variables; outside of hooks nobody counts."""
    tensor, variable = tf.constant(2.0), keras.Variable([1.0, 2.0])
    float(tensor)
    watch.cell = spent = Spent()
    assert float(tensor) + int(tensor) == 4
    variable.numpy()
    watch.cell = None
    float(tensor)
    assert spent.syncs == 3
    assert 0 < spent.sync_s < 1


def test_saving_is_one_thing(tmp_path: Path, watch: Watch) -> None:
    """What saving reads and calls belongs to it, with the bytes that it writes."""
    model = jobs.tiny_model()
    watch.cell = spent = Spent()
    model.save_weights(tmp_path / "a.weights.h5")
    model.save(tmp_path / "a.keras")
    watch.cell = None
    assert (spent.saves, spent.syncs) == (2, 0)
    assert spent.save_s > 0
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert spent.written == 0 or spent.written == pytest.approx(written, rel=0.5)


def test_summaries(tmp_path: Path, watch: Watch) -> None:
    """What a summary computes belongs to it."""
    writer = tf.summary.create_file_writer(str(tmp_path))
    watch.cell = spent = Spent()
    with writer.as_default():
        tf.summary.write("name", lambda: tf.constant(float(tf.constant(1.0))), step=0)
        tf.summary.flush()
    watch.cell = None
    writer.close()
    assert spent.summaries >= 2  # leaving the writer flushes it as well
    assert spent.syncs == 0


def test_other_threads_are_left_alone(watch: Watch) -> None:
    """What another thread asks for is no wait of this one."""
    watch.cell = spent = Spent()
    other = threading.Thread(target=lambda: float(tf.constant(1.0)))
    other.start()
    other.join()
    watch.cell = None
    assert spent.syncs == 0


def test_what_somebody_else_replaced_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is not put back over theirs."""
    made = Watch(time.perf_counter)
    original = vars(keras.Model)["save"]
    made.start()
    monkeypatch.setattr(keras.Model, "save", "theirs")
    made.stop()
    assert keras.Model.save == "theirs"
    keras.Model.save = original

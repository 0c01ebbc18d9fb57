"""Callbacks of every make: in lists, under old names, plain objects, and such that train by themselves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import keras
import pytest

from tests.integration import jobs
from tests.unit.collect.test_instrument import STEPS, callback_list, fit, measuring
from tfdiag.collect.recorder import Recorder
from tfdiag.compat.keras import callback_facts
from tfdiag.compat.watch import Watch
from tfdiag.model.host_work import CallbackFacts
from tfdiag.model.measurements import LOOP, CallbackTime


def named(*hooks: str, **attributes: Any) -> Any:
    """Give a callback with hooks that do nothing."""
    return type(
        "Named", (keras.callbacks.Callback,), {hook: lambda *_, **__: None for hook in hooks} | attributes
    )()


def rows_of(callback: Any, method: str) -> list[CallbackTime]:
    """Give the times of a method, one row for each callback."""
    found: dict[str, CallbackTime] = {}
    for row in callback._recorder.live().callbacks:
        if row.method == method:
            before = found.get(row.callback, CallbackTime(row.callback, method, 0, 0, 0, 0.0))
            found[row.callback] = CallbackTime(
                row.callback, method, 0, before.calls + row.calls, before.count + row.count,
                before.total_s + row.total_s, before.syncs + row.syncs, before.sync_s + row.sync_s,
                before.saves + row.saves,
            )  # fmt: skip
    return list(found.values())


def test_callbacks_inside_of_lists_are_timed_each_for_itself() -> None:
    """A list in the list is followed, its entries are put back, and ours may stand in one as well."""
    model, ours, deep = jobs.tiny_model(), measuring(), named("on_train_batch_end")
    inner = keras.callbacks.CallbackList(
        [deep, keras.callbacks.CallbackList([named("on_epoch_end")])], model=model
    )
    before = [inner, *inner.callbacks]
    fit(model, inner, ours)
    assert [row.count for row in rows_of(ours, "on_train_batch_end")] == [STEPS]
    assert [row.callback for row in rows_of(ours, "on_epoch_end")] == ["Named #2"]
    assert before == [inner, *inner.callbacks]
    facts = {each.name: each for each in ours._recorder.facts}
    assert facts["Named"].inside == "CallbackList"
    nested = measuring()
    fit(model, named("on_train_batch_end"), keras.callbacks.CallbackList([nested], model=model))
    assert [row.count for row in rows_of(nested, "on_train_batch_end")] == [STEPS]


def test_hooks_under_their_old_names() -> None:
    """`on_batch_end` is called by the hook that stands for it now."""
    ours = measuring()
    fit(jobs.tiny_model(), ours, named("on_batch_end"))
    assert [row.count for row in rows_of(ours, "on_train_batch_end")] == [STEPS]


def test_hooks_beside_the_steps_are_not_between_them() -> None:
    """Where all hooks say that they are safe, Keras runs them on another thread."""
    model, ours = jobs.tiny_model(), measuring()
    given = callback_list(model, ours, named("on_train_batch_end", async_safe=True))
    given._async_train = True  # as where Keras takes its backend for safe on several threads
    fit(model, callbacks=given)
    assert not rows_of(ours, "on_train_batch_end")
    assert [row.count for row in rows_of(ours, "on_train_batch_end (beside the steps)")] == [STEPS]


def test_what_a_callback_trains_by_itself_is_its_own() -> None:
    """Steps, validation and predictions inside of a hook are the hook's time, not steps of the job."""
    model, ours = jobs.tiny_model(), measuring()
    x, y = jobs.arrays(16)

    class Busy(keras.callbacks.Callback):
        """Does all that a model can."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            model.fit(x, y, batch_size=8, verbose=0)
            model.train_on_batch(x, y)
            model.evaluate(x, y, verbose=0)
            model.predict(x, verbose=0)

    fit(model, Busy(), ours, epochs=2, validation_data=jobs.batches(3))
    assert len(ours._recorder.calls) == 2 * STEPS
    assert [run.calls for run in ours._recorder.validations] == [3, 3]
    assert [row.count for row in rows_of(ours, "on_epoch_end") if row.callback == "Busy"]


def test_the_models_metrics_are_timed_at_the_ends_of_epochs() -> None:
    """Results and resets of training count, not those of validation; the model has its own methods again."""
    model, ours = jobs.tiny_model(), measuring()
    fit(model, ours, epochs=3, validation_data=jobs.batches(2))
    live = ours._recorder.live().callbacks
    counts = {row.method: 0 for row in live if row.callback == LOOP}
    for row in live:
        if row.callback == LOOP:
            counts[row.method] += row.count
    assert counts == {"metric result": 3, "metric reset": 3}
    assert "get_metrics_result" not in vars(model)
    assert "reset_metrics" not in vars(model)


def test_a_method_of_the_callers_own_on_the_model_is_put_back() -> None:
    """Whoever hung a function on the model finds it there."""
    model, ours = jobs.tiny_model(), measuring()

    def mine() -> None:
        type(model).reset_metrics(model)

    model.reset_metrics = mine
    fit(model, ours, measuring())
    assert vars(model)["reset_metrics"] is mine


def test_what_hooks_ask_for_is_told_apart(tmp_path: Path) -> None:
    """Values, files and the logs that Keras fetches for a hook, each counted once."""
    model = jobs.tiny_model()
    watch = Watch(time.perf_counter)
    recorder = Recorder(time.perf_counter, watch=watch)
    ours = measuring(recorder=recorder)

    class Reads(keras.callbacks.Callback):
        """Reads and saves."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            [weight.numpy() for weight in model.trainable_weights]

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            model.save_weights(tmp_path / "w.weights.h5")

    watch.start()
    watch.fetched = recorder.part_of_loop("logs")
    try:
        fit(model, Reads(), ours)
    finally:
        watch.stop()
    (each,) = rows_of(ours, "on_train_batch_end")
    assert each.syncs == STEPS * len(model.trainable_weights)
    assert 0 < each.sync_s <= each.total_s
    (end,) = [row for row in rows_of(ours, "on_epoch_end") if row.callback == "Reads"]
    assert (end.saves, end.syncs) == (1, 0)
    (logs,) = rows_of(ours, "logs")
    assert logs.syncs == STEPS * 2  # the loss and one metric


def test_steps_per_execution_are_counted_by_call() -> None:
    """Hooks run once a call, whatever the steps in it."""
    model = jobs.tiny_model(steps_per_execution=3)
    ours = measuring(recorder=Recorder(time.perf_counter, steps_per_call=3))
    fit(model, ours, named("on_train_batch_end"), validation_data=jobs.batches(9))
    assert [row.count for row in rows_of(ours, "on_train_batch_end")] == [STEPS // 3]


@pytest.mark.parametrize("stop", [True, 1])
def test_a_callback_that_stops_training(stop: Any) -> None:
    """Whatever it sets, fit ends and everything is off."""
    model, ours = jobs.tiny_model(), measuring()

    class Stops(keras.callbacks.Callback):
        """Stops after two batches."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            model.stop_training = stop if batch == 1 else False

    fit(model, Stops(), ours, epochs=3)
    assert len(ours._recorder.calls) == 2
    assert not ours._instrument.attached


def test_facts_of_callbacks(tmp_path: Path) -> None:
    """Settings of Keras' own callbacks are kept, those of others mean anything."""
    saver = keras.callbacks.ModelCheckpoint(str(tmp_path / "a.keras"), save_freq=5)
    found = callback_facts(saver, "ModelCheckpoint")
    assert dict(found.settings)["save_freq"] == "5"
    assert found.batch_hook
    assert found.classes[0] == "ModelCheckpoint"
    mine = named("on_epoch_end", save_freq=7)
    assert callback_facts(mine, "Named", "CallbackList") == CallbackFacts(
        "Named", ("Named",), inside="CallbackList"
    )
    assert not callback_facts(named("on_train_batch_end", async_safe=True), "Named").batch_hook

    class Plain:
        """No callback of Keras'."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """Do something."""

    plain = callback_facts(Plain(), "Plain")
    assert plain.plain
    assert plain.batch_hook

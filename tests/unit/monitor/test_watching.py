"""What the callback looks at beside the steps: it ends with the fit, however that ends."""

from __future__ import annotations

import threading
import time
from typing import Any

import keras
import pytest

from tests.unit.monitor.test_callback import FLAVOURS, STEPS, both, fit, steps_in
from tfdiag import DiagnosticsCallback
from tfdiag.model.host import HostTelemetry
from tfdiag.model.measurements import HostSample
from tfdiag.model.quantity import Missing
from tfdiag.monitor.watching import Watching

LONG_S = 5.0


def watchers() -> list[threading.Thread]:
    """Give the threads that look."""
    return [thread for thread in threading.enumerate() if thread.name in ("tfdiag-host", "tfdiag-gpu")]


@both
def test_the_host_is_watched_for_as_long_as_fit_runs(flavour: str) -> None:
    """Its samples are in the report, during training and after it, and then nobody looks any more."""
    callback, seen = DiagnosticsCallback(), []

    class Asks(FLAVOURS[flavour][0].callbacks.Callback):  # type: ignore[misc, name-defined]
        """Looks at the threads in the middle of the training."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 11:
                seen.append((len(watchers()), callback.report().measurements.host))

    fit(FLAVOURS[flavour][1](), callback, Asks())
    ((running, host),) = seen
    assert running == 1  # there is no GPU to look at
    assert isinstance(host[0], HostSample)
    assert watchers() == []
    measured = callback.report().measurements
    assert len(measured.host) >= 2
    assert isinstance(measured.machine, HostTelemetry)
    assert isinstance(measured.gpu, Missing)
    assert "there is no GPU" in measured.gpu.reason


class Fails(keras.Sequential):
    """Fails between epochs, where no callback is called and no step runs."""

    epochs = 0

    def reset_metrics(self) -> None:
        """Fail the third time: at the beginning of the second epoch."""
        self.epochs += 1
        if self.epochs == 2:
            raise KeyboardInterrupt
        super().reset_metrics()


@pytest.mark.parametrize("inside", [True, False])
def test_the_threads_end_when_fit_raises(inside: bool) -> None:
    """In a step or a callback, and in code of Keras' own where nobody tells us."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    if not inside:
        model = Fails([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    class Raises(keras.callbacks.Callback):
        """Fails after some steps."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 5 and inside:
                raise KeyboardInterrupt

    callback = DiagnosticsCallback()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, Raises(), epochs=3)
    for thread in watchers():
        thread.join(LONG_S)
    assert watchers() == []
    assert steps_in(callback.report()) == (6 if inside else STEPS)


def test_outside_of_a_fit_there_is_no_thread() -> None:
    """Nobody could say when to stop."""
    watching = Watching(time.perf_counter, (), lambda: True)
    watching.start()
    assert watchers() == []
    watching.stop()
    assert isinstance(watching.host(), Missing)
    assert isinstance(watching.gpus(), Missing)
    assert watching.samples() == ()
